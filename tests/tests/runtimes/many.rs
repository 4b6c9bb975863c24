//! Short containers, many at a time, each with a network and volumes of its own, beside a watch: nothing is reported,
//! nothing is lost, and memory stays.
//! `PODSTUCK_CONTAINERS=200` has as many.

use std::{env, fs, sync::atomic, thread};

use podstuck_tests::{of_type, skip, watch};
use serde_json::Value;

use super::{Runtimes, counted, output, summary};

const CONTAINERS: usize = 32;
const AT_A_TIME: usize = 8;
/// What may be added by the second half of them, in KiB: memory is kept for targets that are gone, up to a bound.
const MORE: u64 = 4096;

/// What each does: files in its layer and in both its volumes, some of which it removes.
const WORK: &str =
    "mkdir -p /data/a/b /named/c /d; touch /data/a/b/f /named/c/f /d/f; rm -r /data/a /d";

fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A bridge that nothing leaves, for one container.
struct Network(String);

impl Network {
    fn create(runtimes: &Runtimes, n: usize) -> Option<Self> {
        let (name, subnet) = (format!("net-{n}"), format!("10.213.{}.0/24", n % 256));
        let words = ["network", "create", "--internal", "--subnet", &subnet, &name];
        let made = runtimes.docker(&words).output().unwrap();
        made.status.success().then_some(Self(name))
    }

    fn remove(&self, runtimes: &Runtimes) {
        output(runtimes.docker(&["network", "rm", &self.0]));
    }
}

/// From container to container, by as many threads as run at a time.
fn run(runtimes: &Runtimes, containers: std::ops::Range<usize>, has_networks: bool) {
    let next = atomic::AtomicUsize::new(containers.start);
    let one = |n: usize| {
        let named = format!("named-{n}");
        let volume = format!("{named}:/named");
        let network = has_networks.then(|| Network::create(runtimes, n).unwrap());
        let on = network.as_ref().map_or("none", |network| &network.0);
        let of = ["run", "--rm", "--network", on, "-v", "/data", "-v", &volume];
        output(runtimes.docker(&[of.as_slice(), &["bb:1", "sh", "-c", WORK]].concat()));
        output(runtimes.docker(&["volume", "rm", &named]));
        network.inspect(|network| network.remove(runtimes));
    };
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, atomic::Ordering::Relaxed);
                    if n >= containers.end {
                        return;
                    }
                    one(n);
                }
            });
        }
    });
}

#[test]
fn short_containers_are_not_reported_and_take_no_memory() {
    let asked = env::var("PODSTUCK_CONTAINERS").ok().map(|it| it.parse().unwrap());
    let all = asked.unwrap_or(CONTAINERS);
    let Some(runtimes) = Runtimes::start() else { return };
    let network = Network::create(&runtimes, all);
    let has_networks = network.inspect(|network| network.remove(&runtimes)).is_some();
    if !has_networks {
        skip("in part: Docker makes no network here");
    }
    let live = watch(&[]);
    run(&runtimes, 0..all / 2, has_networks);
    let half = resident(live.pid());
    run(&runtimes, all / 2..all, has_networks);
    let whole = resident(live.pid());
    println!("{all} containers: {half} KiB after half of them, {whole} KiB after all");
    assert!(whole <= half + MORE, "{half} and {whole} KiB");
    let (lines, _) = live.stop();
    let ours = runtimes.top().to_str().unwrap();
    let found = of_type(&lines, "finding").into_iter().find(|it| it.to_string().contains(ours));
    assert_eq!(found, None);
    // Of each container at the least: its two volumes, and its layer with what is below it.
    let removed = counted(&lines, "unlinkat+AT_REMOVEDIR", "ok");
    assert!(removed >= 4 * all as u64, "{removed}");
    complete_but_for_new_layers(&lines, all as u64);
}

/// runc removes what an image has at `/dev/ptmx` as soon as the layer is mounted, before it is known as a target:
/// such a call is reported as a look-alike, and nothing else may be lost.
fn complete_but_for_new_layers(lines: &[Value], containers: u64) {
    for (what, lost) in summary(lines)["completeness"].as_object().unwrap() {
        let none = lost.is_null() || lost.as_array().is_some_and(Vec::is_empty) || *lost == 0;
        let reported = match what.as_str() {
            "look_alikes" => lost.as_u64().is_some_and(|calls| calls <= containers),
            "look_alike" => lost.as_str().is_some_and(|path| path.contains("/dev/ptmx")),
            _ => false,
        };
        assert!(none || reported, "{what}: {lost}");
    }
}
