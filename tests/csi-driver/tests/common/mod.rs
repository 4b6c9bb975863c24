//! The real program, and a client of its own.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "a test stops at the first surprise, and each uses a part of this"
)]

use std::{
    fs::{self, File},
    future::Future,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    sys::signal::{Signal, kill},
    unistd::{Pid, geteuid},
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
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A process of `podstuck-csi-driver`, which ends with the test.
pub struct Running {
    child: Child,
    pub socket: PathBuf,
    log: PathBuf,
}

impl Running {
    /// Started in the calling thread's mount namespace, and answering.
    pub fn start(directory: &Path, socket: &str, arguments: &[&str]) -> Self {
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

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
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
    pub directory: TempDir,
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
        self.running.wait();
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

/// What a fault left mounted would keep the directory from being removed.
impl Drop for Driver {
    fn drop(&mut self) {
        let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4).map(Path::new));
        for point in points.filter(|point| point.starts_with(self.directory.path())) {
            let _ = umount2(point, MntFlags::MNT_DETACH);
        }
    }
}

/// A client that dials the socket.
pub fn channel(socket: &Path) -> Channel {
    Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap().connect_lazy()
}

pub fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// To be published there, as files.
pub fn publication(volume: &str, target: &Path) -> NodePublishVolumeRequest {
    NodePublishVolumeRequest {
        volume_id: volume.to_owned(),
        target_path: text(target),
        volume_capability: files(),
        ..Default::default()
    }
}

pub fn files() -> Option<VolumeCapability> {
    Some(VolumeCapability { access_type: Some(AccessType::Mount(MountVolume {})) })
}

/// Runs a client.
pub fn run<T>(client: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let patient = async { tokio::time::timeout(PATIENCE, client).await };
    runtime.block_on(patient).unwrap_or_else(|_| panic!("no answer in {PATIENCE:?}"))
}

/// What a test needs that mounts.
pub fn root() -> Result<(), &'static str> {
    if geteuid().is_root() { Ok(()) } else { Err("not root") }
}

/// A mount namespace of this test's thread and of what it starts.
pub fn own_mounts() {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
}

/// How many mounts are at `path`, by the kernel's table of this thread's namespace.
pub fn mounts_at(path: &Path) -> usize {
    let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    table.lines().filter(|line| line.split(' ').nth(4) == path.to_str()).count()
}
