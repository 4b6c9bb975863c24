//! What looking costs on a large node.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "common/holding.rs"]
mod holding;

use std::{fs, time::Instant};

use holding::{Memory, Process, holders, of_process};
use nix::{
    sys::{
        resource::{UsageWho, getrusage},
        signal::{Signal, kill},
        time::TimeVal,
    },
    unistd::Pid,
};
use podstuck::state::sample::mounts::MountPoller;

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
        "mkdir -p {path}/m; i=0; while [ $i -lt {more} ]; do mount --bind /usr {path}/m; \
         i=$((i+1)); done; i=1; while [ $i -lt {PROCESSES} ]; do \
         (exec 3</dev/null 4</etc/hostname 5</dev/zero 6</etc/passwd 7</usr 8</proc 9</sys; \
         exec sleep 1000 >/dev/null) & i=$((i+1)); done"
    );
    let node: Vec<Tree> =
        (0..NAMESPACES).map(|_| Tree(Process::unshared("private", &script))).collect();
    let sleeper = Process::sleep_in(memory.path());
    let before = cpu(UsageWho::RUSAGE_CHILDREN);
    let begun = Instant::now();
    let (lines, _) = holders(&[path]);
    let (taken, took) = (cpu(UsageWho::RUSAGE_CHILDREN) - before, begun.elapsed());
    let search = lines.last().unwrap();
    eprintln!("snapshot of holders: {taken:.3} s of CPU in {took:.3?}: {search}");
    let mut poller = MountPoller::default();
    for sample in ["first", "second", "third"] {
        let before = cpu(UsageWho::RUSAGE_SELF);
        let mounts = poller.sample().count();
        let taken = cpu(UsageWho::RUSAGE_SELF) - before;
        eprintln!("{sample} sample of {mounts} mounts: {taken:.4} s of CPU");
    }
    assert!(of_process(&lines, sleeper.pid()).iter().any(|h| h["explains_ebusy"] == true));
    assert!(
        search["namespaces"].as_u64() >= Some(200) && search["mounts"].as_u64() >= Some(10_000)
    );
    assert!(search["processes"].as_u64() >= Some(2_000), "{search}");
    drop(node);
    assert!(taken < LIMIT * f64::from(podstuck_tests::slowdown()), "{taken} s");
}

/// A process and all that it started.
struct Tree(Process);

impl Drop for Tree {
    fn drop(&mut self) {
        let pid = self.0.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        for child in children.unwrap_or_default().split_whitespace() {
            let _ = kill(Pid::from_raw(child.parse().unwrap()), Signal::SIGKILL);
        }
    }
}

/// Seconds of CPU of this process, or of all children that have ended, and theirs.
fn cpu(who: UsageWho) -> f64 {
    let usage = getrusage(who).unwrap();
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let (user, system) = (seconds(usage.user_time()), seconds(usage.system_time()));
    eprintln!("  so far: {user:.4} s user, {system:.4} s system");
    user + system
}
