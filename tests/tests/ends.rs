//! How a run ends, or does not, when what is around it fails: its terminal, another run, a map.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use podstuck_testing::hear_hangups;
use podstuck_tests::{podstuck, requires, root_and_btf, run, slowdown, watch};

const FILES: [&str; 4] = ["findings.jsonl", "histograms.csv", "histograms.hlog", "metrics.prom"];

fn is_complete(dir: &Path) -> bool {
    FILES.iter().all(|name| dir.join(name).is_file())
}

fn script() -> Result<(), &'static str> {
    let there = Command::new("script").arg("--version").stdout(Stdio::null()).status();
    there.map(drop).map_err(|_| "no script(1)")
}

/// Until something is so.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30) * slowdown();
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The watch with that export directory.
fn watch_of(dir: &Path) -> Option<u32> {
    let named = dir.as_os_str().as_encoded_bytes();
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        words.first().is_some_and(|word| word.ends_with(b"podstuck")) && words.contains(&named)
    })
}

#[test]
fn a_closed_terminal_ends_a_run_in_order() {
    requires!(root_and_btf());
    requires!(script());
    hear_hangups();
    let dir = tempfile::tempdir().unwrap();
    let watch = format!("exec {} -v watch --export {}", podstuck().display(), dir.path().display());
    let mut terminal = Command::new("script")
        .args(["--quiet", "--command", &watch, "/dev/null"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let shown = BufReader::new(terminal.stdout.take().unwrap());
    assert!(shown.lines().map_while(Result::ok).any(|line| line.contains("watching")));
    let pid = watch_of(dir.path()).unwrap();
    assert!(!dir.path().join("metrics.prom").exists());
    // As sshd when the connection is lost: nobody has the other end of the terminal any more.
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    wait_until("the watch ends", || !Path::new(&format!("/proc/{pid}")).exists());
    assert!(is_complete(dir.path()), "{:?}", fs::read_dir(dir.path()).unwrap().collect::<Vec<_>>());
}

#[test]
fn hangups_end_a_run_in_order_however_many_come_and_nobody_reads() {
    requires!(root_and_btf());
    hear_hangups();
    let dir = tempfile::tempdir().unwrap();
    let mut watch = Command::new(podstuck());
    watch.args(["-v", "watch", "--output", "json", "--export"]).arg(dir.path());
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(watch.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("start"), "{first}");
    drop(watch.stderr.take());
    let pid = nix::unistd::Pid::from_raw(watch.id().cast_signed());
    for signal in [Signal::SIGHUP, Signal::SIGHUP, Signal::SIGTERM, Signal::SIGHUP] {
        // It may have ended.
        let _ = nix::sys::signal::kill(pid, signal);
        thread::sleep(Duration::from_millis(5));
    }
    // A node is rarely without any finding.
    let status = watch.wait().unwrap().code();
    assert!(matches!(status, Some(0 | 1)), "{status:?}");
    assert!(is_complete(dir.path()));
}

#[test]
fn a_run_that_was_told_to_ignore_hangups_goes_on() {
    requires!(root_and_btf());
    let mut watch = Command::new("nohup");
    watch.arg(podstuck()).args(["watch", "--output", "json"]);
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut printed = BufReader::new(watch.stdout.take().unwrap());
    printed.read_line(&mut String::new()).unwrap();
    let pid = nix::unistd::Pid::from_raw(watch.id().cast_signed());
    nix::sys::signal::kill(pid, Signal::SIGHUP).unwrap();
    thread::sleep(Duration::from_secs(2));
    assert!(watch.try_wait().unwrap().is_none(), "it has ended");
    nix::sys::signal::kill(pid, Signal::SIGINT).unwrap();
    watch.wait().unwrap();
}

#[test]
fn a_second_run_into_an_export_directory_is_refused_until_the_first_has_ended() {
    requires!(root_and_btf());
    let dir = tempfile::tempdir().unwrap();
    let export = dir.path().to_str().unwrap();
    let first = watch(&["--export", export]);
    let refused = || {
        let second = run(&["watch", "--duration", "1s", "--export", export]);
        (second.status.code(), String::from_utf8(second.stderr).unwrap())
    };
    let (status, text) = refused();
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("another run") && text.contains(export), "{text}");
    // A lock that outlived its owner would need somebody to remove it.
    first.signal(Signal::SIGKILL);
    first.finish();
    let (status, text) = refused();
    assert!(matches!(status, Some(0 | 1)), "{text}");
    assert!(is_complete(dir.path()));
    let mut names: Vec<String> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, FILES);
}

/// Makes `bpf(2)` of the thread that reads the tables fail, as a kernel without memory does.
#[cfg(target_arch = "x86_64")]
mod failing {
    use std::fs;

    use nix::{
        libc,
        sys::{
            ptrace::{self, Options},
            wait::{WaitPidFlag, WaitStatus, waitpid},
        },
        unistd::Pid,
    };

    pub(super) const UPDATE: u64 = 2;
    pub(super) const DELETE: u64 = 3;

    /// Its next call of each of these commands, one after the other.
    pub(super) fn fail(pid: u32, commands: &[u64]) {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let tables = tasks.filter(|task| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm == "tables\n")
        });
        let tids: Vec<i32> =
            tables.map(|task| task.file_name().to_str().unwrap().parse().unwrap()).collect();
        let [tid] = tids[..] else { panic!("{tids:?}") };
        let tid = Pid::from_raw(tid);
        ptrace::seize(tid, Options::PTRACE_O_TRACESYSGOOD).unwrap();
        ptrace::interrupt(tid).unwrap();
        stopped(tid);
        for command in commands {
            loop {
                ptrace::syscall(tid, None).unwrap();
                stopped(tid);
                let mut registers = ptrace::getregs(tid).unwrap();
                let is_entry = registers.rax.cast_signed() == -i64::from(libc::ENOSYS);
                if is_entry
                    && registers.orig_rax.cast_signed() == libc::SYS_bpf
                    && registers.rdi == *command
                {
                    registers.orig_rax = u64::MAX;
                    ptrace::setregs(tid, registers).unwrap();
                    ptrace::syscall(tid, None).unwrap();
                    stopped(tid);
                    let mut registers = ptrace::getregs(tid).unwrap();
                    registers.rax = (-i64::from(libc::ENOMEM)).cast_unsigned();
                    ptrace::setregs(tid, registers).unwrap();
                    break;
                }
            }
        }
        ptrace::detach(tid, None).unwrap();
    }

    fn stopped(tid: Pid) {
        let status = waitpid(tid, Some(WaitPidFlag::__WALL)).unwrap();
        assert!(
            matches!(status, WaitStatus::PtraceSyscall(_) | WaitStatus::PtraceEvent(..)),
            "{status:?}"
        );
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_map_that_cannot_be_read_costs_that_drain_and_is_told() {
    use podstuck_tests::{assert_counted, call, empty_dir, summary};

    requires!(root_and_btf());
    let top = tempfile::tempdir().unwrap();
    let volume = empty_dir(top.path());
    let watching = watch(&["--path", top.path().to_str().unwrap()]);
    let pid = watching.pid();
    let failing = thread::spawn(move || failing::fail(pid, &[failing::DELETE, failing::UPDATE]));
    let mut tallies = Vec::new();
    while !failing.is_finished() {
        let file = volume.join("file");
        fs::write(&file, "").unwrap();
        tallies.push(call(&["unlink".as_ref(), file.as_os_str()]));
        thread::sleep(Duration::from_millis(100));
    }
    failing.join().unwrap();
    tallies.push(call(&["unlink".as_ref(), volume.join("none").as_os_str()]));
    let (lines, status) = watching.stop();
    // Late, and neither lost nor counted twice.
    assert_counted(summary(&lines), &tallies.iter().collect::<Vec<_>>());
    assert_eq!(summary(&lines)["completeness"]["drains_failed"], 2, "{:#}", summary(&lines));
    assert!(matches!(status.code(), Some(0 | 1)), "{status}");
}
