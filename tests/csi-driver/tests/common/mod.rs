//! The real program, and a client of its own.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    reason = "a test stops at the first surprise"
)]

use std::{
    fs::{self, File},
    future::Future,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use podstuck_csi_driver::proto::csi::{
    NodePublishVolumeRequest, NodeUnpublishVolumeRequest, VolumeCapability,
    identity_client::IdentityClient,
    node_client::NodeClient,
    volume_capability::{AccessType, MountVolume},
};
use tempfile::TempDir;
use tonic::{
    Code, Response, Status,
    transport::{Channel, Endpoint},
};

/// Longer than anything here takes: a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process of `podstuck-csi-driver`, which ends with the test.
pub struct Running {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Running {
    /// Started, and answering.
    fn start(directory: &Path, socket: &str, arguments: &[&str]) -> Self {
        let (socket, log) = (directory.join(socket), directory.join("log"));
        let _ = fs::remove_file(&socket);
        let child = Command::new(env!("CARGO_BIN_EXE_podstuck-csi-driver"))
            .args(arguments)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stderr(File::options().append(true).create(true).open(&log).unwrap())
            .spawn()
            .unwrap();
        let mut this = Self { child, socket, log };
        let begun = Instant::now();
        while UnixStream::connect(&this.socket).is_err() {
            assert!(this.child.try_wait().unwrap().is_none(), "it ended: {}", this.log());
            assert!(begun.elapsed() < PATIENCE, "it does not listen: {}", this.log());
            thread::sleep(Duration::from_millis(5));
        }
        this
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A driver with a directory of its own: its state, its socket, its log, and the pods' volumes.
pub struct Driver {
    pub running: Running,
    directory: TempDir,
    more: Vec<&'static str>,
}

impl Driver {
    pub fn start(more: &[&'static str]) -> Self {
        let directory = tempfile::Builder::new().prefix("podstuck-csi-").tempdir().unwrap();
        let running = Self::process(directory.path(), more);
        Self { running, directory, more: more.to_vec() }
    }

    /// Kills it and starts it again, with what its file says.
    pub fn restart(&mut self) {
        self.running.child.kill().unwrap();
        self.running.child.wait().unwrap();
        self.running = Self::process(self.directory.path(), &self.more);
    }

    fn process(directory: &Path, more: &[&str]) -> Running {
        let base = ["driver", "--socket", "csi.sock", "--state", "state", "--control", "fault"];
        let who = ["--name", "csi.podstuck.test", "--node-id", "n1"];
        Running::start(directory, "csi.sock", &[&base[..], &who[..], more].concat())
    }

    pub fn fault(&self, text: &str) {
        fs::write(self.directory.path().join("fault"), text).unwrap();
    }

    /// The path of a pod's volume, whose parent is there as kubelet makes it.
    pub fn target(&self, pod: &str) -> PathBuf {
        let parent = self.directory.path().join("pods").join(pod);
        fs::create_dir_all(&parent).unwrap();
        parent.join("mount")
    }

    pub fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(channel(&self.running.socket))
    }

    pub fn identity(&self) -> IdentityClient<Channel> {
        IdentityClient::new(channel(&self.running.socket))
    }

    pub async fn publish(&self, request: NodePublishVolumeRequest) -> Result<(), Status> {
        self.node().node_publish_volume(request).await.map(Response::into_inner).map(|_| ())
    }

    pub async fn unpublish(&self, volume: &str, target: &Path) -> Result<(), Code> {
        let request =
            NodeUnpublishVolumeRequest { volume_id: volume.to_owned(), target_path: text(target) };
        let answer = self.node().node_unpublish_volume(request).await;
        answer.map(|_| ()).map_err(|status| status.code())
    }
}

/// A client that dials the socket.
fn channel(socket: &Path) -> Channel {
    Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap().connect_lazy()
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// To be published there, as files.
pub fn publication(volume: &str, target: &Path) -> NodePublishVolumeRequest {
    NodePublishVolumeRequest {
        volume_id: volume.to_owned(),
        target_path: text(target),
        volume_capability: Some(VolumeCapability {
            access_type: Some(AccessType::Mount(MountVolume {})),
        }),
        ..Default::default()
    }
}

/// Runs a client.
pub fn run<T>(client: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let patient = async { tokio::time::timeout(PATIENCE, client).await };
    runtime.block_on(patient).unwrap_or_else(|_| panic!("no answer in {PATIENCE:?}"))
}
