//! What an agent costs on a node with 200 pods and ordinary churn.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use common::Agent;
use jiff::{Timestamp, tz::TimeZone};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use podstuck_test_node::ControlPlane;
use podstuck_tests::Ending;
use procfs::{WithCurrentSystemInfo, process::Process};

const PODS: usize = 200;
/// A pod is deleted and another one is created: 600 an hour.
const CHURN: Duration = Duration::from_secs(6);
/// As often as Prometheus scrapes by default.
const SCRAPE: Duration = Duration::from_secs(15);
/// Files in each pod's emptyDir.
const FILES: usize = 50;
/// The end of each pod's UID.
const UIDS: &str = "-0000-4000-8000-000000000000";
const CGROUPS: &str = "/sys/fs/cgroup";

/// A kubelet that does nothing, and its log.
struct Kubelet {
    _process: Ending,
    root: PathBuf,
    log: File,
    pid: u32,
}

impl Kubelet {
    fn start(top: &Path) -> Self {
        let (root, program, log) =
            (top.join("kubelet-root"), top.join("kubelet"), top.join("kubelet.log"));
        fs::create_dir_all(root.join("pods")).unwrap();
        fs::copy("/bin/sleep", &program).unwrap();
        let log = File::create(log).unwrap();
        let mut command = Command::new(&program);
        command.arg("100000").stdin(Stdio::null()).stdout(Stdio::null());
        let process = Ending::start(command.stderr(log.try_clone().unwrap()));
        let pid = process.id();
        Self { _process: process, root, log, pid }
    }

    fn says(&mut self, text: &str) {
        let now = Timestamp::now().to_zoned(TimeZone::system()).strftime("%m%d %H:%M:%S%.6f");
        writeln!(self.log, "I{now} {:7} kubelet.go:1] {text}", self.pid).unwrap();
    }
}

/// A pod with a token, an emptyDir, a shim and a container of two processes.
struct Pod {
    number: usize,
    uid: String,
    id: String,
    directory: PathBuf,
    groups: Vec<PathBuf>,
    shim: Ending,
    processes: Vec<Ending>,
}

impl Pod {
    fn create(kubelet: &mut Kubelet, top: &Path, number: usize) -> Self {
        let uid = format!("{number:08}{UIDS}");
        let id = format!("{number:064x}");
        let directory = kubelet.root.join("pods").join(&uid);
        let volumes = directory.join("volumes");
        let (token, cache) = (
            volumes.join("kubernetes.io~projected/kube-api-access"),
            volumes.join("kubernetes.io~empty-dir/cache"),
        );
        for made in [&token, &cache, &directory.join("containers/app")] {
            fs::create_dir_all(made).unwrap();
        }
        mount(Some("tmpfs"), &token, Some("tmpfs"), MsFlags::empty(), Some("size=64k")).unwrap();
        fs::write(token.join("token"), "token").unwrap();
        (0..FILES).for_each(|file| fs::write(cache.join(file.to_string()), "x").unwrap());
        let shim = top.join("containerd-shim-runc-v2");
        if !shim.exists() {
            fs::copy("/bin/sleep", &shim).unwrap();
        }
        let shim = Ending::start(Command::new(shim).arg("100000"));
        let processes: Vec<Ending> =
            (0..2).map(|_| Ending::start(Command::new("sleep").arg("100000"))).collect();
        let of_pod = format!("kubepods/burstable/pod{uid}");
        let mut groups = Vec::new();
        for hierarchy in fs::read_dir(CGROUPS).unwrap() {
            let hierarchy = hierarchy.unwrap().path();
            let group = hierarchy.join(&of_pod).join(&id);
            // Not where processors must be named first.
            if hierarchy.is_symlink()
                || hierarchy.ends_with("cpuset")
                || fs::create_dir_all(&group).is_err()
            {
                continue;
            }
            for process in &processes {
                let _ = fs::write(group.join("cgroup.procs"), process.id().to_string());
            }
            groups.extend([group, hierarchy.join(&of_pod)]);
        }
        let pod = format!("shop/web-{number}");
        kubelet.says(&format!("\"SyncLoop ADD\" source=\"api\" pods=[\"{pod}\"]"));
        kubelet.says(&format!(
            "\"SyncLoop (PLEG): event for pod\" pod=\"{pod}\" event={{\"ID\":\"{uid}\",\"Type\":\"ContainerStarted\",\"Data\":\"{id}\"}}"
        ));
        Self { number, uid, id, directory, groups, shim, processes }
    }

    fn delete(self, kubelet: &mut Kubelet) {
        let Self { number, uid, id, directory, groups, shim, processes } = self;
        let pod = format!("shop/web-{number}");
        kubelet.says(&format!("\"SyncLoop DELETE\" source=\"api\" pods=[\"{pod}\"]"));
        kubelet.says(&format!(
            "\"Killing container with a grace period\" pod=\"{pod}\" podUID=\"{uid}\" containerName=\"app\" \
             containerID=\"containerd://{id}\" gracePeriod=30"
        ));
        drop((processes, shim));
        kubelet.says(&format!(
            "\"SyncLoop (PLEG): event for pod\" pod=\"{pod}\" event={{\"ID\":\"{uid}\",\"Type\":\"ContainerDied\",\"Data\":\"{id}\"}}"
        ));
        groups.iter().for_each(|group| fs::remove_dir(group).unwrap());
        umount2(
            &directory.join("volumes/kubernetes.io~projected/kube-api-access"),
            MntFlags::empty(),
        )
        .unwrap();
        kubelet.says(&format!(
            "UnmountVolume.TearDown succeeded for volume \"kubernetes.io/projected/{uid}-kube-api-access\" \
             (OuterVolumeSpecName: \"kube-api-access\") pod \"{uid}\" (UID: \"{uid}\"). InnerVolumeSpecName \
             \"kube-api-access\". PluginName \"kubernetes.io/projected\", VolumeGIDValue \"\""
        ));
        fs::remove_dir_all(&directory).unwrap();
        kubelet.says(&format!("\"SyncLoop REMOVE\" source=\"api\" pods=[\"{pod}\"]"));
    }
}

/// All pods, in the order of their creation.
struct Pods(Vec<Pod>);

impl Drop for Pods {
    fn drop(&mut self) {
        for Pod { directory, groups, shim, processes, .. } in self.0.drain(..) {
            drop((processes, shim));
            groups.iter().for_each(|group| drop(fs::remove_dir(group)));
            let token = directory.join("volumes/kubernetes.io~projected/kube-api-access");
            let _ = umount2(&token, MntFlags::MNT_DETACH);
        }
        for hierarchy in fs::read_dir(CGROUPS).into_iter().flatten().flatten() {
            for group in ["kubepods/burstable", "kubepods"] {
                let _ = fs::remove_dir(hierarchy.path().join(group));
            }
        }
    }
}

/// CPU seconds of a process, of its ended children and of all that live below it, and the resident memory of those
/// that live, in KiB.
fn usage(pid: i32) -> (f64, u64) {
    let Ok(process) = Process::new(pid) else { return (0.0, 0) };
    let Ok(stat) = process.stat() else { return (0.0, 0) };
    let ended = u64::try_from(stat.cutime + stat.cstime).unwrap_or_default();
    let ticks = stat.utime + stat.stime + ended;
    let own = (ticks as f64 / procfs::ticks_per_second() as f64, stat.rss_bytes().get() >> 10);
    let tasks = process.tasks().into_iter().flatten().flatten();
    let children = tasks.flat_map(|task| task.children().unwrap_or_default());
    children.fold(own, |(cpu, rss), child| {
        let (more, memory) = usage(child.cast_signed());
        (cpu + more, rss + memory)
    })
}

#[test]
#[ignore = "a measurement: says what an agent costs in an hour, or in PODSTUCK_COST_MINUTES"]
fn an_hour_on_a_node_with_200_pods() {
    let minutes = std::env::var("PODSTUCK_COST_MINUTES").map_or(60, |text| text.parse().unwrap());
    let top = tempfile::tempdir().unwrap();
    let plane = ControlPlane::up(top.path()).unwrap();
    let mut kubelet = Kubelet::start(top.path());
    let mut pods = Pods(Vec::new());
    for number in 0..PODS {
        pods.0.push(Pod::create(&mut kubelet, top.path(), number));
    }
    let agent = Agent::start(top.path(), &plane, kubelet.root.to_str().unwrap());
    // What is done once is no part of it.
    thread::sleep(Duration::from_secs(30));
    let (before, begun) = (usage(agent.pid()).0, Instant::now());
    let (mut number, mut most, mut scrapes) = (PODS, 0, 0);
    let (mut churned, mut scraped, mut noted) = (begun, begun, begun);
    while begun.elapsed() < Duration::from_secs(60 * minutes) {
        thread::sleep(Duration::from_millis(200));
        if churned.elapsed() >= CHURN {
            churned = Instant::now();
            pods.0.remove(0).delete(&mut kubelet);
            pods.0.push(Pod::create(&mut kubelet, top.path(), number));
            number += 1;
        }
        if scraped.elapsed() >= SCRAPE {
            scraped = Instant::now();
            assert_eq!(agent.get("/metrics").0, 200);
            scrapes += 1;
        }
        most = most.max(usage(agent.pid()).1);
        if noted.elapsed() >= Duration::from_secs(60) {
            noted = Instant::now();
            let (cpu, rss) = usage(agent.pid());
            let took = begun.elapsed().as_secs_f64();
            println!(
                "measured: {:.0} s: {:.2} % of one core, {rss} KiB",
                took,
                100.0 * (cpu - before) / took
            );
        }
    }
    let took = begun.elapsed().as_secs_f64();
    println!(
        "measured: {} deletions and {scrapes} scrapes in {took:.0} s: {:.2} % of one core, at most {most} KiB \
         resident in all processes",
        number - PODS,
        100.0 * (usage(agent.pid()).0 - before) / took,
    );
    let (_, metrics) = agent.get("/metrics");
    let wanted = [
        "podstuck_process",
        "podstuck_lost",
        "podstuck_calls_total",
        "podstuck_finding_info",
        "bpf",
    ];
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        if wanted.iter().any(|name| line.contains(name)) {
            println!("measured: {line}");
        }
    }
    let lines = fs::read_to_string(&agent.out).unwrap();
    // Another run on this machine may have a pod of its own.
    let is_own = |line: &&str| line.contains("\"type\":\"finding\"") && line.contains(UIDS);
    assert_eq!(lines.lines().find(is_own), None, "a healthy deletion");
    drop(pods);
}
