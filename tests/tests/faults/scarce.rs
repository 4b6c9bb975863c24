//! Too little of what every process needs: memory, descriptors, a CPU.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use nix::sched::{CpuSet, sched_setaffinity};
use podstuck_tests::{
    Ending, Running, assert_counted, call, empty_dir, lab, lab_if_possible, of_type, requires,
    root_and_btf, settle, slowdown, summary, watch,
};
use rustix::process::{Pid, Resource, Rlimit, prlimit, setpriority_process};
use serde_json::Value;

use crate::{meter::Meter, stuck_pod::StuckPod};

/// A control group that limits the memory of all that is started while the test is in it.
struct Memory {
    group: PathBuf,
    before: PathBuf,
}

impl Memory {
    const LIMIT: u64 = 64 << 20;

    fn make() -> Result<Self, &'static str> {
        let root = Path::new("/sys/fs/cgroup");
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let of = |controller: &str| {
            let lines = own.lines().filter_map(|line| {
                let mut fields = line.splitn(3, ':');
                Some((fields.nth(1)?, fields.next()?))
            });
            lines.into_iter().find(|(names, _)| names.split(',').any(|name| name == controller))
        };
        let (tree, own, limit) = match of("memory").or(of("")) {
            Some(("", own)) => (root.to_owned(), own, "memory.max"),
            Some((_, own)) => (root.join("memory"), own, "memory.limit_in_bytes"),
            None => return Err("no control group limits memory here"),
        };
        let before = tree.join(own.trim_start_matches('/'));
        let group = tree.join(format!("podstuck-test-{}", std::process::id()));
        fs::create_dir(&group).map_err(|_| "no control group can be made here")?;
        let this = Self { group, before };
        fs::write(this.group.join(limit), Self::LIMIT.to_string())
            .map_err(|_| "no control group limits memory here")?;
        Ok(this)
    }

    /// What is started in it stays there.
    fn within<T>(&self, start: impl FnOnce() -> T) -> T {
        self.enter(&self.group);
        let started = start();
        self.enter(&self.before);
        started
    }

    fn enter(&self, group: &Path) {
        // Before it had its own, it may have been where it cannot go back to by this path.
        let own = format!("{}\n", std::process::id());
        let root = self.group.parent().unwrap();
        fs::write(group.join("cgroup.procs"), &own)
            .or_else(|_| fs::write(root.join("cgroup.procs"), &own))
            .unwrap();
    }

    /// How many processes the kernel has killed for it.
    fn killed(&self) -> u64 {
        let text = ["memory.events", "memory.oom_control"]
            .map(|file| fs::read_to_string(self.group.join(file)).unwrap_or_default())
            .concat();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.unwrap().trim().parse().unwrap()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.group);
    }
}

/// The probes' tables, the helpers and the whole start count, too.
#[test]
fn sixty_four_mebibytes_are_enough() {
    requires!(root_and_btf());
    let memory = match Memory::make() {
        Ok(memory) => memory,
        Err(reason) => return podstuck_tests::skip(reason),
    };
    let pod = StuckPod::build();
    let top = tempfile::tempdir().unwrap();
    let volume = empty_dir(top.path());
    let roots = ["--kubelet-root", pod.root(), "--kubelet-root", top.path().to_str().unwrap()];
    let mut watch = memory.within(|| watch(&roots));
    let meter = Meter::start(watch.pid());
    pod.start();
    let found = pod.cause_is_found(&mut watch);
    let storm = call(&["storm".as_ref(), volume.as_os_str(), "20000".as_ref()]);
    settle();
    let tally = pod.end();
    settle();
    let (lines, status) = watch.stop();
    println!("measured: {:?} MiB at most, for {}", meter.peaks(), found["id"]);
    assert_eq!(status.code(), Some(1));
    // The lab that clears up is seen, too.
    let counted = &summary(&lines)["by_outcome"];
    for (call, outcomes) in
        [&storm, &tally].into_iter().flat_map(|counts| counts.as_object().unwrap())
    {
        for (outcome, count) in outcomes.as_object().unwrap() {
            let seen = &counted[call][outcome];
            assert!(seen.as_u64() >= count.as_u64(), "{call} {outcome}: {seen} of {count}");
        }
    }
    assert_eq!(memory.killed(), 0);
}

/// How many it may have open now.
fn limit_files(watch: &Running, limit: u64) {
    let pid = Pid::from_raw(watch.pid().cast_signed());
    let limit = Rlimit { current: Some(limit), maximum: Some(20_000) };
    prlimit(pid, Resource::Nofile, limit).unwrap();
}

/// Some attempts long.
const LACKING: Duration = Duration::from_secs(4);

/// No file can be opened, and no helper be started, for a while: what was reported stays, and nothing is lost.
#[test]
fn what_was_reported_outlives_a_lack_of_descriptors() {
    requires!(root_and_btf());
    let pod = StuckPod::build();
    let mut watch = watch(&["--kubelet-root", pod.root(), "--pod-uid", pod.uid()]);
    pod.start();
    let found = pod.cause_is_found(&mut watch);
    limit_files(&watch, 1);
    thread::sleep(LACKING);
    limit_files(&watch, 1024);
    let later = watch.wait_for("an update", |line| {
        pod.is_found(line) && line["count"].as_u64() > found["count"].as_u64()
    });
    assert_eq!((&later["id"], &later["state"]), (&found["id"], &"update".into()), "{later:#}");
    let tally = pod.end();
    settle();
    let (lines, status) = watch.stop();
    assert_eq!(status.code(), Some(1));
    assert_counted(summary(&lines), &[&tally]);
}

/// The first read of kubelet, or of its stand-in, can open nothing: it is repeated.
#[test]
fn who_was_seen_first_without_descriptors_is_known_later() {
    requires!(root_and_btf());
    let pod = StuckPod::build();
    let mut watch = watch(&["--kubelet-root", pod.root(), "--pod-uid", pod.uid()]);
    limit_files(&watch, 1);
    pod.start();
    thread::sleep(LACKING);
    limit_files(&watch, 1024);
    watch.wait_for("kubelet's call", |line| {
        pod.is_found(line) && line["actor"]["component"] == "kubelet"
    });
    pod.end();
    let (_, status) = watch.stop();
    assert_eq!(status.code(), Some(1));
}

/// Nothing of its thread can be read for a while: that is no reason to say that it is over.
#[test]
fn a_call_that_hangs_is_not_over_for_want_of_descriptors() {
    requires!(root_and_btf());
    let Some((lab, ready)) = lab_if_possible("filesystem-frozen", &[]) else {
        return podstuck_tests::skip("no disk can be frozen here");
    };
    let of_pod = |key: &str| ready[key].as_str().unwrap().to_owned();
    let (root, uid) = (of_pod("kubelet_root"), of_pod("pod_uid"));
    let options = ["--kubelet-root", &root, "--pod-uid", &uid, "--hung-after", "500ms"];
    let mut watch = watch(&options);
    lab.resume();
    let hangs = |line: &Value| line["type"] == "finding" && line["id"] == "filesystem-frozen";
    watch.wait_for("finding", hangs);
    limit_files(&watch, 1);
    thread::sleep(LACKING);
    limit_files(&watch, 1024);
    settle();
    let (lines, status) = watch.stop();
    lab.stop();
    assert_eq!(status.code(), Some(1));
    let states: Vec<&Value> =
        lines.iter().filter(|line| hangs(line)).map(|line| &line["state"]).collect();
    assert_eq!(states.iter().filter(|state| **state != "update").count(), 1, "{states:?}");
}

/// They do not come back: it ends all the same.
#[test]
fn without_descriptors_it_ends_when_asked_to() {
    requires!(root_and_btf());
    let pod = StuckPod::build();
    let mut watch = watch(&["--kubelet-root", pod.root(), "--pod-uid", pod.uid()]);
    pod.start();
    pod.cause_is_found(&mut watch);
    limit_files(&watch, 1);
    let tally = pod.end();
    settle();
    let (lines, status) = watch.stop();
    assert_eq!(status.code(), Some(1));
    assert_counted(summary(&lines), &[&tally]);
}

/// Some processes that do not sleep, on the first CPU.
fn busy(count: usize) -> Vec<Ending> {
    let start = |_| {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        let child = Ending::start(command.stdin(Stdio::null()));
        on_first_cpu(child.id().cast_signed());
        child
    };
    (0..count).map(start).collect()
}

fn on_first_cpu(thread: i32) {
    let mut first = CpuSet::new();
    first.set(0).unwrap();
    sched_setaffinity(nix::unistd::Pid::from_raw(thread), &first).unwrap();
}

/// The tool has the lowest priority on a CPU on which others never sleep: it comes late, and counts all.
#[test]
fn a_starved_cpu_costs_no_count() {
    requires!(root_and_btf());
    let entries = (20_000 / slowdown()).to_string();
    let (mass, ready) = lab("emptydir-mass-files", &["--entries", &entries, "--rate", "0"]);
    let [root, uid] = ["kubelet_root", "pod_uid"].map(|name| ready[name].as_str().unwrap());
    let watch = watch(&["--kubelet-root", root, "--pod-uid", uid]);
    for task in fs::read_dir(format!("/proc/{}/task", watch.pid())).unwrap().flatten() {
        let task: i32 = task.file_name().to_str().unwrap().parse().unwrap();
        on_first_cpu(task);
        setpriority_process(Pid::from_raw(task), 19).unwrap();
    }
    let busy = busy(2);
    mass.resume();
    let (printed, _) = mass.finish();
    settle();
    let (lines, status) = watch.stop();
    drop(busy);
    std::io::stdout().flush().unwrap();
    assert!(matches!(status.code(), Some(0 | 1)), "{status}");
    assert_counted(summary(&lines), &[&printed.last().unwrap()["calls"]]);
    for finding in of_type(&lines, "finding") {
        assert_eq!(finding["id"], "emptydir-mass-files", "{finding:#}");
    }
}
