//! How far a kubelet is believed, by what each distribution really does: the program, its words, its parent, its control
//! group, its root directory and the process ids that it sees.

use std::{
    fs,
    io::Write,
    os::unix::fs::{chown, symlink},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use podstuck_testing::{api_server::ApiServer, service, skip};
use podstuck_tests::{
    Ending, Running, diagnose, has_loop_devices, podstuck, requires, root_and_btf,
};
use serde_json::Value;

use crate::{
    answer,
    node::{NODE, Node},
    start,
    trust::{orphans, server_without},
};

const SERVICE: &str = "a service of the node";
const ADMINISTRATORS: &str = "started by an administrator";
/// A user who has logged in.
const USER: u32 = 4242;
const ID: &str = "c0ffee0000000000000000000000000000000000000000000000000000000000";

/// Where it runs.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Host,
    /// Its program is in a squashfs, as a snap's.
    Squashfs,
    /// A root directory, mounts and process ids of its own.
    Container,
    /// A session of a user who has logged in, by a program of theirs.
    Session,
}

/// A kubelet. In the words, `$ROOT` is where its pods are, `$CONF` its kubeconfig, and `$DATA` where its files are.
struct Row {
    name: &'static str,
    place: Place,
    comm: &'static str,
    words: &'static str,
    group: &'static str,
    /// What starts it, and its words.
    parent: Option<(&'static str, &'static str)>,
    /// A file of its own, and what is in it.
    file: Option<(&'static str, &'static str)>,
    believed: &'static str,
    why: &'static str,
}

const FLAGS: &str = "--root-dir=$ROOT --kubeconfig=$CONF --hostname-override=$NODE";
const BY_ROOT: &str = "started by root, outside login sessions";

const SYSTEMD: Row = Row {
    name: "systemd",
    place: Place::Host,
    comm: "kubelet",
    words: FLAGS,
    group: "system.slice/podstuck-kubelet.service",
    parent: None,
    file: None,
    believed: SERVICE,
    why: BY_ROOT,
};

const TABLE: [Row; 8] = [
    SYSTEMD,
    Row { name: "a version in its name", comm: "kubelet-v1.30.2", ..SYSTEMD },
    Row {
        name: "k3s",
        comm: "k3s-server",
        words: "server --config=$DATA/config.yaml",
        group: "system.slice/podstuck-k3s.service",
        file: Some((
            "config.yaml",
            "data-dir: $DATA\nnode-name: $NODE\nkubelet-arg:\n- root-dir=$ROOT\n- kubeconfig=$CONF\n",
        )),
        ..SYSTEMD
    },
    Row {
        name: "the child of RKE2",
        group: "system.slice/podstuck-rke2.service",
        parent: Some(("rke2", "server --config=$DATA/config.yaml")),
        file: Some(("config.yaml", "data-dir: $DATA\nkubelet-arg: root-dir=$ROOT\n")),
        ..SYSTEMD
    },
    Row {
        name: "the child of k0s",
        group: "system.slice/podstuck-k0s.service",
        parent: Some(("k0s", "worker --kubelet-root-dir=$ROOT")),
        ..SYSTEMD
    },
    Row {
        name: "kubelite of a snap",
        place: Place::Squashfs,
        comm: "kubelite",
        words: "--kubelet-args-file=$DATA/args/kubelet",
        group: "system.slice/snap.podstuck.daemon-kubelite.service",
        file: Some((
            "args/kubelet",
            "--root-dir=$ROOT\n--kubeconfig=$CONF\n--hostname-override=$NODE\n",
        )),
        ..SYSTEMD
    },
    Row {
        name: "a node of kind, alone",
        place: Place::Container,
        group: KIND,
        why: "the only one, with its own root directory",
        ..SYSTEMD
    },
    Row {
        name: "a demo under sudo, from a user's clone",
        place: Place::Session,
        group: "podstuck-test/user.slice/user-1000.slice/session-3.scope",
        believed: ADMINISTRATORS,
        why: "it runs in a login session",
        ..SYSTEMD
    },
];

/// Beside the host's own kubelet.
const NSPAWN: Row = Row {
    name: "nspawn, beside the host's own",
    place: Place::Container,
    group: "machine.slice/systemd-nspawn@podstuck.service/payload/system.slice/kubelet.service",
    believed: ADMINISTRATORS,
    why: "its root directory is not the node's",
    ..SYSTEMD
};

const KIND: &str = "podstuck-docker/$ID/kubelet.slice/kubelet.service";

/// A control group, as deep as it is in the hierarchy that systemd has its units in.
struct Group {
    made: Vec<PathBuf>,
    path: PathBuf,
}

impl Group {
    fn new(path: &str) -> Self {
        let trees = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup"].map(Path::new);
        let tree = trees.into_iter().find(|tree| tree.join("cgroup.procs").exists()).unwrap();
        let (mut at, mut made) = (tree.to_owned(), Vec::new());
        for name in path.replace("$ID", ID).split('/') {
            at.push(name);
            if fs::create_dir(&at).is_ok() {
                made.push(at.clone());
            }
        }
        Self { made, path: at }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for group in self.made.iter().rev() {
            // A process in it may not be gone yet.
            let gone = |_: &u32| fs::remove_dir(group).is_ok();
            let wait = |_: &u32| thread::sleep(Duration::from_millis(10));
            let _ = (0..200).inspect(wait).find(gone);
        }
    }
}

/// A kubelet of the table, with a pod in its root, and a server that does not have it.
struct Played {
    node: Node,
    _group: Group,
    mounted: Option<PathBuf>,
    server: ApiServer,
    pid: u32,
}

/// A root directory, in which the programs of the host are to be seen and what it needs of `/run`; then the rest of the
/// words is executed as the first process there.
const CONTAINER: &str = r#"root=$1 seen=$2 host=$3; shift 3
    mount -t tmpfs -o mode=755 container "$root" && cd "$root" || exit
    mkdir -p usr etc proc sys dev old ".$seen" ".$host"
    for link in bin lib lib64 sbin; do ln -s usr/$link $link; done
    for place in /usr /sys /dev "$seen" "$host"; do mount --rbind "$place" ".$place" || exit; done
    mount -t proc proc proc && pivot_root . old && umount -l old && cd / && exec "$@""#;

impl Played {
    fn start(row: &Row, number: u8) -> Self {
        let mut node = Node::new(number);
        fs::create_dir_all(node.pod().join("volumes/kubernetes.io~empty-dir/data")).unwrap();
        let server = server_without(&node);
        let data = node.directory.path().join("files");
        let fill = |text: &str| {
            let words =
                [("$ROOT", node.root()), ("$CONF", server.kubeconfig()), ("$DATA", data.clone())];
            let filled = words.iter().fold(text.to_owned(), |text, (name, path)| {
                text.replace(name, path.to_str().unwrap())
            });
            filled.replace("$NODE", NODE)
        };
        if let Some((name, text)) = row.file {
            let file = data.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, fill(text)).unwrap();
        }
        let group = Group::new(row.group);
        let mounted =
            (row.place == Place::Squashfs).then(|| squashfs(node.directory.path(), row.comm));
        let folder = mounted.clone().unwrap_or_else(|| node.directory.path().to_owned());
        let program = folder.join(row.comm);
        match row.place {
            Place::Host | Place::Container => symlink("/bin/sh", &program).unwrap(),
            Place::Squashfs => {}
            Place::Session => {
                fs::copy("/bin/sh", &program).unwrap();
                chown(&program, Some(1000), Some(1000)).unwrap();
            }
        }
        let words = fill(row.words);
        let words = words.split(' ');
        let mut command = service("sh");
        let mut script = format!("echo 0 > {}/cgroup.procs; ", group.path.display());
        if row.place == Place::Session {
            // Some kernels keep no login user.
            script += "(echo 1000 > /proc/self/loginuid) 2>/dev/null; ";
            script += "echo 1000 2>/dev/null > /proc/self/loginuid; ";
        }
        command.args(["-c", &(script + "exec \"$@\""), "sh"]);
        if row.place == Place::Container {
            let root = node.directory.path().join("container");
            fs::create_dir(&root).unwrap();
            let apart = ["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", CONTAINER, "sh"];
            command.arg("unshare").args(apart).arg(root).arg("/run");
            command.arg(podstuck().parent().unwrap());
        }
        if let Some((comm, its_words)) = row.parent {
            let parent = node.directory.path().join(comm);
            symlink("/bin/sh", &parent).unwrap();
            let its_words = fill(its_words);
            command.arg(parent).args(["-s", "--"]).args(its_words.split(' '));
        } else {
            // A shell takes no words of its own behind these, and reads commands, which do not come.
            command.arg(&program).args(["-s", "--"]).args(words.clone());
        }
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        if row.parent.is_some() {
            let words: Vec<&str> = words.collect();
            let line =
                format!("exec 3<&0; {} -s -- {} <&3 &\n", program.display(), words.join(" "));
            child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        }
        node.kubelets.push(child);
        let pid = pid_of(row.comm, node.directory.path());
        Self { node, _group: group, mounted, server, pid }
    }

    /// What `doctor` says of it.
    fn assert_believed(&self, row: &Row, doctor: &str) {
        let lines = doctor.lines().filter(|line| line.contains(&format!("(pid {})", self.pid)));
        let lines: Vec<&str> = lines.collect();
        let says = |line: &&&str| line.contains(row.believed) && line.contains(row.why);
        assert_eq!(lines.iter().filter(says).count(), 1, "{}: {lines:?}\n{doctor}", row.name);
    }

    fn ask(&self, row: &Row) -> Running {
        let timeout = if row.believed == SERVICE { "60s" } else { "3s" };
        diagnose(&["--pod-uid", &self.node.uid, "--timeout", timeout])
    }

    /// Its pod is found, and what the answer says of it rests on its server only if its credentials may be used.
    fn assert_diagnosed(&self, row: &Row) {
        let (lines, _) = self.ask(row).finish();
        self.assert_reported(row.name, row.believed == SERVICE, &lines);
    }

    fn assert_reported(&self, name: &str, is_service: bool, lines: &[Value]) {
        let searched = start(lines)["roots_searched"].to_string();
        assert!(searched.contains(self.node.root().to_str().unwrap()), "{name}: {searched}");
        let target = start(lines)["target"].to_string();
        assert!(target.contains(&self.node.uid), "{name}: {target}");
        assert_eq!(!self.server.requests().is_empty(), is_service, "{name}: {lines:#?}");
        if is_service {
            let cause = &answer(lines)["causes"][0];
            let cause = (&cause["id"], &cause["certainty"]);
            assert_eq!(cause, (&"orphaned-pod-dir".into(), &"firm".into()), "{name}: {lines:#?}");
        } else {
            assert_eq!(orphans(lines), 0, "{name}: {lines:#?}");
        }
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        for mut child in self.node.kubelets.drain(..) {
            // A process that it started reads the same pipe to its end.
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        if let Some(point) = &self.mounted {
            let _ = Command::new("umount").arg("--lazy").arg(point).status();
        }
    }
}

/// The id, for this tool, of a process with that name and with a path of ours among its words.
fn pid_of(comm: &str, ours: &Path) -> u32 {
    let end = Instant::now() + Duration::from_secs(60);
    let ours = ours.to_str().unwrap();
    loop {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let found = all.filter_map(|entry| {
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            let words = fs::read(entry.path().join("cmdline")).ok()?;
            let is_it = name.trim() == comm && String::from_utf8_lossy(&words).contains(ours);
            is_it.then(|| entry.file_name().to_str()?.parse().ok())?
        });
        if let Some(pid) = found.last() {
            return pid;
        }
        assert!(Instant::now() < end, "no {comm}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// An image with a shell of that name, mounted.
fn squashfs(folder: &Path, comm: &str) -> PathBuf {
    let (files, image, point) =
        (folder.join("snap"), folder.join("snap.img"), folder.join("squashfs"));
    fs::create_dir(&files).unwrap();
    fs::create_dir(&point).unwrap();
    fs::copy("/bin/sh", files.join(comm)).unwrap();
    let mut make = Command::new("mksquashfs");
    let made = make.arg(&files).arg(&image).args(["-quiet", "-no-progress"]).status();
    assert!(made.unwrap().success());
    let mut mount = Command::new("mount");
    let status = mount.args(["-o", "loop,ro", "-t", "squashfs"]).arg(image).arg(&point).status();
    assert!(status.unwrap().success());
    point
}

fn why_no_squashfs() -> Option<&'static str> {
    if has_loop_devices().is_err() {
        return Some("no loop devices");
    }
    if !fs::read_to_string("/proc/filesystems").unwrap().contains("squashfs") {
        return Some("a kernel without squashfs");
    }
    let has = Command::new("mksquashfs").arg("-version").output().is_ok();
    (!has).then_some("no mksquashfs")
}

/// Processes of a user who has logged in that are called as a kubelet is, one of them root of a user namespace: in the
/// root that he names are directories of the same pods, and his server has none of them.
struct LookAlikes {
    all: Vec<Ending>,
    pids: Vec<u32>,
    home: tempfile::TempDir,
    server: ApiServer,
}

impl LookAlikes {
    fn start(node: &Node) -> Self {
        let home = tempfile::Builder::new().prefix("aaa").tempdir_in("/run").unwrap();
        let server = server_without(node);
        let mut this = Self { all: Vec::new(), pids: Vec::new(), home, server };
        let own = this.home.path();
        for folder in [own.to_owned(), own.join("user"), own.join("ns")] {
            fs::create_dir_all(&folder).unwrap();
            chown(folder, Some(USER), Some(USER)).unwrap();
        }
        let words = FLAGS
            .replace("$ROOT", own.to_str().unwrap())
            .replace("$CONF", this.server.kubeconfig().to_str().unwrap())
            .replace("$NODE", NODE);
        for (place, before) in [("user", ""), ("ns", "unshare --user --map-root-user ")] {
            let program = own.join(place).join("kubelet");
            symlink("/bin/sh", &program).unwrap();
            let user = USER.to_string();
            let mut command = Command::new("setpriv");
            command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "sh", "-c"]);
            command.arg(format!("exec {before}{} -s -- {words}", program.display()));
            this.all.push(Ending::start(command.stdin(Stdio::piped()).stderr(Stdio::null())));
        }
        for child in &this.all {
            let end = Instant::now() + Duration::from_secs(10);
            let comm = format!("/proc/{}/comm", child.id());
            while fs::read_to_string(&comm).is_ok_and(|name| name != "kubelet\n") {
                assert!(Instant::now() < end, "it does not become a kubelet");
                thread::sleep(Duration::from_millis(10));
            }
            this.pids.push(child.id());
        }
        this
    }

    fn has(&self, uid: &str) {
        fs::create_dir_all(self.home.path().join("pods").join(uid)).unwrap();
    }

    fn assert_not_believed(&self, doctor: &str) {
        for pid in &self.pids {
            // Where there may be no user namespaces, the second has ended.
            if !Path::new(&format!("/proc/{pid}/comm")).exists() {
                continue;
            }
            let named = format!("kubelet (pid {pid})");
            let says = |line: &&str| line.contains("not believed") && line.contains(&named);
            assert_eq!(doctor.lines().filter(says).count(), 1, "{doctor}");
        }
        assert!(!doctor.contains(self.home.path().to_str().unwrap()), "{doctor}");
        assert_eq!(self.server.requests(), [""; 0], "his server was asked");
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What `doctor` says, a line each.
fn doctor() -> String {
    text(&Command::new(podstuck()).args(["doctor", "--output", "json"]).output().unwrap())
}

#[test]
fn each_kubelet_is_believed_as_far_as_what_started_it_proves() {
    requires!(root_and_btf());
    // What runs in a container, or in a login session, is judged by what else runs: each of those is alone.
    let (together, alone): (Vec<_>, Vec<_>) =
        (30..).zip(&TABLE).partition(|(_, row)| matches!(row.place, Place::Host | Place::Squashfs));
    believed_at_once(&together);
    alone.into_iter().for_each(|row| believed_at_once(&[row]));
}

fn believed_at_once(rows: &[(u8, &Row)]) {
    let mut all = Vec::new();
    for (number, row) in rows {
        if let (Place::Squashfs, Some(why)) = (row.place, why_no_squashfs()) {
            skip(format!("{}: {why}", row.name));
            continue;
        }
        all.push((Played::start(row, *number), *row));
    }
    let look_alikes = LookAlikes::start(&all[0].0.node);
    all.iter().for_each(|(played, _)| look_alikes.has(&played.node.uid));
    let asked: Vec<Running> = all.iter().map(|(played, row)| played.ask(row)).collect();
    let answers: Vec<_> = asked.into_iter().map(|asked| asked.finish().0).collect();
    let doctor = doctor();
    for ((played, row), lines) in all.iter().zip(&answers) {
        played.assert_reported(row.name, row.believed == SERVICE, lines);
        played.assert_believed(row, &doctor);
    }
    look_alikes.assert_not_believed(&doctor);
}

/// Of a kubelet in a root directory of its own, the host's own kubelet and another one in a container decide.
#[test]
fn a_kubelet_in_a_container_yields_to_the_hosts_own_alone() {
    requires!(root_and_btf());
    let contained = Played::start(&NSPAWN, 50);
    let another = Played::start(&Row { group: KIND, ..NSPAWN }, 51);
    let said = doctor();
    contained.assert_believed(&NSPAWN, &said);
    another.assert_believed(&NSPAWN, &said);
    drop(another);
    let hosts = Played::start(&SYSTEMD, 52);
    hosts.assert_diagnosed(&SYSTEMD);
    contained.assert_diagnosed(&NSPAWN);
    let said = doctor();
    contained.assert_believed(&NSPAWN, &said);
    hosts.assert_believed(&SYSTEMD, &said);
    // From within, where there is no other, and it is the first process.
    let mut within = Command::new("nsenter");
    within.args(["--target", &contained.pid.to_string(), "--mount", "--pid"]).arg(podstuck());
    let said = text(&within.args(["doctor", "--output", "json"]).output().unwrap());
    let kubelets: Vec<&str> = said.lines().filter(|line| line.contains(r#""believed""#)).collect();
    assert_eq!(kubelets.len(), 1, "{said}");
    let expected = format!("kubelet (pid 1) is {SERVICE}: {BY_ROOT}");
    assert!(kubelets[0].contains(&expected), "{said}");
}

/// A root directory with the host's below `/host`, in which the rest of the words is executed.
const DEBUG_POD: &str = r#"root=$1 seen=$2; shift 2
    mount -t tmpfs -o mode=755 pod "$root" && cd "$root" || exit
    mkdir -p usr proc sys dev host ".$seen"
    for link in bin lib lib64 sbin; do ln -s usr/$link $link; done
    mount --rbind / host && mount --rbind /usr usr && mount --rbind /sys sys && mount --rbind /dev dev &&
        mount --rbind "$seen" ".$seen" && mount -t proc proc proc && exec chroot . "$@""#;

#[test]
fn a_pod_for_debugging_sees_the_hosts_kubelet_as_the_host_does() {
    requires!(root_and_btf());
    let hosts = Played::start(&SYSTEMD, 53);
    let look_alikes = LookAlikes::start(&hosts.node);
    look_alikes.has(&hosts.node.uid);
    let group = Group::new("kubepods/pod7e4a4700-0000-4000-8000-0000000debb9/$ID");
    let pod = tempfile::tempdir_in("/run").unwrap();
    let run = |words: &[&str]| {
        let enter = format!("echo 0 > {}/cgroup.procs; {DEBUG_POD}", group.path.display());
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &enter, "sh"]).arg(pod.path());
        command.arg(podstuck().parent().unwrap()).arg(podstuck());
        text(&command.args(words).args(["--host-root", "/host"]).output().unwrap())
    };
    let said = run(&["doctor", "--output", "json"]);
    hosts.assert_believed(&SYSTEMD, &said);
    look_alikes.assert_not_believed(&said);
    let uid = hosts.node.uid.as_str();
    let asked =
        ["diagnose", "--no-trace", "--output", "json", "--timeout", "60s", "--pod-uid", uid];
    let answer = run(&asked);
    let lines: Vec<Value> =
        answer.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    hosts.assert_reported("a pod for debugging", true, &lines);
}
