//! Chains of waiting processes beyond the shim or the runtime. Their children, the lock and who has it are real;
//! kubelet and the runtime are processes of that name, and kubelet's log is as cited in runc#1959,
//! containernetworking/plugins#561 and calico#2098.

use std::{
    fs,
    io::Write as _,
    os::unix::{fs::symlink, process::CommandExt as _},
    path::Path,
    process::{Child, Command},
};

use podstuck_tests::{Ending, diagnose, requires, root_and_btf};

use serde_json::Value;

use super::{Node, UID, answer, klog};

const ID: &str = "1b1ca5cbcadd58b26daeeb973d56f3ff807dec5a6b6efab924a1dc12fd299216";

/// A shim whose runc waits for a lock.
struct Shim(Ending);

impl Shim {
    fn new(node: &Node, lock: &str) -> Self {
        let place = node.directory.path();
        let [shim, runc] = ["containerd-shim-runc-v2", "runc"].map(|name| place.join(name));
        symlink("/bin/sh", &shim).unwrap();
        symlink("/bin/sh", &runc).unwrap();
        let script = format!("{} -c 'flock {lock} true; true' delete; true", runc.display());
        let mut shim = Command::new(shim);
        shim.args(["-c", &script, "shim", "-namespace", "k8s.io", "-id", ID]);
        Self(Ending::start(&mut shim))
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
        let found = chain.iter().position(|link| link["who"]["pid"] == pid);
        found.unwrap_or_else(|| panic!("{pid}: {answer:#}"))
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

/// What kubelet logged of it `ago` seconds ago.
fn failed(node: &Node, ago: i64, error: &str) -> String {
    let (name, uid) = (node.name(), &node.uid);
    let line = "\"Error syncing pod, skipping\"";
    klog(ago, 'E', &format!("{line} err=\"{error}\" pod=\"shop/{name}\" podUID=\"{uid}\""))
}

/// A node of kubelet's whose log has these errors of a pod that was deleted five minutes ago.
fn stuck(number: u8, error: &str) -> Node {
    let directory = tempfile::tempdir().unwrap();
    symlink("/bin/sleep", directory.path().join("kubelet")).unwrap();
    let log = directory.path().join("kubelet.log");
    let node = Node::with(number, directory, fs::File::create(&log).unwrap().into());
    fs::create_dir_all(node.volume()).unwrap();
    fs::write(node.volume().join("kept"), "data").unwrap();
    let name = node.name();
    let pods = format!("\"SyncLoop DELETE\" source=\"api\" pods=[\"shop/{name}\"]");
    fs::write(&log, klog(300, 'I', &pods) + &failed(&node, 150, error)).unwrap();
    node
}

/// kubelet's next attempt has failed as well.
fn fails_again(node: &Node, error: &str) {
    let log = fs::File::options().append(true).open(node.directory.path().join("kubelet.log"));
    log.unwrap().write_all(failed(node, 1, error).as_bytes()).unwrap();
}

const NO_ANSWER: &str = "failed to \\\"KillPodSandbox\\\" for \\\"UID\\\" with KillPodSandboxError: \\\"rpc error: \
    code = DeadlineExceeded desc = context deadline exceeded\\\"";

fn ask(node: &Node) -> Value {
    let root = node.root();
    let asked =
        ["--pod-uid", &node.uid, "--kubelet-root", root.to_str().unwrap(), "--timeout", "30s"];
    answer(&diagnose(&asked).finish().0).clone()
}

/// A process of a runtime's name that runs this script, and whatever it has started.
struct Runtime(Child);

impl Runtime {
    fn new(node: &Node, script: &str, variables: &[(&str, &str)]) -> Self {
        let program = node.directory.path().join("containerd");
        symlink("/bin/sh", &program).unwrap();
        let mut runtime = Command::new(program);
        runtime.args(["-c", script]).envs(variables.iter().copied()).process_group(0);
        Self(runtime.spawn().unwrap())
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let group = nix::unistd::Pid::from_raw(self.0.id().cast_signed());
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// The first cause, which is certain, with its first command.
fn first(answer: &Value) -> (&str, &str) {
    let cause = &answer["causes"][0];
    assert_eq!(cause["certainty"], "firm", "{answer:#}");
    (cause["id"].as_str().unwrap(), cause["remedies"][0]["command"].as_str().unwrap())
}

fn run(command: &str) {
    assert!(Command::new("bash").args(["-c", command]).status().unwrap().success(), "{command}");
}

#[test]
fn a_plugin_that_waits_for_another_ones_lock_is_named_and_its_command_ends_it() {
    requires!(root_and_btf());
    let node = stuck(57, &NO_ANSWER.replace("UID", "7d9f0b52"));
    let place = node.directory.path().to_owned();
    let [bridge, local] = ["bridge", "host-local"].map(|name| {
        let program = place.join(name);
        symlink("/bin/sh", &program).unwrap();
        program.display().to_string()
    });
    let path = place.join("lock");
    let lock = fs::File::create(&path).unwrap();
    lock.lock().unwrap();
    let script = format!(
        "CNI_COMMAND=DEL CNI_CONTAINERID={ID} CNI_ARGS='K8S_POD_UID={uid}' {bridge} -c \"{local} -c 'flock {} true; true'; \
         true\"; touch {}; sleep 600",
        path.display(),
        place.join("came-back").display(),
        uid = node.uid,
    );
    let runtime = Runtime::new(&node, &script, &[]);
    std::thread::sleep(std::time::Duration::from_secs(65));
    fails_again(&node, &NO_ANSWER.replace("UID", "7d9f0b52"));
    let answer = ask(&node);
    let (cause, command) = first(&answer);
    assert_eq!(cause, "runtime-command-hung", "{answer:#}");
    let held = answer["causes"][0]["held_by"].as_str().unwrap();
    assert!(held.starts_with("bridge DEL (pid "), "{held}");
    let own = format!("(pid {})", std::process::id());
    assert!(held.ends_with(&own), "{held}: this process has the lock");
    run(command);
    comes(&place.join("came-back"));
    drop(runtime);
}

/// Waits until a file is there.
fn comes(file: &Path) {
    for _ in 0..50 {
        if file.exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(file.exists(), "{}", file.display());
}

/// rook#4695, with a driver that hangs in a program that it runs.
#[test]
fn a_driver_of_kubelets_that_does_not_return_is_named_and_its_command_ends_it() {
    requires!(root_and_btf());
    const NUMBER: u8 = 59;
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_owned();
    let [kubelet, rook] = ["kubelet", "rook"].map(|name| place.join(name));
    symlink("/bin/sh", &kubelet).unwrap();
    symlink("/bin/sh", &rook).unwrap();
    let volume = format!("{UID}{NUMBER}/volumes/kubernetes.io~empty-dir/data");
    let script = format!(
        "while [ ! -e {go} ]; do sleep 0.1; done; {} -c 'sleep 300; true' rook unmount {}; touch {}; exec sleep 600",
        rook.display(),
        place.join("var/lib/kubelet/pods").join(volume).display(),
        place.join("came-back").display(),
        go = place.join("go").display(),
    );
    let log = kubelet.with_extension("log");
    let stderr = fs::File::create(&log).unwrap();
    let node = Node::running(NUMBER, directory, &["-c", &script], stderr);
    fs::create_dir_all(node.volume()).unwrap();
    let is_mounted =
        Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(node.volume()).status();
    assert!(is_mounted.unwrap().success());
    let pod = format!("pod=\"shop/{}\" podUID=\"{}\"", node.name(), node.uid);
    let killing = format!("\"Killing container with a grace period\" {pod} gracePeriod=30");
    let deleted = format!("\"SyncLoop DELETE\" source=\"api\" pods=[\"shop/{}\"]", node.name());
    fs::write(&log, klog(3, 'I', &deleted) + &klog(2, 'I', &killing)).unwrap();
    fs::write(place.join("go"), "").unwrap();
    std::thread::sleep(std::time::Duration::from_secs(62));
    let answer = ask(&node);
    let (cause, command) = first(&answer);
    assert_eq!(cause, "volume-command-hung", "{answer:#}");
    let held = answer["causes"][0]["held_by"].as_str().unwrap();
    assert!(held.starts_with("rook (pid ") && held.contains("sleep (pid "), "{held}");
    run(command);
    comes(&place.join("came-back"));
}

#[test]
fn a_plugin_of_another_pod_is_not_the_cause() {
    requires!(root_and_btf());
    let node = stuck(58, &NO_ANSWER.replace("UID", "7d9f0b52"));
    let calico = node.directory.path().join("calico");
    symlink("/bin/sh", &calico).unwrap();
    let script = format!("{} -c 'sleep 600; true'; true", calico.display());
    let of_other =
        [("CNI_COMMAND", "DEL"), ("CNI_ARGS", "K8S_POD_UID=another"), ("CNI_CONTAINERID", "0")];
    let _runtime = Runtime::new(&node, &script, &of_other);
    std::thread::sleep(std::time::Duration::from_secs(35));
    fails_again(&node, &NO_ANSWER.replace("UID", "7d9f0b52"));
    let answer = ask(&node);
    assert_ne!(answer["causes"][0]["id"], "runtime-command-hung", "{answer:#}");
}
