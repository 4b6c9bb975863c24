//! Tests of what real processes wait for.

use std::{
    io::Write,
    net::{TcpListener, TcpStream},
    os::fd::OwnedFd,
    os::unix::net::{UnixListener, UnixStream},
    process::{Child, Command, Stdio},
};

use super::*;

fn of(pid: u32) -> Vec<On> {
    Node::look().on(pid, Part::Task)
}

/// On which sockets this process waits, all of them.
fn own_sockets() -> Vec<On> {
    let (node, pid, place) = (Node::look(), std::process::id(), Path::new("/proc/self"));
    let own = sockets::sockets_of(place);
    let all = node.connections_of(place, PathBuf::new());
    let connections = node.connections(pid, &own, &own, &all);
    [node.sockets(pid, &own, &own), connections].concat()
}

/// Until it waits for something, or for long.
fn waits(pid: u32, is_it: impl Fn(&On) -> bool) -> On {
    for _ in 0..100 {
        if let Some(on) = of(pid).into_iter().find(|on| is_it(on)) {
            return on;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{:?}", of(pid));
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_parent_waits_for_its_child_and_a_lock_for_who_has_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    file.as_file().lock().unwrap();
    let script = format!("flock {path} true; true");
    let mut parent = Command::new("sh").args(["-c", &script]).spawn().unwrap();
    let on = waits(parent.id(), |on| matches!(on, On::Child { is_waited_for: true, .. }));
    let child = on.other().unwrap();
    let own = std::process::id();
    let lock = waits(child, |on| matches!(on, On::Lock { .. }));
    assert_eq!(lock, On::Lock { file: Some(path.into()), holder: Some(own) });
    let all = Node::look().follow(&BTreeSet::from([parent.id()]), &[], &[], &HashSet::new());
    let parts: Vec<(u32, Part)> = all.iter().map(|it| (it.pid, it.part)).collect();
    let expected = [(parent.id(), Part::Shim), (child, Part::Task), (own, Part::Other)];
    // What other tests of this process wait for comes behind.
    assert_eq!(parts[..3], expected);
    file.as_file().unlock().unwrap();
    assert!(parent.wait().unwrap().success());
}

/// sysbox-runc, which containerd's shim starts by runc's arguments.
#[test]
fn a_program_with_an_oci_runtimes_arguments_is_a_shims_command() {
    let line = |text: &str| text.replace(' ', "\0").into_bytes();
    let of = |comm: &[u8], text: &str| (is_oci_runtime(&line(text)), command(comm, &line(text)));
    let delete =
        "/usr/bin/sysbox-runc --root /run/containerd/runc/k8s.io --log-format json delete 0a";
    assert_eq!(of(b"sysbox-runc", delete), (true, "sysbox-runc delete".to_owned()));
    let nvidia = "/usr/bin/nvidia-container-runtime --root=/run/runc kill 0a KILL";
    assert_eq!(of(b"nvidia-containe", nvidia), (true, "nvidia-container-runtime kill".to_owned()));
    assert!(!of(b"logger", "/usr/bin/logger --log-dir /var/log").0);
    assert!(!of(b"sh", "/bin/sh -c delete").0);
}

/// A second containerd, whose database the first one has locked: it polls.
#[test]
fn a_daemon_waits_for_who_has_locked_its_database() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta.db");
    let file = std::fs::File::create(&path).unwrap();
    let open = || {
        let own = std::fs::File::open(&path).unwrap();
        Command::new("sleep").arg("60").stdin(own).spawn().unwrap()
    };
    let (second, daemon) = (open(), |pid| Node::look().on(pid, Part::Daemon));
    let is_lock = |on: &On| matches!(on, On::Lock { .. });
    assert!(!daemon(second.id()).iter().any(is_lock), "no process has it");
    file.lock().unwrap();
    let lock = On::Lock { file: Some(path.clone()), holder: Some(std::process::id()) };
    assert!(daemon(second.id()).contains(&lock), "{:?}", daemon(second.id()));
    end(second);
}

#[test]
fn what_was_sent_and_not_read_names_the_other_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    // A child has the other end, and does not read it.
    let server = |stream: UnixStream| {
        let stdin = OwnedFd::from(stream);
        Command::new("sleep").arg("60").stdin(stdin).spawn().unwrap()
    };
    let own = || {
        let all = own_sockets();
        let is_it = |on: &&On| matches!(on, On::Socket { path: Some(at), .. } if *at == path);
        all.iter().find(is_it).cloned()
    };
    let pending =
        |on: &Option<On>| matches!(on, Some(On::Socket { request: Request::Pending, .. }));
    let on = own();
    assert!(on.is_none() || pending(&on), "{on:?}: this process has both ends");
    let child = server(listener.accept().unwrap().0);
    stream.write_all(b"stop the machine").unwrap();
    let Some(On::Socket { peer, request, unread, .. }) = own() else { panic!("{:?}", own()) };
    assert_eq!((peer, request, unread), (Some(child.id()), Request::Unread, 16));
    end(child);
}

#[test]
fn a_connection_that_is_not_accepted_names_who_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(remote).unwrap();
    let server = |socket: OwnedFd| Command::new("sleep").arg("60").stdin(socket).spawn().unwrap();
    let on = || {
        let is_it = |on: &On| matches!(on, On::Connection { remote: at, .. } if *at == remote);
        own_sockets().into_iter().find(is_it)
    };
    let request = |of: u32| match on() {
        Some(On::Connection { peer, request, unread, .. }) if peer == Some(of) => (request, unread),
        other => panic!("{other:?}"),
    };
    let taken = listener.try_clone().unwrap();
    let listens = server(listener.into());
    assert_eq!(request(listens.id()), (Request::Pending, 0));
    let (taken, _) = taken.accept().unwrap();
    let serves = server(taken.into());
    assert_eq!(request(serves.id()), (Request::Read, 0));
    client.write_all(b"GET /").unwrap();
    assert_eq!(request(serves.id()), (Request::Unread, 5));
    end(listens);
    end(serves);
}

#[test]
fn a_pipe_is_kept_open_by_who_has_its_other_end() {
    let (read, write) = std::io::pipe().unwrap();
    let keeps = Command::new("sleep").arg("60").stdout(write).spawn().unwrap();
    let reader = Command::new("cat").stdin(read).stdout(Stdio::null()).spawn().unwrap();
    let on = waits(reader.id(), |on| matches!(on, On::Pipe { .. }));
    let On::Pipe { reads: true, others, .. } = on else { panic!("{on:?}") };
    assert_eq!(others, [keeps.id()]);
    end(keeps);
    end(reader);
}

#[test]
fn a_helper_of_umount_is_a_task() {
    assert!(
        ["umount", "umount.nfs4", "mount.lustre", "runc"].iter().all(|it| is_task(it.as_bytes()))
    );
    assert!(["umountd", "nginx", "mountinfo"].iter().all(|it| !is_task(it.as_bytes())));
}

#[test]
fn a_runtimes_program_is_reported_with_its_verb() {
    let shown =
        |comm: &str, line: &str| command(comm.as_bytes(), line.replace(' ', "\0").as_bytes());
    let line = "/usr/bin/runc --root /run/runc --log-format json delete --force abc";
    assert_eq!(shown("runc", line), "runc delete");
    assert_eq!(shown("umount", "umount /a/b"), "umount");
    assert_eq!(shown("dbus-daemon", "/usr/bin/dbus-daemon --system run"), "dbus-daemon");
    assert_eq!(
        shown("containerd-shim", "/x/containerd-shim-runc-v2 -id a"),
        "containerd-shim-runc-v2"
    );
    assert_eq!(shown("virtiofsd", "/usr/bin/python3 /x/run"), "virtiofsd");
    assert_eq!(shown("sh", ""), "sh");
}

/// A container's first process is often a shell that waits for what it has started.
#[test]
fn a_process_of_a_container_is_followed_to_its_child_and_to_the_peer_that_this_reads_from() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let script =
        "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\ns.recv(1)";
    let mut shell = Command::new("sh");
    shell.args(["-c", "python3 -c \"$0\" \"$1\"; true", script]).arg(&path);
    let mut shell = shell.spawn().unwrap();
    let (stream, _) = listener.accept().unwrap();
    let server = Command::new("sleep").arg("60").stdin(OwnedFd::from(stream)).spawn().unwrap();
    let all = || Node::look().follow(&BTreeSet::new(), &[], &[shell.id()], &HashSet::new());
    let reads = |it: &Waiting| {
        let is_it = |on: &On| matches!(on, On::Socket { request: Request::Read, .. });
        it.part == Part::Container && it.on.iter().any(is_it)
    };
    let found = std::iter::repeat_with(all).take(200).find(|all| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        all.iter().any(reads)
    });
    let found = found.unwrap_or_else(|| panic!("{:?}", all()));
    let [first, child, ..] = &found[..] else { panic!("{found:?}") };
    assert_eq!(first.on, [On::Child { pid: child.pid, is_waited_for: true }]);
    assert_eq!(child.on.iter().find_map(On::other), Some(server.id()));
    end(server);
    drop(listener);
    shell.wait().unwrap();
}
