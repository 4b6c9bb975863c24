//! Whose words count: a user of the node who calls his process kubelet, an administrator's kubelet, and two kubelets of
//! which one has a server that answers.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use podstuck_testing::{
    api_server::{ApiServer, TOKEN},
    roots_directory, skip,
};
use podstuck_tests::{Ending, diagnose, requires, root_and_btf, run};
use serde_json::{Value, json};

use crate::{
    answer,
    node::{NODE, Node, UID, flag},
    start,
};

/// A user who has logged in.
const USER: u32 = 4242;
const SU: &str = "/usr/bin/su";

/// What a set-user-ID program needs.
fn su() -> Result<(), &'static str> {
    let is_there = fs::metadata(SU).is_ok_and(|file| file.permissions().mode() & 0o4000 != 0);
    if is_there { Ok(()) } else { Err("no set-user-ID su") }
}

/// `su`, by another name, which asks the user for root's password and so runs as root until he gives one.
struct Su(Ending);

impl Su {
    fn start(home: &Path, words: &[&str]) -> Self {
        symlink(SU, home.join("kubelet")).unwrap();
        let user = USER.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
        command.arg(home.join("kubelet")).args(["--", "root"]).args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let this = Self(Ending::start(&mut command));
        let end = Instant::now() + Duration::from_secs(60);
        while !this.is_root_by_now() {
            assert!(Instant::now() < end, "it does not become root");
            thread::sleep(Duration::from_millis(10));
        }
        this
    }

    fn is_root_by_now(&self) -> bool {
        let process = format!("/proc/{}", self.0.id());
        let is_kubelet = fs::read(format!("{process}/comm")).unwrap() == b"kubelet\n";
        let status = fs::read_to_string(format!("{process}/status")).unwrap();
        is_kubelet && status.contains(&format!("Uid:\t{USER}\t0\t0\t0"))
    }
}

pub(crate) fn orphans(lines: &[Value]) -> usize {
    lines.iter().filter(|line| line.to_string().contains("orphaned-pod-dir")).count()
}

/// A server that has another pod of this node, and nothing of the one that is here.
pub(crate) fn server_without(node: &Node) -> ApiServer {
    let mut other = node.record(&json!({}));
    other["metadata"]["uid"] = (UID.to_owned() + "88").into();
    other["metadata"]["name"] = "another".into();
    node.server(&[other])
}

/// The user names a file that only root may read as the token for a server of his own, which does not have the pod.
#[test]
fn a_set_user_id_program_called_kubelet_is_none() {
    requires!(root_and_btf(), su());
    let node = Node::new(20);
    fs::create_dir_all(node.pod().join("volumes/kubernetes.io~empty-dir/data")).unwrap();
    let server = server_without(&node);
    let (home, secrets) = (roots_directory().unwrap(), roots_directory().unwrap());
    fs::set_permissions(home.path(), PermissionsExt::from_mode(0o755)).unwrap();
    chown(home.path(), Some(USER), Some(USER)).unwrap();
    let secret = secrets.path().join("secret");
    fs::write(&secret, TOKEN).unwrap();
    fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    let kubeconfig = server.kubeconfig_of(&format!("{{tokenFile: {}}}", secret.display()));
    chown(&kubeconfig, Some(USER), None).unwrap();
    let words = [
        flag("kubeconfig", &kubeconfig),
        flag("root-dir", &node.root()),
        format!("--hostname-override={NODE}"),
    ];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let su = Su::start(home.path(), &words);
    let root = node.root();
    let root = root.to_str().unwrap();
    let asked = ["--pod-uid", &node.uid, "--kubelet-root", root, "--timeout", "10s"];
    let (lines, _) = diagnose(&asked).finish();
    assert_eq!(server.requests(), [""; 0], "his server was asked, with the secret");
    assert_eq!(orphans(&lines), 0, "{lines:#?}");
    // Nor are the directories that he names looked at.
    let doctor = run(&["doctor", "--output", "json"]);
    let doctor = String::from_utf8_lossy(&doctor.stdout);
    assert!(!doctor.contains(root), "{doctor}");
    let named = format!("kubelet (pid {})", su.0.id());
    let not_believed = |line: &&str| line.contains("not believed") && line.contains(&named);
    assert!(doctor.lines().any(|line| not_believed(&line)), "{doctor}");
}

/// A control group that is one of a session by its name.
struct Session(PathBuf);

impl Session {
    fn new() -> Self {
        let trees = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup"].map(Path::new);
        let tree = trees.into_iter().find(|tree| tree.join("cgroup.procs").exists()).unwrap();
        let top = tree.join(format!("podstuck-test-{}", std::process::id()));
        fs::create_dir_all(top.join("user-1000.slice")).unwrap();
        Self(top)
    }

    fn group(&self) -> PathBuf {
        self.0.join("user-1000.slice")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.group());
        let _ = fs::remove_dir(&self.0);
    }
}

/// As of the demo under `sudo`, from a clone that user 1000 owns: each of the three makes it the administrator's.
#[test]
fn an_administrators_kubelet_is_looked_at_and_lends_no_credentials() {
    requires!(root_and_btf());
    let session = Session::new();
    let leave = format!("echo 0 > {}/cgroup.procs", session.group().display());
    for (number, before) in
        [(21, "echo 1000 > /proc/self/loginuid"), (22, leave.as_str()), (23, "chown 1000 \"$1\"")]
    {
        let mut node = Node::new(number);
        fs::create_dir_all(node.pod().join("volumes/kubernetes.io~empty-dir/data")).unwrap();
        let server = server_without(&node);
        let program = node.directory.path().join("kubelet");
        fs::copy(fs::canonicalize("/bin/sh").unwrap(), &program).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{before} || exit; exec \"$@\""), "sh"]).arg(&program);
        node.kubelet_by(command, &[&flag("kubeconfig", &server.kubeconfig())]);
        if number == 21 && !is_logged_in(&node) {
            skip("in part: the kernel keeps no login user");
            continue;
        }
        // No option says where its root is.
        let (lines, _) = diagnose(&["--pod-uid", &node.uid, "--timeout", "5s"]).finish();
        let api = start(&lines)["api"].to_string();
        assert!(api.contains("is not a service of the node"), "{before}: {api}");
        assert_eq!(server.requests(), [""; 0], "{before}");
        assert_eq!(orphans(&lines), 0, "{lines:#?}");
        let searched = start(&lines)["roots_searched"].to_string();
        assert!(searched.contains(node.root().to_str().unwrap()), "{searched}");
        let file = server.kubeconfig();
        let named = ["--pod-uid", &node.uid, "--timeout", "60s", "--api", file.to_str().unwrap()];
        let (lines, _) = diagnose(&named).finish();
        assert!(!server.requests().is_empty(), "{before}");
        assert_eq!(answer(&lines)["causes"][0]["id"], "orphaned-pod-dir", "{before}");
    }
}

fn is_logged_in(node: &Node) -> bool {
    let file = format!("/proc/{}/loginuid", node.kubelets[0].id());
    fs::read_to_string(file).is_ok_and(|user| user == "1000")
}

/// The server of one kubelet answers, and does not have what is in the root of the other, whose server does not.
#[test]
fn what_one_server_does_not_have_may_be_anothers() {
    requires!(root_and_btf());
    let (mut answers, mut silent) = (Node::new(24), Node::new(25));
    for node in [&answers, &silent] {
        fs::create_dir_all(node.pod().join("volumes/kubernetes.io~empty-dir/data")).unwrap();
    }
    let server = server_without(&answers);
    answers.kubelet(&[&flag("kubeconfig", &server.kubeconfig())]);
    silent.kubelet(&[&flag("kubeconfig", &server.kubeconfig_for("127.0.0.1:1"))]);
    let asked = |uid: &str, timeout| diagnose(&["--pod-uid", uid, "--timeout", timeout]).finish().0;
    let lines = asked(&silent.uid, "5s");
    assert!(!server.requests().is_empty(), "{:#}", start(&lines));
    assert_eq!(orphans(&lines), 0, "{lines:#?}");
    let lines = asked(&answers.uid, "60s");
    assert_eq!(answer(&lines)["causes"][0]["id"], "orphaned-pod-dir", "{lines:#?}");
}

/// A kubelet of an administrator, whose program is a user's.
fn other_kubelet(root: &Path) -> Ending {
    let program = root.join("kubelet");
    fs::copy(fs::canonicalize("/bin/sh").unwrap(), &program).unwrap();
    chown(&program, Some(1000), None).unwrap();
    let mut command = Command::new(&program);
    command.args(["-c", "read wait", "kubelet", &flag("root-dir", root)]);
    Ending::start(command.stdin(Stdio::piped()).stderr(Stdio::null()))
}

/// An administrator's kubelet has an empty directory of the pod, in a root that sorts before the service's.
#[test]
fn what_a_service_has_goes_before_what_an_administrator_has() {
    requires!(root_and_btf());
    let mut node = Node::new(26);
    let server = server_without(&node);
    fs::create_dir_all(node.pod().join("volumes/kubernetes.io~empty-dir/data")).unwrap();
    node.kubelet(&[&flag("kubeconfig", &server.kubeconfig())]);
    let other = tempfile::Builder::new().prefix("aaa").tempdir_in("/run").unwrap();
    let shadow = other.path().join("pods").join(&node.uid);
    fs::create_dir_all(&shadow).unwrap();
    let _other = other_kubelet(other.path());
    let (lines, _) = diagnose(&["--pod-uid", &node.uid, "--timeout", "60s"]).finish();
    let cause = &answer(&lines)["causes"][0];
    assert_eq!((&cause["id"], &cause["certainty"]), (&"orphaned-pod-dir".into(), &"firm".into()));
    let all = lines.iter().map(Value::to_string).collect::<String>();
    assert!(all.contains("has directories in several roots"), "{lines:#?}");
}

/// An administrator's root has more directories than any kubelet has pods.
#[test]
fn a_root_with_very_many_directories_blinds_no_other() {
    requires!(root_and_btf());
    let mut node = Node::new(27);
    let server = server_without(&node);
    fs::create_dir_all(node.pod().join("volumes/kubernetes.io~empty-dir/data")).unwrap();
    node.kubelet(&[&flag("kubeconfig", &server.kubeconfig())]);
    let other = tempfile::Builder::new().prefix("aaa").tempdir_in("/run").unwrap();
    for pod in 0..50_000 {
        let pod = format!("pods/0f0e0d0c-1111-2222-3333-{pod:012}/volumes");
        fs::create_dir_all(other.path().join(pod)).unwrap();
    }
    let _other = other_kubelet(other.path());
    let (lines, _) = diagnose(&["--pod-uid", &node.uid, "--timeout", "60s"]).finish();
    let cause = &answer(&lines)["causes"][0];
    assert_eq!((&cause["id"], &cause["certainty"]), (&"orphaned-pod-dir".into(), &"firm".into()));
    let all = lines.iter().map(Value::to_string).collect::<String>();
    assert!(all.contains("more than 8192 directories of pods"), "{lines:#?}");
}
