//! What an agent costs on a node with 200 pods and ordinary churn.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use common::{Agent, own, wait_for};
use jiff::{Timestamp, tz::TimeZone};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use podstuck_test_node::ControlPlane;
use podstuck_tests::{Ending, podstuck};
use procfs::{WithCurrentSystemInfo, process::Process};

/// As often as Prometheus scrapes by default.
const SCRAPE: Duration = Duration::from_secs(15);
/// Files in each pod's emptyDir.
const FILES: usize = 50;
/// The end of each pod's UID.
const UIDS: &str = "-0000-4000-8000-000000000000";
const CGROUPS: &str = "/sys/fs/cgroup";
/// Where a real kubelet on this machine does not look for groups that it does not know.
const GROUPS: &str = "podstuck-cost/kubepods";

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
        let of_pod = format!("{GROUPS}/burstable/pod{uid}");
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
            let groups = hierarchy.path().join(GROUPS).join("burstable");
            groups.ancestors().take(3).for_each(|group| drop(fs::remove_dir(group)));
        }
    }
}

/// CPU time of a process and of all that live below it, in ticks, by process and thread; and their resident memory.
#[derive(Clone, Default)]
struct Usage {
    /// By process id, thread id and start: the name, and what this thread has used. Those that have ended stay.
    threads: BTreeMap<(i32, i32, u64), (String, u64)>,
    /// By process id: what its ended children have used.
    ended: BTreeMap<i32, u64>,
    /// All of the processes, with the threads that were never seen.
    whole: u64,
    rss_kib: u64,
}

impl Usage {
    /// Adds what a process has used by now; returns its whole time.
    fn look(&mut self, pid: i32, role: &str) {
        let Ok(process) = Process::new(pid) else { return };
        let Ok(stat) = process.stat() else { return };
        let ended = u64::try_from(stat.cutime + stat.cstime).unwrap_or_default();
        self.ended.insert(pid, ended);
        self.whole += stat.utime + stat.stime + ended;
        self.rss_kib += stat.rss_bytes().get() >> 10;
        for task in process.tasks().into_iter().flatten().flatten() {
            if let Ok(stat) = task.stat() {
                let name = format!("{role}, thread {}", stat.comm);
                let key = (pid, task.tid, stat.starttime);
                self.threads.insert(key, (name, stat.utime + stat.stime));
            }
            for child in task.children().unwrap_or_default() {
                let role = if role == "agent" { "watch" } else { "helpers" };
                self.look(child.cast_signed(), role);
            }
        }
    }

    /// Looks again.
    fn renew(&mut self, pid: i32) {
        (self.whole, self.rss_kib) = (0, 0);
        self.look(pid, "agent");
    }

    /// Percent of one core since then, by name.
    fn since(&self, before: &Self, seconds: f64) -> BTreeMap<String, f64> {
        let mut of: BTreeMap<String, f64> = BTreeMap::new();
        let mut add = |name: &str, ticks: u64| {
            let part = 100.0 * ticks as f64 / procfs::ticks_per_second() as f64 / seconds;
            *of.entry(name.into()).or_default() += part;
        };
        for (key, (name, ticks)) in &self.threads {
            let began = before.threads.get(key).map_or(0, |(_, ticks)| *ticks);
            // Each of these processes answers one question; all of them are among the ended children.
            if name != "helpers, thread helper" {
                add(name, ticks - began);
            }
        }
        for (pid, ticks) in &self.ended {
            add("helpers that have ended", ticks - before.ended.get(pid).copied().unwrap_or(0));
        }
        add("all", self.whole.saturating_sub(before.whole));
        of
    }
}

/// An agent whose cost is measured.
struct Measured {
    name: &'static str,
    agent: Agent,
    now: Usage,
    begun: Usage,
    /// At the beginning of this minute.
    minute: Usage,
    most_kib: u64,
}

impl Measured {
    fn of(name: &'static str, agent: Agent) -> Self {
        let (now, begun, minute) = Default::default();
        Self { name, agent, now, begun, minute, most_kib: 0 }
    }

    fn look(&mut self) {
        self.now.renew(self.agent.pid());
        self.most_kib = self.most_kib.max(self.now.rss_kib);
    }

    fn percent(&self, since: &Usage, seconds: f64) -> f64 {
        self.now.since(since, seconds)["all"]
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().unwrap())
}

/// The lower quartile, the median and the upper quartile.
fn quartiles(mut all: Vec<f64>) -> [f64; 3] {
    all.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| all.get(all.len() * quarter / 4).copied().unwrap_or(f64::NAN))
}

#[test]
#[ignore = "a measurement: says what an agent costs in an hour, or in PODSTUCK_COST_MINUTES"]
fn an_hour_on_a_node_with_200_pods() {
    let minutes = number("PODSTUCK_COST_MINUTES", 60);
    let (count, churn) = (number("PODSTUCK_COST_PODS", 200), number("PODSTUCK_COST_CHURN", 6));
    let churn = (churn > 0).then(|| Duration::from_secs(churn));
    let top = tempfile::tempdir().unwrap();
    let plane = std::env::var_os("PODSTUCK_COST_NO_EVENTS").is_none();
    let plane = plane.then(|| ControlPlane::up(top.path()).unwrap());
    let mut kubelet = Kubelet::start(top.path());
    let mut pods = Pods(Vec::new());
    let mut number = usize::try_from(count).unwrap();
    (0..number).for_each(|number| pods.0.push(Pod::create(&mut kubelet, top.path(), number)));
    let root = kubelet.root.to_str().unwrap().to_owned();
    let mut all = Vec::new();
    // The directory with the programs of a version to compare with.
    if let Some(other) = std::env::var_os("PODSTUCK_COST_AGAINST").map(PathBuf::from) {
        let directory = top.path().join("other");
        fs::create_dir(&directory).unwrap();
        let programs = (other.join("podstuck-agent"), other.join("podstuck"));
        all.push(Measured::of("other", agent(&directory, &programs, plane.as_ref(), &root)));
    }
    let programs = (own(), podstuck());
    all.push(Measured::of("this", agent(top.path(), &programs, plane.as_ref(), &root)));
    // What is done once is no part of it.
    thread::sleep(Duration::from_secs(30));
    for one in &mut all {
        one.look();
        (one.begun, one.minute) = (one.now.clone(), one.now.clone());
    }
    let begun = Instant::now();
    let (first, mut scrapes, mut ratios) = (number, 0, Vec::new());
    let (mut churned, mut scraped, mut noted) = (begun, begun, begun);
    while begun.elapsed() < Duration::from_secs(60 * minutes) {
        thread::sleep(Duration::from_millis(200));
        if churn.is_some_and(|churn| churned.elapsed() >= churn) {
            churned = Instant::now();
            pods.0.remove(0).delete(&mut kubelet);
            pods.0.push(Pod::create(&mut kubelet, top.path(), number));
            number += 1;
        }
        if scraped.elapsed() >= SCRAPE {
            scraped = Instant::now();
            all.iter().for_each(|one| assert_eq!(one.agent.get("/metrics").0, 200));
            scrapes += 1;
        }
        all.iter_mut().for_each(Measured::look);
        if noted.elapsed() >= Duration::from_secs(60) {
            let took = noted.elapsed().as_secs_f64();
            noted = Instant::now();
            let parts: Vec<f64> = all.iter().map(|one| one.percent(&one.minute, took)).collect();
            if let [other, this] = parts[..] {
                ratios.push(this / other);
            }
            let rss: Vec<u64> = all.iter().map(|one| one.now.rss_kib).collect();
            println!(
                "measured: {:.0} s: {parts:.2?} % of one core in this minute, {rss:?} KiB",
                begun.elapsed().as_secs_f64(),
            );
            all.iter_mut().for_each(|one| one.minute = one.now.clone());
        }
    }
    let took = begun.elapsed().as_secs_f64();
    println!("measured: {} deletions and {scrapes} scrapes in {took:.0} s", number - first);
    for one in &all {
        let Measured { name, most_kib, .. } = one;
        println!(
            "measured: {name}: {:.2} % of one core, at most {most_kib} KiB resident in all processes",
            one.percent(&one.begun, took)
        );
        for (what, part) in one.now.since(&one.begun, took) {
            println!("measured: {name}: {part:.3} % {what}");
        }
        let (_, metrics) = one.agent.get("/metrics");
        let wanted = [
            "podstuck_process",
            "podstuck_lost",
            "podstuck_calls_total",
            "podstuck_finding_info",
            "bpf",
        ];
        for line in metrics.lines().filter(|line| !line.starts_with('#')) {
            if wanted.iter().any(|name| line.contains(name)) {
                println!("measured: {name}: {line}");
            }
        }
        let lines = fs::read_to_string(&one.agent.out).unwrap();
        // Another run on this machine may have a pod of its own.
        let is_own = |line: &&str| line.contains("\"type\":\"finding\"") && line.contains(UIDS);
        assert_eq!(lines.lines().find(is_own), None, "a healthy deletion");
    }
    println!("measured: ratio of the minutes, quartiles: {:.3?}", quartiles(ratios));
    drop(pods);
}

fn agent(
    top: &Path,
    programs: &(PathBuf, PathBuf),
    plane: Option<&ControlPlane>,
    root: &str,
) -> Agent {
    let of_watch = ["--", "--kubelet-root", root, "--api", "never"].map(str::to_owned);
    let kubeconfig = plane.map(|plane| plane.kubeconfig().display().to_string());
    let events = match kubeconfig {
        Some(file) => vec!["--kubeconfig".to_owned(), file],
        None => vec!["--no-events".to_owned()],
    };
    let words: Vec<String> = events.into_iter().chain(of_watch).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let agent = Agent::spawn(top, &programs.0, &programs.1, &words, &[]);
    wait_for("ready agent", || (agent.get("/readyz").0 == 200).then_some(()));
    agent
}
