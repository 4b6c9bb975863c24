//! Counts that outlive the agent: nothing is counted twice or missed whatever ends it, a gap is reported, and
//! uninstalling leaves nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use aya::programs::loaded_programs;
use common::{Agent, done, said, wait_for};
use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_tests::{
    UID, add_up, own_mounts, podstuck, podstuck_call, requires, root_and_btf, slowdown,
};
use serde_json::Value;

/// A plugin that no other volume of this machine has.
const PLUGIN: &str = "podstuck.test~upgrade";
/// Rounds of a writer that goes on while agents end and start, and of one that is soon done.
const MANY: u64 = 3_000_000;
const FEW: u64 = 3_000;

/// A kubelet root directory with a volume, and a BPF file system, in a mount namespace of this thread.
struct Place {
    top: tempfile::TempDir,
    pins: PathBuf,
}

impl Place {
    /// Everything is gone with the thread, whatever the test leaves.
    fn new() -> Result<Self, String> {
        let nothing = None::<&str>;
        own_mounts();
        let top = tempfile::Builder::new().prefix("podstuck-test-").tempdir_in("/dev/shm").unwrap();
        let bpf = top.path().join("bpf");
        fs::create_dir(&bpf).unwrap();
        mount(Some("bpf"), &bpf, Some("bpf"), MsFlags::empty(), Some("mode=0700"))
            .map_err(|error| format!("no BPF file system: {error}"))?;
        // Mounting it takes a capability that the agent does not have.
        let (tracing, tracefs) = ("/sys/kernel/tracing", Some("tracefs"));
        match mount(tracefs, tracing, tracefs, MsFlags::empty(), nothing) {
            // It is mounted there on this machine.
            Ok(()) | Err(Errno::EBUSY) => {}
            Err(error) => panic!("tracefs: {error}"),
        }
        let place = Self { pins: bpf.join("podstuck"), top };
        fs::create_dir_all(place.volume()).unwrap();
        Ok(place)
    }

    fn root(&self) -> PathBuf {
        self.top.path().join("kubelet")
    }

    fn volume(&self) -> PathBuf {
        self.root().join("pods").join(UID).join("volumes").join(PLUGIN).join("data")
    }

    /// Starts an agent with no more capabilities than in a cluster, and waits until it counts.
    fn agent(&self) -> Agent {
        let least = self.top.path().join("podstuck");
        let caps = "-all,+bpf,+perfmon,+sys_ptrace,+dac_read_search";
        let program = podstuck();
        let program = program.display();
        fs::write(
            &least,
            format!("#!/bin/sh\nexec setpriv --bounding-set={caps} {program} \"$@\"\n"),
        )
        .unwrap();
        done(Command::new("chmod").arg("755").arg(&least));
        let (root, pins) = (self.root(), self.pins.display().to_string());
        let root = root.to_str().unwrap();
        let words = ["--no-events", "--pin", &pins, "--", "--kubelet-root", root, "--api", "never"];
        let agent = Agent::with(self.top.path(), &least, &words);
        wait_for("counting agent", || {
            fs::read_to_string(&agent.out).ok().filter(|out| out.contains("\"type\":\"start\""))
        });
        agent
    }

    fn uninstall(&self) -> (bool, String) {
        let mut agent = Command::new(env!("CARGO_BIN_EXE_podstuck-agent"));
        said(agent.arg("--uninstall").arg("--pin").arg(&self.pins))
    }
}

/// Kills the agent and its watch at the same moment, or lets both end.
fn end(agent: Agent, signal: Signal) {
    if signal == Signal::SIGKILL {
        kill(Pid::from_raw(agent.watch()), signal).unwrap();
    }
    agent.end(signal);
}

/// The value of a metric, without labels.
fn value(metrics: &str, name: &str) -> Option<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.parse().ok()
}

/// The calls in the volume, as a tally has them.
fn counted(metrics: &str) -> BTreeMap<String, u64> {
    let mut counted = BTreeMap::new();
    let plugin = format!("plugin=\"{}\"", PLUGIN.replace('~', "/"));
    let of_volume =
        |line: &&str| line.starts_with("podstuck_calls_total{") && line.contains(&plugin);
    for line in metrics.lines().filter(of_volume) {
        let label = |name: &str| {
            let (_, rest) = line.split_once(&format!("{name}=\"")).unwrap();
            rest.split_once('"').unwrap().0
        };
        let calls: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        *counted.entry(format!("{} {}", label("syscall"), label("outcome"))).or_default() += calls;
    }
    counted
}

/// Waits until the agent has counted exactly this.
fn assert_counted(agent: &Agent, truth: &BTreeMap<String, u64>) -> String {
    let mut last = String::new();
    for _ in 0..60 * slowdown() {
        last = agent.get("/metrics").1;
        if counted(&last) == *truth {
            return last;
        }
        thread::sleep(Duration::from_millis(500));
    }
    panic!("counted {:?}\ntruth   {truth:?}\n{last}", counted(&last));
}

/// The tally of a process that deletes in the volume.
fn storm(directory: &Path, rounds: u64) -> Value {
    let rounds = rounds.to_string();
    let text = done(Command::new(podstuck_call()).arg("storm").arg(directory).arg(rounds));
    serde_json::from_str(&text).unwrap()
}

/// Ids of all programs in the kernel. Maps go with their last program and pin. They are not listed: opening a program
/// array whose last pin has just been removed kept it for good on Linux 6.18.
fn loaded() -> BTreeSet<u32> {
    loaded_programs().map(|program| program.unwrap().id()).collect()
}

#[test]
fn calls_between_two_agents_are_counted_once_and_uninstalling_leaves_nothing() {
    requires!(root_and_btf());
    let place = match Place::new() {
        Ok(place) => place,
        Err(why) => return podstuck_testing::skip(why),
    };
    // A new BPF file system has programs of its own.
    let before = loaded();
    let mut agent = place.agent();
    let writers = ["a", "b"].map(|name| {
        let directory = place.volume().join(name);
        fs::create_dir(&directory).unwrap();
        thread::spawn(move || storm(&directory, MANY / u64::from(slowdown())))
    });
    let (term, kill) = (Signal::SIGTERM, Signal::SIGKILL);
    for (number, signal) in [term, kill, kill, term, kill].into_iter().enumerate() {
        // At another moment between two reads each time.
        thread::sleep(Duration::from_millis(1300 + 170 * number as u64));
        end(agent, signal);
        thread::sleep(Duration::from_secs(1));
        agent = place.agent();
    }
    println!("measured: writers done: {}", writers.iter().filter(|it| it.is_finished()).count());
    let mut tallies: Vec<Value> = writers.map(|writer| writer.join().unwrap()).into();
    let truth = add_up(&tallies.iter().collect::<Vec<_>>());
    println!("measured: {} calls over five restarts", truth.values().sum::<u64>());
    let metrics = assert_counted(&agent, &truth);
    assert_eq!(value(&metrics, "podstuck_counts_kept"), Some(1.0));
    for name in ["count_gaps", "unmatched_exits", "outcome_unknown", "map_full"] {
        let name = format!("podstuck_{name}_total");
        assert_eq!(value(&metrics, &name), Some(0.0), "{name}");
    }

    let (is_removed, text) = place.uninstall();
    assert!(!is_removed && text.contains("another podstuck uses it"), "{text}");
    end(agent, Signal::SIGKILL);
    tallies.push(storm(&place.volume().join("a"), FEW));

    // Maps of another version: only the calls in between are missing.
    let maps = |name: &str| place.pins.join(name);
    fs::rename(maps("maps_1"), maps("maps_0")).unwrap();
    let agent = place.agent();
    let known: Vec<&Value> = tallies[..tallies.len() - 1].iter().collect();
    let metrics = assert_counted(&agent, &add_up(&known));
    assert_eq!(value(&metrics, "podstuck_count_gaps_total"), Some(1.0));
    assert!(!maps("maps_0").exists());
    end(agent, Signal::SIGTERM);

    // A hook is removed.
    let hooks = fs::read_dir(&place.pins).unwrap().map(|entry| entry.unwrap().path());
    let mut hooks = hooks.filter(|path| path.to_string_lossy().contains("hooks_"));
    let hooks = hooks.next().unwrap();
    fs::remove_file(hooks.join("0")).unwrap();
    let agent = place.agent();
    let gaps = || value(&agent.get("/metrics").1, "podstuck_count_gaps_total");
    assert_eq!(wait_for("metrics", gaps), 2.0);
    end(agent, Signal::SIGKILL);

    let (is_removed, text) = place.uninstall();
    assert!(is_removed && text.contains("is removed") && !place.pins.exists(), "{text}");
    wait_for("end of the probes", || loaded().is_subset(&before).then_some(()));
    let (is_removed, text) = place.uninstall();
    assert!(is_removed && text.contains("nothing is pinned"), "{text}");
}

#[test]
fn where_counts_cannot_be_kept_the_agent_says_so_and_counts() {
    requires!(root_and_btf());
    let place = match Place::new() {
        Ok(place) => place,
        Err(why) => return podstuck_testing::skip(why),
    };
    // A name that podstuck does not use.
    let foreign = place.pins.join("mine");
    fs::create_dir_all(&foreign).unwrap();
    fs::set_permissions(&place.pins, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let agent = place.agent();
    let said = wait_for("readiness", || Some(agent.get("/readyz")).filter(|it| it.0 == 200)).1;
    assert!(said.contains("the counts begin again with each start"), "{said}");
    let tally = storm(&place.volume(), FEW);
    let metrics = assert_counted(&agent, &add_up(&[&tally]));
    assert_eq!(value(&metrics, "podstuck_counts_kept"), Some(0.0));
    end(agent, Signal::SIGTERM);
    let (is_removed, text) = place.uninstall();
    assert!(!is_removed && text.contains("`mine`, which podstuck has not created"), "{text}");
    assert!(foreign.exists());
}
