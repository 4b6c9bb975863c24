//! The writes of single agents at a real API server that is killed. The time is the test's own.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Instant,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_test_node::ControlPlane;
use podstuck_testing::skip;
use serde_json::{Value, json};

use super::*;
use crate::stuck::tests::finding;

pub(super) const SERVER: &str = "kube-apiserver";
const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/podstuck-agent.yaml");

/// A control plane, and a kubeconfig with the manifest's rights.
pub(super) fn cluster(top: &Path) -> (ControlPlane, PathBuf) {
    let plane = ControlPlane::up(top).unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    plane.apply(&namespace).unwrap();
    // kubectl 1.20 does not know the AppArmor field.
    plane.kubectl(&["apply", "--validate=false", "-f", MANIFEST]).unwrap();
    let kubeconfig = plane.account("kube-system", "podstuck-agent").unwrap();
    (plane, kubeconfig)
}

/// All Events of agents.
pub(super) fn events(plane: &ControlPlane) -> Vec<Value> {
    let asked = ["get", "--raw", "/apis/events.k8s.io/v1/events"];
    let all: Value = serde_json::from_str(&plane.kubectl(&asked).unwrap()).unwrap();
    let all = all["items"].as_array().unwrap().iter();
    all.filter(|event| event["reportingController"] == "podstuck-agent").cloned().collect()
}

/// An agent's writes, with a time of their own.
struct Desk {
    reporter: Reporter,
    events: Events,
    now: Duration,
    /// Second and outcome of each write.
    outcomes: Vec<(u64, Outcome)>,
}

impl Desk {
    async fn new(node: &str, kubeconfig: &Path, top: &Path) -> Self {
        let events = Events::of(node, Some(kubeconfig.into())).await.unwrap();
        let directory = top.join(node);
        std::fs::create_dir_all(&directory).unwrap();
        let reporter = Reporter::new(node, Some(events.clone()), directory);
        Self { reporter, events, now: Duration::ZERO, outcomes: Vec::new() }
    }

    /// Takes a finding about a pod; its write is due after this part of a minute.
    fn take(&mut self, pod: &str, state: &str, certainty: &str, random: f64) {
        self.reporter.board.take(&finding(pod, "down", state, certainty), self.now, random);
    }

    async fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += Duration::from_secs(1);
            self.reporter.write_due(self.now);
            if self.reporter.writing.is_some() {
                self.end().await;
            }
        }
    }

    async fn end(&mut self) {
        let written = self.reporter.written().await.unwrap();
        self.outcomes.push((self.now.as_secs(), written.1));
        self.reporter.wrote(written, self.now);
    }

    /// A write that the API server stores, and whose answer is lost.
    async fn lose_an_answer(&mut self) {
        let write = self.reporter.board.due(self.now).unwrap();
        self.reporter.save();
        let (write, outcome, _) = self.events.clone().write(write).await;
        assert_eq!(outcome, Outcome::Done);
        self.reporter.wrote((write, Outcome::Later, Some("lost".into())), self.now);
    }

    /// Written, outrun, refused, errors.
    fn counts(&self) -> [u64; 4] {
        let counts = self.reporter.board.counts();
        [counts.written, counts.outrun, counts.refused, self.reporter.api_errors]
    }
}

/// What the Events say about each pod or node.
fn said(plane: &ControlPlane) -> BTreeMap<String, Vec<String>> {
    let mut said = BTreeMap::<String, Vec<String>>::new();
    for event in events(plane) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let note = text(&event["note"]);
        let note = note.split([';', ':']).next().unwrap();
        let reasons = said.entry(text(&event["regarding"]["name"])).or_default();
        reasons.push(format!("{}: {note}", text(&event["reason"])));
    }
    said
}

#[tokio::test]
async fn an_api_server_that_is_killed_has_each_event_once_in_the_end() {
    if let Err(missing) = ControlPlane::is_possible() {
        return skip(format!("{missing:#}"));
    }
    let top = tempfile::tempdir().unwrap();
    let (plane, kubeconfig) = cluster(top.path());
    let desk = async |name| Desk::new(name, &kubeconfig, top.path()).await;
    let mut waiting = desk("waiting").await;
    let mut writing = desk("writing").await;
    let mut ended = desk("ended").await;
    let mut released = desk("released").await;
    released.take("released", "new", "firm", 0.0);
    released.pass(1).await;
    waiting.take("waiting", "new", "firm", 1.0);

    // A server that is stopped has the request, and no time for it.
    let server = Pid::from_raw(plane.pid(SERVER).unwrap().cast_signed());
    kill(server, Signal::SIGSTOP).unwrap();
    for (desk, pod) in [(&mut writing, "writing"), (&mut ended, "ended")] {
        desk.take(pod, "new", "firm", 0.0);
        desk.reporter.write_due(desk.now);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let words = plane.kill(SERVER).unwrap();
    for desk in [&mut writing, &mut ended] {
        desk.end().await;
    }
    released.take("released", "cleared", "firm", 0.0);
    ended.take("ended", "cleared", "firm", 0.0);
    let mut all = [waiting, writing, ended, released];
    for desk in &mut all {
        desk.pass(120).await;
        println!("{:?}", desk.outcomes);
    }
    let failed = |desk: &Desk| {
        let failed = desk.outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Later);
        failed.map(|(second, _)| *second).collect::<Vec<_>>()
    };
    assert_eq!(all.each_ref().map(failed), [vec![60, 120], vec![0, 60], vec![0, 60], vec![2, 62]]);

    plane.start_again(SERVER, &words).unwrap();
    // A server that has just started denies what it permits a moment later. None of this is for good.
    let begun = Instant::now();
    let probe = desk("probe").await;
    let mut answers = BTreeSet::new();
    loop {
        let stuck = crate::stuck::Stuck::of(&finding("probe", "down", "new", "firm")).unwrap();
        let write = Write::Pod { stuck: Box::new(stuck), replaces: Vec::new() };
        let (_, outcome, why) = probe.events.clone().write(write).await;
        answers.insert(format!("{outcome:?}: {}", why.unwrap_or_default()));
        assert!(outcome != Outcome::Refused && begun.elapsed().as_secs() < 120, "{answers:#?}");
        if outcome == Outcome::Done {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("measured: {answers:#?} in {:.1?}", begun.elapsed());

    for desk in &mut all {
        desk.pass(8 * 60).await;
        println!("{:?}", desk.outcomes);
    }
    let is_down = || vec!["Down: down (certain)".to_owned()];
    let mut expected = BTreeMap::from([
        ("cart-probe".to_owned(), is_down()),
        ("cart-waiting".into(), is_down()),
        ("cart-writing".into(), is_down()),
        ("cart-released".into(), vec!["Released: down no longer holds this pod".into()]),
    ]);
    assert_eq!(said(&plane), expected);
    let counts = all.each_ref().map(Desk::counts);
    assert_eq!(counts, [[1, 0, 0, 2], [1, 0, 0, 2], [0, 1, 0, 2], [2, 0, 0, 2]]);

    // The API server stores an Event, and is killed before it answers.
    let mut changed = desk("changed").await;
    changed.take("changed", "new", "firm", 0.0);
    changed.lose_an_answer().await;
    changed.take("changed", "update", "likely", 0.0);
    let mut over = desk("over").await;
    over.take("over", "new", "firm", 0.0);
    over.lose_an_answer().await;
    over.take("over", "cleared", "firm", 0.0);
    let mut of_node = desk("of-node").await;
    of_node.take("a", "new", "firm", 0.0);
    of_node.take("b", "new", "firm", 0.0);
    of_node.lose_an_answer().await;
    of_node.take("c", "new", "firm", 0.0);
    let mut killed = desk("killed").await;
    killed.take("killed", "new", "firm", 0.0);
    killed.lose_an_answer().await;
    // Its pod is released before the next agent starts.
    let next = desk("killed").await;
    for mut desk in [changed, over, of_node, next] {
        desk.pass(6 * 60).await;
        println!("{:?}", desk.outcomes);
    }
    let released = || vec!["Released: down no longer holds this pod".to_owned()];
    expected.extend([
        ("cart-changed".to_owned(), vec!["Down: down (likely)".to_owned()]),
        ("cart-over".into(), released()),
        ("of-node".into(), vec!["Down: 3 pods are stuck by down".into()]),
        ("cart-a".into(), is_down()),
        ("cart-b".into(), is_down()),
        ("cart-c".into(), is_down()),
        ("cart-killed".into(), released()),
    ]);
    assert_eq!(said(&plane), expected);
}
