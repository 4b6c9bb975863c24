//! A real kubelet, late: pods that have been stuck for minutes, asked about by their names. Each has its
//! fault by the mechanism of the field; the first cause must be right and firm, and its first command,
//! as printed, must release the pod.
//!
//! `cargo xtask node test` builds the node and runs this. `PODSTUCK_NODE_LATE` says how many seconds
//! after the deletions it asks; at least 128, after which kubelet tries only each 122 s. With
//! `PODSTUCK_NODE_RUNTIME=docker` dockerd runs the containers, with `PODSTUCK_NODE_FROM=pod` it asks from a
//! debug pod, with `PODSTUCK_NODE_API=hung` while the API server
//! does not answer, with `PODSTUCK_NODE_API=refused` without one. `PODSTUCK_NODE_WHOLE=1` prints whole answers.
//! `PODSTUCK_NODE_RECORD=DIRECTORY` keeps a recording of each diagnosis there.
//! With `PODSTUCK_BLESS=1` the answers are written to docs/on-node.md.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    reason = "a test stops at the first surprise"
)]

#[path = "common/as_by_systemd.rs"]
mod as_by_systemd;
#[path = "on_node/asked.rs"]
mod asked;
#[path = "on_node/borrowed.rs"]
mod borrowed;
#[path = "on_node/case.rs"]
mod case;
#[path = "on_node/cases.rs"]
mod cases;
#[path = "on_node/csi.rs"]
mod csi;
#[path = "on_node/deployed.rs"]
mod deployed;
#[path = "on_node/faults.rs"]
mod faults;
#[path = "on_node/healthy.rs"]
mod healthy;
#[path = "on_node/listed.rs"]
mod listed;
#[path = "on_node/live.rs"]
mod live;
#[path = "on_node/lossy.rs"]
mod lossy;
#[path = "dist/made.rs"]
mod made;
#[path = "on_node/missed.rs"]
mod missed;
#[path = "on_node/plugin.rs"]
mod plugin;
#[path = "on_node/pods.rs"]
mod pods;
#[path = "on_node/table.rs"]
mod table;
#[path = "on_node/troubles.rs"]
mod troubles;

use std::{
    env,
    ffi::OsString,
    fmt::Write,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use asked::{Asked, Ended, From, Hung, is_chosen, obey};
use borrowed::Borrowed;
use case::{Case, End, Trouble, api_hangs, api_refuses};
use cases::CASES;
use deployed::Deployed;
use faults::Fault;
use jiff::Timestamp;
use listed::Listed;
use live::{Live, Reported};
use pods::{OnNode, is_there};
use podstuck_test_node::{Node, Runtime};
use podstuck_tests::requires;
use troubles::TROUBLES;

/// Three of kubelet's longest gaps: what a remedy has cured is tried again by then, and a container that could
/// not be removed goes through several of kubelet's loops.
const RELEASED: Duration = Duration::from_secs(366);

/// What goes on is asked about when the containers have ended.
const SOON: Duration = Duration::from_secs(8);

fn late() -> Duration {
    let set = env::var("PODSTUCK_NODE_LATE").ok();
    Duration::from_secs(set.map_or(140, |text| text.parse().unwrap()))
}

fn runtime() -> Runtime {
    if is_chosen("PODSTUCK_NODE_RUNTIME", "docker") { Runtime::Docker } else { Runtime::Containerd }
}

/// Those that `PODSTUCK_NODE_CASES` names, or all.
fn chosen(trouble: Trouble) -> Vec<&'static Case> {
    let names = env::var("PODSTUCK_NODE_CASES").ok();
    let is_named = |case: &Case| {
        names.as_ref().is_none_or(|names| names.split(',').any(|name| name == case.name))
    };
    let wanted = |case: &&Case| case.trouble == trouble && is_named(case);
    CASES.iter().chain(TROUBLES).filter(wanted).collect()
}

/// A case under way.
struct Stuck {
    case: &'static Case,
    uid: String,
    _faults: Vec<Fault>,
    deleted: Timestamp,
    asked: Option<Asked>,
    reported: Reported,
    released_after: Option<Duration>,
}

#[test]
#[ignore = "needs a Kubernetes node: cargo xtask node test"]
fn a_late_arrival_is_right_and_its_remedy_releases_the_pod() {
    play(Trouble::None);
}

#[test]
#[ignore = "needs a Kubernetes node: cargo xtask node test"]
fn a_late_arrival_is_right_where_the_advice_is_for_the_whole_node() {
    play(Trouble::Advised);
}

#[test]
#[ignore = "needs a Kubernetes node: cargo xtask node test"]
fn a_late_arrival_is_right_where_kubelet_was_restarted() {
    play(Trouble::KubeletRestarted);
}

#[test]
#[ignore = "needs a Kubernetes node: cargo xtask node test"]
fn a_late_arrival_is_right_where_kubelet_is_stopped() {
    play(Trouble::KubeletStopped);
}

#[test]
#[ignore = "needs a Kubernetes node: cargo xtask node test"]
fn a_late_arrival_is_right_where_kubelet_has_ended() {
    play(Trouble::KubeletEnded);
}

#[test]
#[ignore = "needs a Kubernetes node: cargo xtask node test"]
fn a_late_arrival_is_right_where_the_runtime_does_not_answer() {
    play(Trouble::RuntimeStopped);
}

#[test]
#[ignore = "needs a Kubernetes node: cargo xtask node test"]
fn a_late_arrival_is_right_where_the_runtime_has_ended() {
    play(Trouble::RuntimeEnded);
}

#[test]
#[ignore = "needs a Kubernetes node: cargo xtask node test"]
fn kubectl_podstuck_says_what_holds_a_pod_and_removes_its_own() {
    requires!(made::made());
    let borrowed = Borrowed::with(Runtime::Containerd);
    let node = borrowed.node();
    let prepared = plugin::Prepared::of(node);
    let cases = CASES.iter().filter(|case| ["immutable", "finalizer"].contains(&case.name));
    let cases: Vec<&'static Case> = cases.collect();
    let (mut all, _troubled) = make_stuck(node, &cases, Trouble::None);
    thread::sleep(SOON);
    for stuck in &mut all {
        let case = stuck.case;
        let answer = prepared.ask(&[&format!("default/{}", case.name)]);
        println!("{} after {:?}:\n{}{}", case.name, answer.took, answer.out, answer.error);
        assert_eq!(answer.status, Some(1), "{}", case.name);
        let pod = format!("default/{}", case.name);
        let is_named = |line: &str| line.contains(&pod) && line.contains(case.cause);
        assert!(answer.out.lines().any(is_named), "{}", answer.out);
        assert!(answer.took < plugin::PATIENCE, "{:?}", answer.took);
        assert!(!answer.out.contains("probe missing"), "the least privilege is enough for them");
        assert!(prepared.is_clean());
        // For the command that releases it.
        stuck.asked = Some(From::Node.ask(node, case.name, &[]));
    }
    let missing = prepared.ask(&["default/no-such-pod"]);
    assert!(
        missing.status == Some(2) && missing.error.contains("has no Pod default/no-such-pod"),
        "{}",
        missing.error
    );
    let nowhere =
        prepared.ask(&["default/immutable", "--examine", "--image", "docker.io/library/none:1"]);
    assert_eq!(nowhere.status, Some(3), "{}{}", nowhere.out, nowhere.error);
    assert!(prepared.is_clean());
    release(node, &mut all);
}

/// What holds the pods of the agent's test, each by another mechanism, and the reason of its Event.
const FOR_AGENT: [(&str, &str); 5] = [
    ("immutable", "ImmutableAttribute"),
    ("read-only", "MountOverVolume"),
    ("held-tmpfs", "VolumeHeldByHostProcess"),
    ("bind-mount", "EmptydirBidirectionalSubmount"),
    ("frozen", "CgroupV1Frozen"),
];

#[test]
#[ignore = "needs a Kubernetes node: cargo xtask node test"]
fn the_charts_agent_names_what_holds_a_pod_until_its_command_releases_it() {
    requires!(made::made());
    requires!(deployed::has_helm());
    let borrowed = Borrowed::with(Runtime::Containerd);
    let node = borrowed.node();
    let agent = Deployed::on(node);
    let run = |name: &str, command: &str| {
        println!("{name}$ {command}");
        let done = Command::new("sh").args(["-c", command]).status().unwrap();
        assert!(done.success(), "{name}: {command}");
    };
    let mut all = Vec::new();
    let mut before = Vec::new();
    for (name, reason) in FOR_AGENT {
        let case = CASES.iter().find(|case| case.name == name).unwrap();
        all.extend(make_stuck(node, &[case], Trouble::None).0);
        let event = agent.event(name, reason);
        println!("{name}: {}", event["note"]);
        let described = node.kubectl(&["describe", "pod", name]).unwrap();
        let (_, events) = described.split_once("\nEvents:").unwrap();
        println!("{events}");
        assert!(events.contains(reason) && events.contains(&command_of(&event)), "{events}");
        match name {
            "immutable" => {}
            // Two are stuck while no agent runs.
            "read-only" => {
                before = agent.identities(&["immutable", "read-only"]);
                agent.kill();
                agent.wait_for_findings(2);
            }
            // The agent after it has written an Event, and might have repeated those of the one before.
            "held-tmpfs" => {
                assert_eq!(agent.identities(&["immutable", "read-only"]), before);
                for pod in ["immutable", "read-only", name] {
                    run(pod, &command_of(&agent.events(pod)[0]));
                }
            }
            _ => run(name, &command_of(&event)),
        }
    }
    for (name, _) in FOR_AGENT {
        agent.event(name, "Released");
        node.wait_for(name, || !is_there(node, name)).unwrap();
    }
}

/// The first command of an Event.
fn command_of(event: &serde_json::Value) -> String {
    let note = event["note"].as_str().unwrap();
    let (_, way_out) = note.split_once("; on the node: ").unwrap();
    let (way_out, _) = way_out.split_once("; seen: ").unwrap();
    way_out.split_once(": ").unwrap().1.to_owned()
}

fn play(trouble: Trouble) {
    let cases = chosen(trouble);
    if cases.is_empty() {
        return;
    }
    let borrowed = Borrowed::with(runtime());
    let node = borrowed.node();
    let mut live = Live::start();
    let (mut all, _troubled) = make_stuck(node, &cases, trouble);
    let deleted = Instant::now();
    let from = From::chosen(node);
    thread::sleep(SOON);
    // Without kubelet there are none of its credentials.
    let is_kubelets = trouble != Trouble::KubeletEnded;
    let options =
        if is_kubelets { Vec::new() } else { vec!["--api".into(), node.kubeconfig().into()] };
    ask(node, (&from, &options), &mut all, |case| case.end == End::Time);
    thread::sleep(late().saturating_sub(deleted.elapsed()));
    let hung = api_hangs().then(|| Hung::of(node, "kube-apiserver"));
    let ended = api_refuses().then(|| Ended::of(node, "kube-apiserver"));
    let listed = Listed::ask(&options);
    ask(node, (&from, &options), &mut all, |case| case.end != End::Time);
    for stuck in &mut all {
        stuck.reported = live.reported(stuck, &node.log("kubelet"));
        println!("{}: {}", stuck.case.name, stuck.reported);
    }
    drop((hung, ended));
    let answers = || node.kubectl(&["get", "--raw", "/readyz"]).is_ok();
    node.wait_for("the API server", answers).unwrap();
    release(node, &mut all);
    table::write(&all, trouble);
    // All at once, since each that is wrong is worth knowing.
    let mut wrong = String::new();
    for stuck in &all {
        let asked = stuck.asked.as_ref().unwrap();
        let mut complaints = stuck.case.complaints(asked, stuck.released_after);
        // The list is of what is left, and `many` may have gone.
        if stuck.case.end != End::Time {
            complaints.extend(listed.complaint(stuck, asked.first()));
        }
        if stuck.case.is_reported_live() {
            complaints.extend_from_slice(&stuck.reported.wrong);
        }
        for complaint in complaints {
            writeln!(wrong, "{}: {complaint}", stuck.case.name).unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Asks about some of them.
fn ask(
    node: &Node,
    (from, options): (&From, &[OsString]),
    all: &mut [Stuck],
    which: impl Fn(&Case) -> bool,
) {
    for stuck in all.iter_mut().filter(|stuck| which(stuck.case)) {
        let asked = from.ask(node, stuck.case.name, options);
        println!("{}: {asked}", stuck.case.name);
        stuck.asked = Some(asked);
    }
}

/// Makes the pods, lets them run, does to each what will hold it, and deletes them.
fn make_stuck(
    node: &Node,
    cases: &[&'static Case],
    trouble: Trouble,
) -> (Vec<Stuck>, Option<Hung>) {
    for case in cases {
        node.apply(&(case.pod)(case.name)).unwrap();
    }
    let mut all = Vec::new();
    for case in cases {
        let phase = ["get", "pod", case.name, "-o", "jsonpath={.status.phase}"];
        let runs = || {
            node.wait_for(case.name, || node.kubectl(&phase).unwrap() == "Running").unwrap();
            OnNode::of(node, case.name)
        };
        let faults = (case.faults)(node, &runs());
        all.push(Stuck {
            case,
            // Another one may have come in its place.
            uid: runs().uid,
            _faults: faults,
            deleted: Timestamp::now(),
            asked: None,
            reported: Reported::default(),
            released_after: None,
        });
    }
    let troubled = match trouble {
        Trouble::None | Trouble::Advised => None,
        Trouble::KubeletRestarted => {
            node.restart_kubelet().unwrap();
            None
        }
        Trouble::KubeletEnded => {
            node.end("kubelet").unwrap();
            None
        }
        Trouble::KubeletStopped => Some(Hung::of(node, "kubelet")),
        Trouble::RuntimeEnded => {
            node.end(runtime().daemon()).unwrap();
            None
        }
        Trouble::RuntimeStopped => Some(Hung::of(node, runtime().daemon())),
    };
    let deleted = all.iter().filter(|stuck| stuck.case.end != End::Never);
    let names = deleted.map(|stuck| stuck.case.name);
    let delete: Vec<&str> = ["delete", "pod", "--wait=false"].into_iter().chain(names).collect();
    let now = Timestamp::now();
    all.iter_mut().for_each(|stuck| stuck.deleted = now);
    node.kubectl(&delete).unwrap();
    (all, troubled)
}

/// Runs the reported commands, and waits until the pods are gone.
fn release(node: &Node, all: &mut [Stuck]) {
    let begun = Instant::now();
    for stuck in all.iter() {
        let asked = stuck.asked.as_ref().unwrap();
        if stuck.case.end == End::Command && stuck.case.is_released() {
            (0..1 + usize::from(stuck.case.next.is_some())).for_each(|nth| obey(node, asked, nth));
        }
        if let Some(follow) = stuck.case.advised {
            follow(node);
        }
    }
    while begun.elapsed() < RELEASED {
        let waiting = all
            .iter_mut()
            .filter(|stuck| stuck.case.is_released() && stuck.released_after.is_none());
        let mut is_left = false;
        for stuck in waiting {
            if is_there(node, stuck.case.name) {
                is_left = true;
            } else {
                stuck.released_after = Some(begun.elapsed());
                println!("{}: gone after {:?}", stuck.case.name, begun.elapsed());
            }
        }
        if !is_left {
            return;
        }
        thread::sleep(Duration::from_secs(1));
    }
}
