//! The agents of 1,000 nodes as tasks of one process, against a real API server: requests, times, memory. Lines take the
//! place of `podstuck watch`, and time passes four times faster. By hand, in eleven minutes:
//! `cargo test --release -p podstuck-agent --lib a_thousand_nodes -- --ignored --nocapture`.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, Weak},
    thread,
    time::Instant,
};

use podstuck_test_node::ControlPlane;
use procfs::process::Process;
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::interval,
};

use super::{tests::*, *};
use crate::{line::Line, stuck::tests::line};

const NODES: usize = 1000;
/// How much faster than in reality time passes.
const SPEED: f64 = 4.0;

struct Fleet {
    began: Instant,
    /// Second, node and kind of each write, and whether it succeeded.
    writes: Mutex<Vec<(f64, usize, &'static str, bool)>>,
    /// The API server's own counts of requests about Events, with their second.
    requests: Mutex<Vec<(f64, f64)>>,
}

impl Fleet {
    fn now(&self) -> Duration {
        self.began.elapsed().mul_f64(SPEED)
    }

    async fn until(&self, second: u64) {
        let left = Duration::from_secs(second).saturating_sub(self.now());
        tokio::time::sleep(left.div_f64(SPEED)).await;
    }

    async fn agent(
        self: Arc<Self>,
        at: usize,
        mut reporter: Reporter,
        mut lines: UnboundedReceiver<String>,
    ) -> Reporter {
        let tick = Duration::from_secs(1).div_f64(SPEED);
        tokio::time::sleep(tick.mul_f64(fastrand::f64())).await;
        let mut ticks = interval(tick);
        loop {
            tokio::select! {
                line = lines.recv() => {
                    let Some(line) = line else { return reporter };
                    let Line::Finding(finding) = serde_json::from_str(&line).unwrap() else { continue };
                    reporter.board.take(&finding, self.now(), fastrand::f64());
                },
                _ = ticks.tick() => reporter.write_due(self.now()),
                written = reporter.written() => {
                    let written = written.unwrap();
                    let kind = match &written.0 {
                        Write::Pod { .. } => "pod",
                        Write::Node { .. } => "node",
                        Write::Renew { .. } => "renewal",
                        Write::Over(_) => "over",
                    };
                    let (second, is_done) = (self.now().as_secs_f64(), written.1 == Outcome::Done);
                    self.writes.lock().unwrap().push((second, at, kind, is_done));
                    reporter.wrote(written, self.now());
                },
            }
        }
    }

    /// Reads the API server's counts each second, while there are agents. A server that starts again counts from 0.
    fn sample(fleet: &Weak<Self>, plane: &Weak<ControlPlane>) {
        let (mut before, mut sum) = (0.0, 0.0);
        while let Some((fleet, plane)) = fleet.upgrade().zip(plane.upgrade()) {
            let is_of_agents = |line: &&str| {
                line.starts_with("apiserver_request_total{")
                    && line.contains("group=\"events.k8s.io\"")
                    && !line.contains("verb=\"LIST\"")
            };
            if let Ok(text) = plane.kubectl(&["get", "--raw", "/metrics"]) {
                let counts = text.lines().filter(is_of_agents);
                let counts = counts.map(|line| line.rsplit(' ').next().unwrap());
                let now: f64 = counts.map(|count| count.parse::<f64>().unwrap()).sum();
                sum += if now < before { now } else { now - before };
                before = now;
                fleet.requests.lock().unwrap().push((fleet.now().as_secs_f64(), sum));
            }
            drop((fleet, plane));
            thread::sleep(Duration::from_secs(1));
        }
    }

    /// Prints what happened in these seconds.
    fn show(&self, phase: &str, seconds: Range<u64>) {
        let is_in = |at: f64| at >= seconds.start as f64 && at < seconds.end as f64;
        let writes = self.writes.lock().unwrap();
        let mut kinds = BTreeMap::<_, usize>::new();
        let mut per_second = BTreeMap::<u64, usize>::new();
        for (at, _, kind, is_done) in writes.iter().filter(|write| is_in(write.0)) {
            *kinds.entry((*kind, *is_done)).or_default() += 1;
            *per_second.entry(*at as u64).or_default() += 1;
        }
        let in_ten = seconds
            .clone()
            .map(|from| per_second.range(from..from + 10).map(|it| it.1).sum::<usize>());
        let requests = self.requests.lock().unwrap();
        let requests: Vec<_> = requests.iter().filter(|(at, _)| is_in(*at)).collect();
        let rates =
            requests.windows(2).map(|pair| (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0));
        let all = requests.last().map_or(0.0, |it| it.1) - requests.first().map_or(0.0, |it| it.1);
        println!(
            "measured: {phase}: writes {kinds:?}, at most {} in a second, {:.0} a second over ten; the API server: {all} requests, at most {:.0} a second",
            per_second.values().max().unwrap_or(&0),
            in_ten.max().unwrap_or(0) as f64 / 10.0,
            rates.fold(0.0, f64::max),
        );
    }

    /// Prints when the nodes had their first Events, after a second.
    fn show_times(&self, from: u64) {
        let mut of_nodes = BTreeMap::<_, Vec<f64>>::new();
        for (at, node, kind, is_done) in &*self.writes.lock().unwrap() {
            if *is_done && *at >= from as f64 {
                of_nodes.entry((*kind, *node)).or_default().push(at - from as f64);
            }
        }
        for (of, nth) in [("node", 1), ("pod", 4), ("pod", 9)] {
            let of_kind = of_nodes.iter().filter(|((kind, _), _)| *kind == of);
            let mut times: Vec<f64> = of_kind.filter_map(|it| it.1.get(nth - 1)).copied().collect();
            times.sort_by(f64::total_cmp);
            let Some(last) = times.last() else { continue };
            let (count, median) = (times.len(), times[times.len() / 2]);
            println!(
                "measured: Event {nth} of a {of}: {count} nodes, median {median:.0} s, last {last:.0} s"
            );
        }
    }
}

fn rss() -> u64 {
    let stat = Process::myself().and_then(|process| process.stat()).unwrap();
    stat.rss * procfs::page_size() / 1024
}

fn cpu(pid: u32) -> f64 {
    let stat = Process::new(pid.cast_signed()).and_then(|process| process.stat()).unwrap();
    (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64
}

/// 5,000 pods: most nodes have 4 of them, each tenth has 14.
fn pods() -> impl Iterator<Item = (usize, usize)> {
    let of_node = |node| if node % 10 == 0 { 14 } else { 4 };
    (0..NODES).flat_map(move |node| (0..of_node(node)).map(move |pod| (node, pod)))
}

/// Number of pods and nodes with an Event of each reason. Panics if a pod or node has two.
fn said(plane: &ControlPlane) -> BTreeMap<String, usize> {
    let (mut about, mut reasons) = (BTreeMap::new(), BTreeMap::new());
    for event in events(plane) {
        let text = |key: &str| event["regarding"][key].as_str().unwrap().to_owned();
        let before = about.insert((text("kind"), text("name")), event["note"].clone());
        assert!(before.is_none(), "{before:?} {event}");
        let reason = event["reason"].as_str().unwrap();
        *reasons.entry(format!("{reason} of a {}", text("kind"))).or_default() += 1;
    }
    reasons
}

#[tokio::test]
#[ignore = "by hand: eleven minutes"]
async fn a_thousand_nodes() {
    let top = tempfile::tempdir().unwrap();
    let (plane, kubeconfig) = cluster(&top.path().join("plane"));
    let plane = Arc::new(plane);
    let server = plane.pid(SERVER).unwrap();
    let before = rss();
    let fleet =
        Fleet { began: Instant::now(), writes: Mutex::default(), requests: Mutex::default() };
    let fleet = Arc::new(fleet);
    let (mut nodes, mut agents) = (Vec::new(), Vec::new());
    for at in 0..NODES {
        let name = format!("n{at}");
        let directory = top.path().join(&name);
        std::fs::create_dir(&directory).unwrap();
        let events = Events::of(&name, Some(kubeconfig.clone())).await.unwrap();
        let (sender, lines) = unbounded_channel();
        let reporter = Reporter::new(&name, Some(events), directory);
        nodes.push(sender);
        agents.push(tokio::spawn(fleet.clone().agent(at, reporter, lines)));
    }
    let sampler = thread::spawn({
        let (fleet, plane) = (Arc::downgrade(&fleet), Arc::downgrade(&plane));
        move || Fleet::sample(&fleet, &plane)
    });
    let say = |outage: &str, state: &str| {
        for (node, pod) in pods() {
            let line =
                line(&format!("{outage}-{node}-{pod}"), "nfs-server-unreachable", state, "firm");
            nodes[node].send(line.to_string()).unwrap();
        }
    };
    let begin = fleet.now().as_secs() + 10;
    let [outage, release, second, kill, start, again, end] =
        [120, 840, 1320, 1380, 1500, 2100, 2580].map(|second| begin + second);
    fleet.until(outage).await;
    fleet.show("at rest", begin..outage);
    let at_rest = rss();

    let used = (cpu(std::process::id()), cpu(server));
    say("a", "new");
    fleet.until(release).await;
    fleet.show("outage", outage..release);
    let used = (cpu(std::process::id()) - used.0, cpu(server) - used.1);
    println!(
        "measured: CPU seconds in the outage: {:.1} of all agents, {:.1} of the API server",
        used.0, used.1
    );
    println!(
        "measured: KiB of an agent: {} at rest, {} in the outage",
        (at_rest - before) / 1000,
        (rss() - before) / 1000
    );
    fleet.show_times(outage);
    println!("measured: {:?}", said(&plane));

    say("a", "cleared");
    fleet.until(second).await;
    fleet.show("release", release..second);
    println!("measured: {:?}", said(&plane));

    say("b", "new");
    fleet.until(kill).await;
    let words = plane.kill(SERVER).unwrap();
    fleet.until(start).await;
    plane.start_again(SERVER, &words).unwrap();
    fleet.until(again).await;
    fleet.show("second outage", second..kill);
    fleet.show("no API server", kill..start);
    fleet.show("API server again", start..again);
    fleet.show_times(second);
    println!("measured: {:?}", said(&plane));

    say("b", "cleared");
    fleet.until(end).await;
    fleet.show("second release", again..end);
    println!("measured: {:?}", said(&plane));
    drop(nodes);
    let (mut errors, mut all) = (0, [0; 4]);
    for agent in agents {
        let reporter = agent.await.unwrap();
        errors += reporter.api_errors;
        let counts = reporter.board.counts();
        let counts = [counts.written, counts.outrun, counts.refused, counts.dropped];
        all.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    println!("measured: written, outrun, refused, dropped {all:?}, errors {errors}");
    let done = fleet.writes.lock().unwrap().iter().filter(|write| write.3).count();
    assert_eq!((all[0], all[2], all[3]), (done as u64, 0, 0));
    assert!(said(&plane).keys().all(|reason| reason == "Released of a Pod"));
    drop(fleet);
    sampler.join().unwrap();
}
