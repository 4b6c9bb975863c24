//! `podstuck-csi-driver driver` and `podstuck-csi-driver registrar`.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use podstuck_csi_driver::{
    driver::{Driver, Settings},
    identity::IdentityService,
    klog,
    node::NodeService,
    proto::{
        csi::{identity_server::IdentityServer, node_server::NodeServer},
        registration::registration_server::RegistrationServer,
    },
    registrar::RegistrationService,
    socket::Socket,
};
use tokio::{runtime, sync::mpsc::unbounded_channel};
use tonic::transport::Server;

const FAULTS: &str = "\
The file given with --control holds one of these words, or an object such as
{\"fault\": \"hang\", \"volume\": \"v1\"}, which strikes only that volume. It is read at each call;
without it, or if it is empty, nothing goes wrong. All but `forget` concern NodeUnpublishVolume.

  none            nothing
  forget          the driver forgets what it published, at every call; unpublishing then
                  answers OK and does nothing
  not-found       answers NotFound
  internal        answers Internal
  aborted         answers Aborted
  hang            never answers, and holds the volume's lock until the driver ends: later
                  calls for it are answered with Aborted, whatever the file says then
  elsewhere       unmounts in a mount namespace of its own, answers OK
  only-unmount    unmounts in the driver's own mount namespace if anything is mounted there,
                  and leaves the directory
  not-idempotent  calls umount whatever is there, answers Internal if nothing is mounted

A volume is the directory STATE/volumes/HANDLE, made if need be, or a tmpfs if its handle begins
with `tmpfs-` or its attribute `backing` is `tmpfs`. Where that is `fuse`, a process `podstuck-fuse`
serves it, from the directory that this program is in.";

#[derive(Parser)]
#[command(version, about = "A CSI driver for tests, which fails on demand as real ones do")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves the node's part of CSI: publishes directories by bind mounts.
    #[command(after_help = FAULTS)]
    Driver(DriverOptions),
    /// Makes a driver known to kubelet, and lives on without it. Its socket vanishes with SIGTERM,
    /// from which kubelet learns that the driver is gone, and stays with SIGKILL.
    Registrar(RegistrarOptions),
}

#[derive(Args)]
struct DriverOptions {
    /// Where it listens.
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Where `state.json` and the directory `volumes` are.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// What is to go wrong, see below.
    #[arg(long, value_name = "FILE")]
    control: Option<PathBuf>,
    /// The driver's name, as in `spec.csi.driver` of a volume.
    #[arg(long)]
    name: String,
    /// The node, as `CSINode` shows it.
    #[arg(long, value_name = "ID")]
    node_id: String,
    /// Volumes are mounted at a staging path first and bound from there.
    #[arg(long)]
    stage: bool,
    /// Remove the socket at SIGTERM. Without it, it stays, as that of csi-driver-host-path.
    #[arg(long)]
    remove_socket: bool,
}

#[derive(Args)]
struct RegistrarOptions {
    /// Where it listens: in kubelet's directory `plugins_registry`.
    #[arg(long, value_name = "PATH")]
    registration_socket: PathBuf,
    /// The driver's socket, as kubelet sees it.
    #[arg(long, value_name = "PATH")]
    csi_socket: String,
    /// The driver's name.
    #[arg(long)]
    name: String,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            klog::error(format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        match command {
            Command::Driver(options) => driver(options).await,
            Command::Registrar(options) => registrar(options).await,
        }
    });
    // A call that waits for the kernel is not waited for.
    runtime.shutdown_background();
    ended
}

async fn driver(options: DriverOptions) -> Result<()> {
    let DriverOptions { socket, state, control, name, node_id, stage, remove_socket } = options;
    let driver = Arc::new(Driver::new(Settings { name, node_id, state, control, stage })?);
    let services = Server::builder()
        .add_service(IdentityServer::new(IdentityService::new(Arc::clone(&driver))))
        .add_service(NodeServer::new(NodeService::new(driver)));
    // Held to the end: nothing comes out of it.
    let (_failed, never) = unbounded_channel();
    Socket { path: socket, remove: remove_socket }.serve(services, never).await
}

/// Ends with an error when kubelet refuses: it asks again only when the socket appears again, which
/// the restarted container sees to (node-driver-registrar does the same).
async fn registrar(options: RegistrarOptions) -> Result<()> {
    let RegistrarOptions { registration_socket, csi_socket, name } = options;
    let (refuse, refused) = unbounded_channel();
    let service = RegistrationService::new(name, csi_socket, refuse);
    let services = Server::builder().add_service(RegistrationServer::new(service));
    Socket { path: registration_socket, remove: true }.serve(services, refused).await
}
