//! `podstuck holders` against holders that this test makes itself.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    fs::{self, File},
    os::linux::fs::MetadataExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};
use podstuck_tests::{lab, of_type, root_and_btf, run};
use serde_json::Value;
use tempfile::TempDir;

/// A file system in memory, in a mount namespace of this test's thread and its children: another
/// test that copies the node's mounts does not become a holder.
struct Memory {
    directory: TempDir,
}

impl Memory {
    fn mount() -> Self {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
        let directory =
            tempfile::Builder::new().prefix("podstuck-test-").tempdir_in("/tmp").unwrap();
        let this = Self { directory };
        let options = Some("size=1m");
        mount(Some("tmpfs"), this.path(), Some("tmpfs"), MsFlags::empty(), options).unwrap();
        // As on most nodes, so that it may have copies that receive its unmount.
        mount(None::<&str>, this.path(), None::<&str>, MsFlags::MS_SHARED, None::<&str>).unwrap();
        this
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn device(&self) -> String {
        let device = fs::metadata(self.path()).unwrap().st_dev();
        format!("{}:{}", nix::sys::stat::major(device), nix::sys::stat::minor(device))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = umount2(self.path(), MntFlags::MNT_DETACH);
    }
}

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn sleep_in(directory: &Path) -> Self {
        Self::start(Command::new("sleep").arg("1000").current_dir(directory))
    }

    /// A shell in a mount namespace of its own that runs `script` and then sleeps.
    fn unshared(propagation: &str, script: &str) -> Self {
        let script = format!("{script}; echo; exec sleep 1000");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", propagation, "sh", "-c", &script]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        // Its line says that the script is over.
        let mut line = [0; 1];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        Self(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn holders(args: &[&str]) -> (Vec<Value>, Option<i32>) {
    let output = run(&[&["holders", "--output", "json"], args].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (lines, output.status.code())
}

fn of_process(lines: &[Value], pid: u32) -> Vec<Value> {
    of_type(lines, "holder").into_iter().filter(|h| h["pid"] == pid).cloned().collect()
}

#[test]
fn who_is_in_it_or_has_it_open_is_found_and_nobody_else() {
    if !root_and_btf() {
        return;
    }
    let memory = Memory::mount();
    let path = memory.path().to_str().unwrap();
    let (lines, status) = holders(&[path]);
    assert_eq!((of_type(&lines, "holder").len(), status), (0, Some(0)), "{lines:#?}");

    let sleeper = Process::sleep_in(memory.path());
    let _open = File::create(memory.path().join("f")).unwrap();
    let (lines, status) = holders(&[path]);
    assert_eq!(status, Some(1));
    let [found] = of_process(&lines, sleeper.pid()).try_into().unwrap();
    assert_eq!((&found["how"], &found["through"]), (&"cwd".into(), &"itself".into()), "{found:#}");
    assert_eq!((&found["explains_ebusy"], &found["exact"]), (&true.into(), &true.into()));
    let [found] = of_process(&lines, std::process::id()).try_into().unwrap();
    assert_eq!(found["how"], "fd", "{found:#}");
    assert!(found["object"]["path"].as_str().unwrap().ends_with("/f"));
    assert_eq!(lines.last().unwrap()["holders"], 2, "{lines:#?}");
    // The kernel agrees.
    assert_eq!(umount2(memory.path(), MntFlags::empty()), Err(nix::errno::Errno::EBUSY));

    // The file alone: who works in the directory does not hold it.
    let (lines, status) = holders(&[&format!("{path}/f")]);
    assert_eq!((of_type(&lines, "holder").len(), status), (1, Some(1)), "{lines:#?}");
}

#[test]
fn what_was_unmounted_lazily_is_found_by_its_device() {
    if !root_and_btf() {
        return;
    }
    let memory = Memory::mount();
    let device = memory.device();
    let sleeper = Process::sleep_in(memory.path());
    let open = File::create(memory.path().join("f")).unwrap();
    umount2(memory.path(), MntFlags::MNT_DETACH).unwrap();
    let (lines, status) = holders(&["--device", &device]);
    assert_eq!(status, Some(1));
    for (pid, how) in [(sleeper.pid(), "cwd"), (std::process::id(), "fd")] {
        let [found] = of_process(&lines, pid).try_into().unwrap();
        assert_eq!((&found["how"], &found["through"]), (&how.into(), &"detached".into()));
    }
    drop((open, sleeper));
    let (lines, status) = holders(&["--device", &device]);
    assert_eq!((of_type(&lines, "holder").len(), status), (0, Some(0)), "{lines:#?}");
}

#[test]
fn a_slave_copy_explains_the_failure_and_a_private_one_does_not() {
    if !root_and_btf() {
        return;
    }
    // A tree of its own: what is mounted in it reaches its slaves, and nobody else.
    let memory = Memory::mount();
    let volume = memory.path().join("volume");
    fs::create_dir(&volume).unwrap();
    let path = volume.to_str().unwrap();
    mount(Some("tmpfs"), &volume, Some("tmpfs"), MsFlags::empty(), Some("size=1m")).unwrap();

    let private = Process::unshared("private", &format!("cd {path}"));
    let (lines, _) = holders(&[path]);
    let of_private = of_process(&lines, private.pid());
    assert!(of_private.iter().any(|h| h["how"] == "cwd"), "{lines:#?}");
    assert!(of_private.iter().all(|h| h["explains_ebusy"] == false), "{of_private:#?}");

    let slave = Process::unshared("slave", &format!("cd {path}"));
    let (lines, _) = holders(&[path]);
    let found = of_process(&lines, slave.pid());
    let cwd = found.iter().find(|h| h["how"] == "cwd").unwrap();
    assert_eq!(cwd["through"], "propagated-copy", "{cwd:#}");
    assert_eq!(cwd["explains_ebusy"], true, "{cwd:#}");
    assert_eq!(umount2(&volume, MntFlags::empty()), Err(nix::errno::Errno::EBUSY));

    // A slave copy with a mount of its own is left behind.
    drop(slave);
    let nested = Process::unshared(
        "slave",
        &format!("mkdir {path}/n; mount -t tmpfs n {path}/n; cd {path}"),
    );
    let (lines, _) = holders(&[path]);
    let found = of_process(&lines, nested.pid());
    assert!(found.iter().all(|h| h["explains_ebusy"] == false), "{found:#?}");
    // The kernel agrees.
    umount2(&volume, MntFlags::empty()).unwrap();
}

#[test]
fn a_namespace_without_a_process_is_looked_at() {
    if !root_and_btf() {
        return;
    }
    let memory = Memory::mount();
    let private = MsFlags::MS_PRIVATE;
    mount(None::<&str>, memory.path(), None::<&str>, private, None::<&str>).unwrap();
    let device = memory.device();
    let process = Process::unshared("private", "true");
    let link = format!("/proc/{}/ns/mnt", process.pid());
    let namespace: u64 = fs::metadata(&link).unwrap().st_ino();
    let pin = File::open(&link).unwrap();
    drop(process);
    let (lines, status) = holders(&["--device", &device]);
    assert_eq!(status, Some(1), "{lines:#?}");
    let there = |line: &&Value| line["mount"]["namespace"] == namespace;
    let found = of_type(&lines, "holder");
    let found = found.iter().find(|line| there(line)).unwrap();
    assert_eq!(found["how"], "mount", "{found:#}");
    drop(pin);
    let (lines, _) = holders(&["--device", &device]);
    assert!(!of_type(&lines, "holder").iter().any(there), "{lines:#?}");
}

#[test]
fn the_lab_s_process_is_found_from_another_namespace() {
    if !root_and_btf() {
        return;
    }
    let (running, ready) = lab("volume-held-by-host-process", &["--duration", "10s"]);
    let path = ready["path"].as_str().unwrap();
    let (lines, status) = holders(&[path]);
    assert_eq!(status, Some(1), "{lines:#?}");
    let found = of_type(&lines, "holder");
    let found = found.iter().find(|h| h["how"] == "cwd").unwrap();
    assert_eq!((&found["comm"], &found["explains_ebusy"]), (&"sleep".into(), &true.into()));
    running.resume();
}

#[test]
fn what_does_not_exist_is_a_usage_error() {
    let output = run(&["holders", "/nonexistent/\u{1b}[2J"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("/nonexistent/") && !text.contains('\u{1b}'), "{text:?}");
    for args in
        [&["holders"][..], &["holders", "--device", "x"], &["holders", "/", "--device", "8:1"]]
    {
        assert_eq!(run(args).status.code(), Some(2), "{args:?}");
    }
}

/// The node: 2,000 processes, 200 mount namespaces, 10,000 mounts.
#[test]
#[ignore = "a measurement: says how much CPU a snapshot takes on a large node"]
fn a_large_node_costs_little() {
    const NAMESPACES: usize = 200;
    const PROCESSES: usize = 10;
    const LIMIT: f64 = 0.5;
    let memory = Memory::mount();
    let path = memory.path().to_str().unwrap();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let more = 10_000_usize.div_ceil(NAMESPACES).saturating_sub(table.lines().count());
    // Each namespace has a container's worth of mounts and processes with descriptors.
    let script = format!(
        "mkdir -p {path}/m; i=0; while [ $i -lt {more} ]; do mount --bind {path} {path}/m; \
         i=$((i+1)); done; i=1; while [ $i -lt {PROCESSES} ]; do \
         (exec 3</dev/null 4</etc/hostname 5</dev/zero 6</etc/passwd 7</usr 8</proc 9</sys; \
         exec sleep 1000 >/dev/null) & i=$((i+1)); done"
    );
    let node: Vec<Tree> =
        (0..NAMESPACES).map(|_| Tree(Process::unshared("private", &script))).collect();
    let sleeper = Process::sleep_in(memory.path());
    let before = children_cpu();
    let (lines, _) = holders(&[path]);
    let cpu = children_cpu() - before;
    let search = lines.last().unwrap();
    eprintln!("{cpu:.3} s of CPU: {search}");
    assert!(of_process(&lines, sleeper.pid()).iter().any(|h| h["explains_ebusy"] == true));
    assert!(
        search["namespaces"].as_u64() >= Some(200) && search["mounts"].as_u64() >= Some(10_000)
    );
    assert!(search["processes"].as_u64() >= Some(2_000), "{search}");
    drop(node);
    assert!(cpu < LIMIT * f64::from(podstuck_tests::slowdown()), "{cpu} s");
}

/// A process and all that it started.
struct Tree(Process);

impl Drop for Tree {
    fn drop(&mut self) {
        let pid = self.0.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        for child in children.unwrap_or_default().split_whitespace() {
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(child.parse().unwrap()),
                nix::sys::signal::Signal::SIGKILL,
            );
        }
    }
}

/// Seconds of CPU of all children that have ended, and theirs.
fn children_cpu() -> f64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN);
    let usage = usage.unwrap();
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}
