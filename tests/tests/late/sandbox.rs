//! What a runtime cannot remove of a pod's sandbox. The runtime is a process of that name that sleeps, and its log is
//! as cited; the mounts, and that the kernel refuses, are real.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::{
    libc::EBUSY,
    mount::{MsFlags, mount},
};
use podstuck_tests::{Ending, Mounted, done, obey, requires, root_and_btf};
use serde_json::Value;

use super::{Node, answer, logrus};

/// Of a sandbox.
const ID: &str = "921d9d5a5f2e1f87eb26d6620d3a91fd9bd0a69efea8ba56680581a8869b361e";

/// A runtime that has said this twice of the pod's sandbox, and what is mounted.
struct Sandbox {
    /// Another way to `run`, whose mounts are its own.
    other: Mounted,
    /// A file system in memory, as /run is.
    run: Mounted,
    _runtime: Ending,
    node: Node,
}

impl Sandbox {
    fn new(number: u8) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["kubelet", "containerd"] {
            symlink("/bin/sleep", directory.path().join(name)).unwrap();
        }
        let log = File::create(directory.path().join("containerd.log")).unwrap();
        let program = directory.path().join("containerd");
        let runtime = Ending::start(Command::new(program).arg("600").stderr(log));
        let (run, other) = (directory.path().join("run"), directory.path().join("other"));
        for directory in [&run, &other] {
            fs::create_dir(directory).unwrap();
        }
        let run = Mounted::memory(run, "");
        mount(None::<&str>, &*run, None::<&str>, MsFlags::MS_PRIVATE, None::<&str>).unwrap();
        let other = Mounted::bind(&run, other);
        let node = Node::with(number, directory, Stdio::null());
        fs::create_dir_all(node.volume()).unwrap();
        Self { other, run, _runtime: runtime, node }
    }

    /// The runtime says so, and the kernel does.
    fn says(&self, request: &str, error: &str, busy: &Path) {
        let refused = if busy.is_dir() { fs::remove_dir(busy) } else { fs::remove_file(busy) };
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(EBUSY), "{}", busy.display());
        self.complains(request, &format!("{error}: unlinkat"), busy);
    }

    /// The runtime says that it cannot do this with it.
    fn complains(&self, request: &str, error: &str, busy: &Path) {
        let made = format!(
            "msg=\"RunPodSandbox for &PodSandboxMetadata{{Name:{},Uid:{},Namespace:shop,Attempt:0,}} returns \
             sandbox id \\\"{ID}\\\"\"",
            self.node.name(),
            self.node.uid
        );
        let failed = format!(
            "msg=\"{request} for \\\"{ID}\\\" failed\" error=\"{error} {}: device or resource busy\"",
            busy.display()
        );
        let log = logrus(3600, "info", &made)
            + &logrus(70, "error", &failed)
            + &logrus(0, "error", &failed);
        fs::write(self.node.directory.path().join("containerd.log"), log).unwrap();
    }

    /// What is found, with its commands obeyed from the first to the last.
    fn cause(&self) -> Value {
        let (lines, _) = self.node.ask("6s");
        let cause = answer(&lines)["causes"][0].clone();
        for remedy in cause["remedies"].as_array().unwrap() {
            obey(remedy["command"].as_str().unwrap());
            obey(remedy["verify"].as_str().unwrap());
        }
        cause
    }
}

fn evidence(cause: &Value, words: &str) -> usize {
    let all = cause["evidence"].as_array().unwrap();
    all.iter().filter(|fact| fact["fact"].as_str().unwrap().contains(words)).count()
}

/// As in containerd issue 3667: the runtime has unmounted it by its path, and it is mounted by another way.
#[test]
fn a_network_namespace_that_is_mounted_by_another_way_is_found_and_let_go() {
    requires!(root_and_btf());
    let sandbox = Sandbox::new(31);
    let name = "netns/cni-45ff10e9-dcc1-b779-f1a1-3515a5d56e61";
    let (file, other) = (sandbox.run.join(name), sandbox.other.join(name));
    fs::create_dir(sandbox.run.join("netns")).unwrap();
    fs::write(&file, "").unwrap();
    let own = Some("/proc/self/ns/net");
    mount(own, &other, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    let error = format!(
        "failed to remove network namespace for sandbox \\\"{ID}\\\": failed to remove netns"
    );
    sandbox.says("StopPodSandbox", &error, &file);
    let cause = sandbox.cause();
    assert_eq!(
        (&cause["id"], &cause["certainty"], &cause["blocks_deletion"]),
        (&"netns-busy".into(), &"firm".into(), &true.into()),
        "{cause:#}"
    );
    assert_eq!(evidence(&cause, "is another path to"), 1, "{cause:#}");
    assert!(cause["explanation"].as_str().unwrap().contains("at another path"), "{cause:#}");
    fs::remove_file(&file).unwrap();
}

/// As in containerd issue 6143: mounted twice, unmounted once at each attempt.
#[test]
fn a_network_namespace_that_is_mounted_twice_is_found_and_let_go() {
    requires!(root_and_btf());
    let sandbox = Sandbox::new(32);
    let file = sandbox.run.join("netns/cni-0b95837c-ae48-a889-7760-84b91b7af749");
    fs::create_dir(sandbox.run.join("netns")).unwrap();
    fs::write(&file, "").unwrap();
    for _ in 0..2 {
        let own = Some("/proc/self/ns/net");
        mount(own, &file, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    }
    let error = "failed to get sandbox ip: check network namespace closed: remove netns";
    sandbox.says("PodSandboxStatus", error, &file);
    let cause = sandbox.cause();
    assert_eq!(
        (&cause["id"], &cause["certainty"]),
        (&"netns-busy".into(), &"firm".into()),
        "{cause:#}"
    );
    assert_eq!(
        evidence(&cause, "is a mount point in the runtime's mount namespace"),
        2,
        "{cause:#}"
    );
    assert_eq!(cause["remedies"].as_array().unwrap().len(), 2, "{cause:#}");
    fs::remove_file(&file).unwrap();
}

/// As in CRI-O issue 1453, by containerd's words.
#[test]
fn shared_memory_that_is_mounted_still_is_found_and_let_go() {
    requires!(root_and_btf());
    let sandbox = Sandbox::new(33);
    let above = sandbox.run.join("containerd/io.containerd.grpc.v1.cri/sandboxes").join(ID);
    let shm = above.join("shm");
    fs::create_dir_all(&shm).unwrap();
    mount(Some("shm"), &shm, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
    let error =
        format!("failed to remove volatile sandbox root directory \\\"{}\\\"", above.display());
    sandbox.says("RemovePodSandbox", &error, &shm);
    let cause = sandbox.cause();
    assert_eq!(
        (&cause["id"], &cause["certainty"], &cause["blocks_deletion"]),
        (&"sandbox-shm-busy".into(), &"firm".into(), &Value::Null),
        "{cause:#}"
    );
    fs::remove_dir(&shm).unwrap();
}

/// A device without a file system, and a process that has it open.
struct OpenDevice {
    user: Ending,
    device: LoopDevice,
}

/// Detached when dropped.
struct LoopDevice(PathBuf);

impl OpenDevice {
    fn new(image: &Path) -> Self {
        File::create(image).unwrap().set_len(1 << 20).unwrap();
        let path = done(Command::new("losetup").args(["--find", "--show"]).arg(image));
        let device = LoopDevice(path.into());
        let user = File::open(&device.0).unwrap();
        Self { user: Ending::start(Command::new("sleep").arg("600").stdin(user)), device }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// virtcontainers#435: the device of a container's root file system, which the sandbox's machine has open.
#[test]
fn a_device_that_a_process_has_open_is_found_and_let_go() {
    requires!(root_and_btf());
    let sandbox = Sandbox::new(34);
    let device = OpenDevice::new(&sandbox.node.directory.path().join("disk"));
    let error = format!("failed to stop container \\\"{ID}\\\": failed to remove device");
    sandbox.complains("StopPodSandbox", &error, &device.device.0);
    let cause = sandbox.cause();
    assert_eq!(
        (&cause["id"], &cause["certainty"], &cause["blocks_deletion"]),
        (&"runtime-device-busy".into(), &"firm".into(), &true.into()),
        "{cause:#}"
    );
    let who = format!("sleep (pid {})", device.user.id());
    assert!(cause["held_by"].as_str().unwrap().starts_with(&who), "{cause:#}");
}
