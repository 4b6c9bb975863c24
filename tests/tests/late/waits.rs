//! Who waits for whom beyond the shim. The shim, its child, the lock and who has it are real; kubelet is a process of that
//! name that sleeps, and its log is as cited in runc#1959.

use std::{
    fs,
    os::unix::fs::symlink,
    process::{Child, Command},
};

use podstuck_tests::{diagnose, requires, root_and_btf};

use super::{Node, answer, klog};

const ID: &str = "1b1ca5cbcadd58b26daeeb973d56f3ff807dec5a6b6efab924a1dc12fd299216";

/// A shim whose runc waits for a lock.
struct Shim(Child);

impl Shim {
    fn new(node: &Node, lock: &str) -> Self {
        let place = node.directory.path();
        let [shim, runc] = ["containerd-shim-runc-v2", "runc"].map(|name| place.join(name));
        symlink("/bin/sh", &shim).unwrap();
        symlink("/bin/sh", &runc).unwrap();
        let script = format!("{} -c 'flock {lock} true; true' delete; true", runc.display());
        let mut shim = Command::new(shim);
        shim.args(["-c", &script, "shim", "-namespace", "k8s.io", "-id", ID]);
        Self(shim.spawn().unwrap())
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_shim_is_followed_to_its_child_and_to_who_has_the_lock_that_this_waits_for() {
    requires!(root_and_btf());
    let directory = tempfile::tempdir().unwrap();
    symlink("/bin/sleep", directory.path().join("kubelet")).unwrap();
    let log = directory.path().join("kubelet.log");
    let node = Node::with(56, directory, fs::File::create(&log).unwrap().into());
    fs::create_dir_all(node.volume()).unwrap();
    fs::write(node.volume().join("kept"), "data").unwrap();
    let (name, uid) = (node.name(), &node.uid);
    let failed = |ago| {
        let error = format!("wait container \\\\\\\"{ID}\\\\\\\": context deadline exceeded");
        let text = format!(
            "\"Error syncing pod, skipping\" err=\"failed to \\\"KillContainer\\\" for \\\"app\\\" with \
             KillContainerError: \\\"rpc error: code = DeadlineExceeded desc = {error}\\\"\" pod=\"shop/{name}\" \
             podUID=\"{uid}\""
        );
        klog(ago, 'E', &text)
    };
    let deleted =
        klog(300, 'I', &format!("\"SyncLoop DELETE\" source=\"api\" pods=[\"shop/{name}\"]"));
    fs::write(&log, deleted + &failed(220) + &failed(60)).unwrap();
    let path = node.directory.path().join("xtables.lock");
    let lock = fs::File::create(&path).unwrap();
    lock.lock().unwrap();
    let mut shim = Shim::new(&node, path.to_str().unwrap());
    let root = node.root();
    let root = root.to_str().unwrap();
    let asked = ["--pod-uid", &node.uid, "--kubelet-root", root, "--timeout", "20s"];
    let (lines, _) = diagnose(&asked).finish();
    let answer = answer(&lines);
    let chain = answer["stages"][0]["chain"].as_array().unwrap();
    let at = |pid: u32| {
        let who = |link: &&serde_json::Value| {
            link["who"].as_str().unwrap().ends_with(&format!("(pid {pid})"))
        };
        chain.iter().position(|link| who(&link)).unwrap_or_else(|| panic!("{pid}: {answer:#}"))
    };
    let text = |index: usize, field: &str| chain[index][field].as_str().unwrap().to_owned();
    let first = at(shim.0.id());
    assert!(text(first, "waits_for").starts_with("runc delete (pid "), "{answer:#}");
    assert!(text(first + 1, "waits_for").starts_with("flock (pid "), "{answer:#}");
    let released =
        format!("(pid {}) to release the lock on {}", std::process::id(), path.display());
    assert!(text(first + 2, "waits_for").ends_with(&released), "{answer:#}");
    assert_eq!(at(std::process::id()), first + 3);
    lock.unlock().unwrap();
    assert!(shim.0.wait().unwrap().success(), "the last link was what all of them waited for");
}
