//! How a run ends, or does not, when what is around it fails: its terminal, another run, a map.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[cfg(target_arch = "x86_64")]
#[path = "common/failing.rs"]
mod failing;

#[path = "common/on_terminal.rs"]
mod on_terminal;

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use podstuck_testing::hear_terminal;
use podstuck_tests::{
    Disk, EXPORTED, EXT4, holder_of, names_in, podstuck, requires, root_and_btf, run, slowdown,
    started_by, wait_until_gone, watch,
};

/// Bytes of a command line that are read.
const WORDS_MAX: u64 = 64 << 10;

fn is_complete(dir: &Path) -> bool {
    EXPORTED.iter().all(|name| dir.join(name).is_file())
}

fn root() -> Result<(), &'static str> {
    if nix::unistd::geteuid().is_root() { Ok(()) } else { Err("not root") }
}

/// Until something is so.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
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
        // Programs that attack the tool may run meanwhile: the command line of one of them never ends.
        let mut words = Vec::new();
        let file = fs::File::open(format!("/proc/{pid}/cmdline"));
        let _ = file.and_then(|file| file.take(WORDS_MAX).read_to_end(&mut words));
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        words.first().is_some_and(|word| word.ends_with(b"podstuck")) && words.contains(&named)
    })
}

#[test]
fn a_closed_terminal_ends_a_run_in_order() {
    requires!(root_and_btf());
    requires!(on_terminal::script());
    hear_terminal();
    // As text, and as a screen.
    // Not "watching" alone: a slow start prints "not watching yet".
    for (output, shows) in [("text", ", watching "), ("tui", "Findings")] {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path();
        let options = format!("-v watch --output {output} --export {}", to.display());
        let mut terminal = on_terminal::shown(&options, shows);
        let pid = watch_of(to).unwrap();
        assert!(!to.join("metrics.prom").exists());
        // As sshd when the connection is lost: no process has the other end of the terminal any more.
        terminal.kill().unwrap();
        terminal.wait().unwrap();
        wait_until("the watch ends", || !Path::new(&format!("/proc/{pid}")).exists());
        let there = || fs::read_dir(to).unwrap().collect::<Vec<_>>();
        assert!(is_complete(to), "{output}: {:?}", there());
    }
}

#[test]
fn hangups_end_a_run_in_order_however_many_come_without_a_reader() {
    requires!(root_and_btf());
    hear_terminal();
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
    // A node is rarely without any finding, and other tests' calls may hang.
    let status = watch.wait().unwrap().code();
    assert!(matches!(status, Some(0 | 1 | 5)), "{status:?}");
    assert!(is_complete(dir.path()));
}

#[test]
fn a_run_that_ignores_hangups_goes_on() {
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
    // A lock that outlived its owner would have to be removed by hand.
    first.signal(Signal::SIGKILL);
    first.finish();
    let (status, text) = refused();
    assert!(matches!(status, Some(0 | 1 | 5)), "{text}");
    assert!(is_complete(dir.path()));
    assert_eq!(names_in(dir.path()), EXPORTED);
}

/// A run without probes and with a long duration.
fn looking() -> Command {
    let mut run = Command::new(podstuck());
    run.args(["diagnose", "--no-trace", "--api", "never", "--path", "/sys/kernel"]);
    run.args(["--timeout", "120s", "--output", "json"]);
    run
}

fn interrupt(child: &std::process::Child) {
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(pid, Signal::SIGINT).unwrap();
}

#[test]
fn a_frozen_disk_below_export_and_recording_keeps_no_run_from_ending() {
    requires!(root());
    let point = tempfile::tempdir().unwrap();
    let disk = Disk::mount(point.path(), 16 << 20, EXT4, "");
    let (export, recording) = (disk.join("export"), disk.join("recording"));
    let mut run = looking();
    run.arg("--export").arg(&export).arg("--record").arg(&recording);
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(run.stdout.take().unwrap());
    printed.read_line(&mut String::new()).unwrap();
    let writers: Vec<(u32, String)> = started_by(run.id());
    let frozen = disk.freeze();
    interrupt(&run);
    wait_until("the run ends", || run.try_wait().unwrap().is_some());
    // It says who still writes, and that process does.
    let rest = std::io::read_to_string(printed).unwrap();
    let summary: serde_json::Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    let degraded = summary["completeness"]["degraded"].to_string();
    let (exporter, _) = writers.iter().find(|(_, name)| name == "exporter\n").unwrap();
    assert!(degraded.contains(&format!("process {exporter} of podstuck")), "{summary:#}");
    let lives = |pid: u32| Path::new(&format!("/proc/{pid}")).exists();
    assert!(lives(*exporter));
    let printed = std::io::read_to_string(run.stderr.take().unwrap()).unwrap();
    assert!(printed.contains("the recording") && printed.contains("the disk"), "{printed}");
    drop(frozen);
    wait_until("all has ended", || !writers.iter().any(|(pid, _)| lives(*pid)));
    // What it was given before is there.
    assert!(recording.metadata().unwrap().len() > 0 && export.join("histograms.hlog").is_file());
}

#[test]
fn no_reader_keeps_a_run_from_ending() {
    requires!(root());
    let dir = tempfile::tempdir().unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let flags = nix::fcntl::OFlag::O_NONBLOCK;
    nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETFL(flags)).unwrap();
    while std::io::Write::write(&mut writer, &[b'x'; 4096]).is_ok() {}
    let none = nix::fcntl::OFlag::empty();
    nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETFL(none)).unwrap();
    let mut run = looking();
    run.arg("--export").arg(dir.path()).stderr(writer.try_clone().unwrap()).stdout(writer);
    let mut child = run.spawn().unwrap();
    // The pipe that it writes to is its alone.
    drop(run);
    wait_until("it looks", || {
        let tasks =
            fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten().flatten();
        let names = tasks.map(|task| fs::read_to_string(task.path().join("comm")));
        names.flatten().any(|name| name == "sampler\n")
    });
    interrupt(&child);
    wait_until("the run ends", || child.try_wait().unwrap().is_some());
    assert!(is_complete(dir.path()));
    drop(reader);
}

#[test]
fn the_program_stays_in_memory() {
    requires!(root());
    let mut run = looking().stdout(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(run.stdout.take().unwrap());
    printed.read_line(&mut String::new()).unwrap();
    let maps = fs::read_to_string(format!("/proc/{}/smaps", run.id())).unwrap();
    interrupt(&run);
    let _ = run.wait().unwrap();
    let (mut is_own, mut size, mut there) = (false, 0, 0);
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "Size:" if is_own => size += words[1].parse::<u64>().unwrap(),
            "Rss:" if is_own => there += words[1].parse::<u64>().unwrap(),
            "VmFlags:" if is_own => assert!(words.contains(&"lo"), "{maps}"),
            word if word.ends_with(':') => {}
            _ => is_own = line.ends_with("/podstuck"),
        }
    }
    assert!(size > 0 && there == size, "{there} of {size} KiB: {maps}");
}

/// No process waits for that, and however it ends.
#[test]
fn the_probes_go_when_the_tool_has_ended() {
    requires!(root_and_btf());
    for end in [Signal::SIGINT, Signal::SIGKILL] {
        let watching = watch(&[]);
        let holder = holder_of(watching.pid()).unwrap();
        let held = hooks_of(holder);
        // Two for each of these calls, and the one for processes that execute `umount`.
        assert!(held > 2 * 4, "{held} hooks");
        assert_eq!(held, hooks_of(watching.pid()));
        let pid = nix::unistd::Pid::from_raw(watching.pid().cast_signed());
        nix::sys::signal::kill(pid, end).unwrap();
        watching.finish();
        wait_until_gone(holder);
    }
}

/// How many hooks of probes a process has a descriptor of.
fn hooks_of(pid: u32) -> usize {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let targets = links.filter_map(|link| fs::read_link(link.path()).ok());
    let targets = targets.filter_map(|target| target.to_str().map(ToOwned::to_owned));
    targets.filter(|it| it.contains("bpf_link") || it.contains("perf_event")).count()
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_map_that_cannot_be_read_costs_that_drain_and_is_reported() {
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
