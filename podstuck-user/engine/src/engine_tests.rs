//! All trackers together on a healthy removal and on a stuck one.

use std::sync::Arc;

use jiff::Timestamp;

use super::*;
use crate::{
    ids,
    model::{
        call::Outcome,
        degraded::{Degraded, Feed},
        diagnosis::Stage,
        errno::Errno,
        evidence::{Certainty, Source},
        finding::FindingState,
        hung::MountPoint,
        identity::{Component, Pod},
        node::PodState,
        node_record::{NodeRecord, Ready},
        object::Attributes,
        said::{Complaint, Said},
    },
    query::{Answer, ObjectAttributes},
    testing::{actor, attributes, block_volume, failed, pod_record, pod_state, run, stuck},
    tracker::TrackerId,
};

/// Passes an operation; returns the queries and the number of findings.
fn show(engine: &mut Engine, op: &Operation) -> (Vec<Query>, usize) {
    sorted(engine.take(&Event { at: op.end, what: What::Operation(Box::new(op.clone())) }))
}

fn sorted(outputs: Vec<Output>) -> (Vec<Query>, usize) {
    let findings = outputs.iter().filter(|output| matches!(output, Output::Finding(_))).count();
    let queries = outputs.into_iter().filter_map(|output| match output {
        Output::Query(query) => Some(*query),
        _ => None,
    });
    (queries.collect(), findings)
}

fn engine() -> Engine {
    Engine::new(run())
}

fn crossed() -> Operation {
    let mut op = failed(Call::Unlinkat, Errno::EPERM, "m/x", 1.0);
    op.outcome = Outcome::OK;
    op.reason = reason::CROSSED;
    op.mount_depth = 1;
    op
}

#[test]
fn the_noise_of_a_healthy_removal_asks_nothing() {
    let mut engine = engine();
    for (call, errno) in [
        (Call::Unlinkat, Errno::EISDIR),
        (Call::UnlinkatDir, Errno::ENOTEMPTY),
        (Call::Unlinkat, Errno::ENOENT),
        (Call::UnlinkatDir, Errno::ENOENT),
        (Call::Umount2, Errno::EINVAL),
        (Call::Umount2, Errno::ENOENT),
    ] {
        for second in 0..100 {
            // Each removal starts with one such failure per directory.
            let op = failed(call, errno, &format!("x{second}"), f64::from(second));
            let (queries, findings) = show(&mut engine, &op);
            assert!(queries.is_empty() && findings == 0, "{call:?} {errno:?}");
        }
    }
}

#[test]
fn a_container_may_delete_through_its_own_mounts() {
    let mut op = crossed();
    assert_eq!(show(&mut engine(), &op).0.len(), 1);
    op.actor = Arc::new(actor(Component::Workload));
    assert!(show(&mut engine(), &op).0.is_empty());
}

#[test]
fn a_mount_that_was_deleted_through_is_not_reported_again_as_busy() {
    let mut engine = engine();
    show(&mut engine, &crossed());
    let busy = failed(Call::UnlinkatDir, Errno::EBUSY, "m", 2.0);
    assert!(show(&mut engine, &busy).0.is_empty());
}

#[test]
fn one_busy_removal_is_not_yet_a_cause_two_attempts_are() {
    let mut engine = engine();
    let mut counts = Vec::new();
    for second in [1.0, 1.5] {
        let op = failed(Call::UnlinkatDir, Errno::EBUSY, "m", second);
        let (queries, _) = show(&mut engine, &op);
        let query = Box::new(queries[0].clone());
        let what = What::Answer { query, answer: Box::new(Answer::Mounts(None)) };
        counts.push(sorted(engine.take(&Event { at: op.end, what })).1);
    }
    assert_eq!(counts, [0, 1]);
}

#[test]
fn a_hung_call_and_a_dead_mount_of_one_target_do_not_end_each_other() {
    let mut engine = engine();
    let op = failed(Call::UnlinkatDir, Errno::EBUSY, "m", 1.0);
    let (queries, _) = show(&mut engine, &op);
    let is_dead_mounts = |query: &&Query| query.tracker == TrackerId::DeadMount;
    let query = Box::new(queries.iter().find(is_dead_mounts).unwrap().clone());
    let mount =
        MountPoint { point: op.path.clone(), fs_type: "fuse".into(), ..MountPoint::default() };
    let answer = Box::new(Answer::FuseMounts(vec![(mount, Errno::ENOTCONN as i32)]));
    engine.take(&Event { at: op.end, what: What::Answer { query, answer } });
    let mut hung = stuck(&["request_wait_answer", "fuse_rmdir"]);
    hung.at = Monotonic(60_000_000_000);
    assert_eq!(hung.target_id, op.target_id);
    engine.take(&Event { at: hung.at, what: What::Stuck(Box::new(hung.clone())) });
    assert_eq!(open(&engine), ["fuse-daemon-dead", "fuse-daemon-hung"]);
    // Each ends through its own object.
    hung.over = true;
    let ended = engine.take(&Event { at: hung.at, what: What::Stuck(Box::new(hung)) });
    assert_eq!(sorted(ended).1, 1);
    assert_eq!(open(&engine), ["fuse-daemon-dead"]);
    let mut gone = failed(Call::UnlinkatDir, Errno::EBUSY, "m", 9.0);
    (gone.outcome, gone.reason) = (Outcome::OK, reason::RECOVERED);
    show(&mut engine, &gone);
    assert!(open(&engine).is_empty());
}

/// The findings that hold now.
fn open(engine: &Engine) -> Vec<&'static str> {
    let findings = engine.findings().filter(|finding| finding.state != FindingState::Cleared);
    let mut ids: Vec<_> = findings.map(|finding| finding.id.as_str()).collect();
    ids.sort_unstable();
    ids
}

/// A refused removal from a log, and the result of a check of the object.
fn logged_and_checked(immutable: bool) -> (Vec<Query>, Engine) {
    let mut engine = engine();
    let mut op = failed(Call::Unlinkat, Errno::EPERM, "f", 1.0);
    (op.logged_in, op.directory) = (Some("log of kubelet".into()), (0, 0));
    let at = Monotonic(9_000_000_000);
    let (queries, _) = sorted(engine.take(&Event { at, what: What::Logged(Box::new(op)) }));
    let object = Attributes { known: true, immutable, append_only: false };
    let seen = ObjectAttributes {
        same_directory: false,
        ..attributes(object, Attributes { immutable: false, ..object })
    };
    for query in &queries {
        let (query, answer) = (Box::new(query.clone()), Box::new(Answer::Attributes(Ok(seen))));
        engine.take(&Event { at, what: What::Answer { query, answer } });
    }
    (queries, engine)
}

#[test]
fn a_logged_failure_is_checked_and_blamed_only_on_what_still_holds() {
    let (queries, engine) = logged_and_checked(true);
    let findings: Vec<&Finding> = engine.findings().collect();
    assert_eq!((queries.len(), findings.len()), (1, 1));
    let finding = &findings[0];
    assert_eq!(finding.id.as_str(), "immutable-attribute");
    assert_eq!(finding.certainty, Certainty::Firm);
    assert_eq!(finding.evidence[0].source, Source::Log("log of kubelet".into()));
    let (queries, engine) = logged_and_checked(false);
    assert_eq!(
        (queries.len(), engine.findings().count()),
        (1, 0),
        "cured since, and nothing to admit"
    );
}

#[test]
fn a_pod_that_no_kubelet_will_remove_has_a_note() {
    let notes = |kubelets: &[u32], stopped: &[u32], is_left: bool, ready: &str| {
        let pod = pod_state("u");
        let who = Pod { uid: "u".into(), namespace: None, name: None };
        let mut engine = Engine::new(Run { pod: Some(who), ..run() });
        let sample = NodeSample {
            kubelets: kubelets.to_vec(),
            stopped: stopped.to_vec(),
            pods: if is_left { vec![pod] } else { Vec::new() },
            ..NodeSample::default()
        };
        engine.take(&Event { at: Monotonic(1), what: What::Sample(Arc::new(sample)) });
        let since = Some(Timestamp::UNIX_EPOCH);
        let ready = Ready { status: ready.into(), since, reason: "NodeStatusUnknown".into() };
        let node = NodeRecord { ready: Some(ready), ..node(Vec::new()) };
        engine.take(&Event { at: Monotonic(2), what: What::Node(Box::new(node)) });
        engine.diagnosis().notes.join("; ")
    };
    assert!(notes(&[], &[], true, "True").starts_with("no kubelet runs on this node"));
    assert!(notes(&[7], &[7], true, "True").contains("kubelet (pid 7) is stopped"));
    assert_eq!(notes(&[7], &[], true, "True"), "");
    assert_eq!(notes(&[], &[], false, "False"), "", "there is nothing to remove");
    let not_ready = notes(&[7], &[], true, "Unknown");
    assert!(not_ready.contains("node n as not ready since 1970-01-01T00:00:00Z"), "{not_ready}");
}

#[test]
fn a_scan_that_could_not_read_does_not_say_that_nothing_is_left() {
    let who = Pod { uid: "u".into(), namespace: None, name: None };
    let mut engine = Engine::new(Run { pod: Some(who), ..run() });
    let notes = |engine: &Engine| engine.diagnosis().notes.join("; ");
    assert!(engine.target_may_be_left());
    assert!(notes(&engine).starts_with("the node was not scanned"), "{}", notes(&engine));
    let look = |pods: Vec<PodState>| {
        let sample =
            NodeSample { kubelets: vec![7], silent: vec![8, 9], pods, ..NodeSample::default() };
        Event { at: Monotonic(1), what: What::Sample(Arc::new(sample)) }
    };
    engine.take(&look(vec![pod_state("u")]));
    assert!(engine.target_may_be_left());
    assert!(notes(&engine).contains("not known: pid 8, 9."), "{}", notes(&engine));
    engine.take(&look(Vec::new()));
    assert_eq!((engine.target_may_be_left(), notes(&engine)), (false, String::new()));
}

/// The Node object; the API server lacks these pods.
fn node(missing: Vec<Pod>) -> NodeRecord {
    let read = Timestamp::UNIX_EPOCH;
    NodeRecord { node: "n".into(), read, ready: None, kubelet: None, drivers: None, missing }
}

#[test]
fn a_pod_that_the_api_server_does_not_have_is_not_blocked() {
    let blocks = |answers: &[&[&str]]| {
        let mut engine = engine();
        let mut op = failed(Call::Unlinkat, Errno::EPERM, "f", 1.0);
        let pod = |uid: &str| Pod { uid: uid.into(), namespace: None, name: None };
        Arc::make_mut(&mut op.target).pod = Some(pod("u"));
        for missing in answers {
            let node = node(missing.iter().map(|uid| pod(uid)).collect());
            engine.take(&Event { at: Monotonic(1), what: What::Node(Box::new(node)) });
        }
        let query = Box::new(show(&mut engine, &op).0.remove(0));
        let plain = Attributes { known: true, ..Attributes::default() };
        let attributes = attributes(Attributes { immutable: true, ..plain }, plain);
        let answer = Box::new(Answer::Attributes(Ok(attributes)));
        engine.take(&Event { at: op.end, what: What::Answer { query, answer } });
        let found: Vec<&Finding> = engine.findings().collect();
        assert_eq!((found.len(), found[0].id.as_str()), (1, "immutable-attribute"));
        let said =
            found[0].evidence.iter().any(|fact| fact.source == Source::Api(Timestamp::UNIX_EPOCH));
        (found[0].blocks_deletion, said)
    };
    assert_eq!(blocks(&[&["another"]]), (Some(true), false));
    assert_eq!(blocks(&[&["u"]]), (Some(false), true));
    assert_eq!(blocks(&[&["u"], &[]]), (Some(false), true), "a later answer is about other pods");
}

fn record(deletion: Option<i64>, is_mirror: bool) -> Event {
    let record = PodRecord {
        deletion: deletion.map(|second| Timestamp::from_second(second).unwrap()),
        node: Some("n".into()),
        is_mirror,
        read: Some(Timestamp::UNIX_EPOCH),
        ..pod_record("u")
    };
    Event { at: Monotonic(1), what: What::Record { record: Box::new(record), node: "n".into() } }
}

fn looked(second: u64, pods: Vec<PodState>) -> Event {
    let at = Monotonic(second * 1_000_000_000);
    let sample =
        NodeSample { at, begun: Some(at), kubelets: vec![7], pods, ..NodeSample::default() };
    Event { at, what: What::Sample(Arc::new(sample)) }
}

/// Only the run knows it: a log names the pod by its UID.
#[test]
fn a_finding_about_the_pod_in_question_has_its_name() {
    let pod = |name: Option<&str>| {
        let named = name.map(str::to_owned);
        Pod { uid: "u".into(), namespace: named.as_ref().map(|_| "shop".into()), name: named }
    };
    let found = |asked: Pod| {
        let mut engine = Engine::new(Run { pod: Some(asked), ..run() });
        let mut hung = stuck(&["request_wait_answer", "fuse_rmdir"]);
        hung.at = Monotonic(60_000_000_000);
        Arc::make_mut(&mut hung.target).pod = Some(pod(None));
        engine.take(&Event { at: hung.at, what: What::Stuck(Box::new(hung)) });
        engine.findings().next().unwrap().pod.clone()
    };
    for asked in [pod(Some("cart-0")), pod(None)] {
        assert_eq!(found(asked.clone()), Some(asked));
    }
}

#[test]
fn a_firm_answer_stands_sooner_where_a_scan_confirms_it() {
    let (_, mut engine) = logged_and_checked(true);
    let at = |milliseconds: u64| Monotonic(9_000_000_000 + milliseconds * 1_000_000);
    let is_firm = |engine: &Engine, milliseconds| engine.is_firm(at(milliseconds));
    assert_eq!([500, 1500, 2000].map(|it| is_firm(&engine, it)), [false, false, true]);
    // A scan from before the cause was known adds nothing.
    engine.take(&looked(9, vec![pod_state("u")]));
    assert_eq!([1500, 2000].map(|it| is_firm(&engine, it)), [false, true]);
    engine.take(&looked(10, vec![pod_state("u")]));
    assert_eq!([900, 1000].map(|it| is_firm(&engine, it)), [false, true]);
}

#[test]
fn a_likely_answer_whose_cause_is_never_certain_ends_the_run() {
    let who = Pod { uid: "u".into(), namespace: None, name: None };
    let mut run = Run { pod: Some(who), ..run() };
    run.start.target = Some("u".into());
    let mut engine = Engine::new(run);
    let text = "failed to find runtime handler nvidia";
    let at = Timestamp::from_second(60).unwrap();
    let said = Said::new(Component::Kubelet, "a log", "u", at, text);
    let said = Said { complaint: Some(Complaint::HandlerGone), times: 2, ..said };
    engine.take(&Event { at: Monotonic(70_000_000_000), what: What::Said(Box::new(said)) });
    engine.take(&looked(70, vec![pod_state("u")]));
    let found: Vec<_> = engine.findings().map(|it| (it.id, it.certainty)).collect();
    assert_eq!(found, [(ids::RUNTIME_HANDLER_GONE, Certainty::Likely)]);
    let ends = |second: u64| engine.is_firm(Monotonic(second * 1_000_000_000));
    assert_eq!([71, 98, 100].map(ends), [false, false, true]);
    let reading = Degraded { is_passing: true, ..Degraded::new("logs", &[Feed::Logs]) };
    for (parts, ends) in [(vec![reading], false), (Vec::new(), true)] {
        engine.take(&Event { at: Monotonic(100_000_000_000), what: What::Degraded(parts) });
        assert_eq!(engine.is_firm(Monotonic(101_000_000_000)), ends, "while logs are still read");
    }
}

#[test]
fn a_record_that_is_to_go_is_left_when_nothing_else_is() {
    let who = Pod { uid: "u".into(), namespace: None, name: None };
    let after = |events: &[Event]| {
        let mut engine = Engine::new(Run { pod: Some(who.clone()), ..run() });
        events.iter().for_each(|event| drop(engine.take(event)));
        let answer = engine.diagnosis();
        (engine.target_may_be_left(), answer.stages[0].stage, answer)
    };
    let (left, stage, answer) = after(&[record(Some(0), false), looked(2, Vec::new())]);
    assert_eq!((left, stage), (true, Stage::Api));
    assert!(answer.stages[0].fact.contains("1970-01-01T00:00:00Z"), "{:?}", answer.stages);
    assert!(answer.causes.is_empty());
    assert!(answer.next.iter().any(|next| next.contains("webhook")), "{:?}", answer.next);
    assert!(answer.notes.is_empty(), "{:?}", answer.notes);
    // The directory was removed after the record was read; the record may have been, too.
    let gone = [record(Some(0), false), looked(2, vec![pod_state("u")]), looked(4, Vec::new())];
    let (left, stage, _) = after(&gone);
    assert_eq!((left, stage), (false, Stage::Gone));
    // A scan that could not read all roots does not decide.
    let mut unread = looked(2, Vec::new());
    if let What::Sample(sample) = &mut unread.what {
        Arc::make_mut(sample).unread.push("/k2".into());
    }
    let (left, stage, _) = after(&[record(Some(0), false), unread, looked(4, Vec::new())]);
    assert_eq!((left, stage), (true, Stage::Api));
    // No deletion was requested, or the grace period is not over.
    let (left, stage, _) = after(&[record(None, false), looked(2, Vec::new())]);
    assert_eq!((left, stage), (false, Stage::Gone));
    let (left, _, answer) = after(&[record(Some(900), true), looked(2, Vec::new())]);
    assert!(!left && answer.notes.iter().any(|note| note.contains("mirror pod")));
}

#[test]
fn a_path_in_a_pod_that_is_left_is_not_taken_for_gone() {
    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
    let after = |path: String, pods: Vec<PodState>| {
        let mut engine = Engine::new(Run { pod: None, directory: Some(path.into()), ..run() });
        assert!(engine.target_may_be_left(), "there was no scan");
        engine.take(&looked(2, pods));
        (engine.target_may_be_left(), engine.diagnosis())
    };
    let volume = format!("/k/pods/{UID}/volumes/kubernetes.io~csi/pv");
    let mut mounted = pod_state(UID);
    mounted.devices.push(block_volume(UID, "pv"));
    let (left, answer) = after(format!("{volume}/mount"), vec![mounted]);
    assert!(left && answer.stages[0].pod.uid == UID, "{:?}", answer.stages);
    assert_eq!(answer.stages[0].stage, Stage::Volumes);
    let (left, answer) = after(volume.clone(), vec![pod_state(UID)]);
    assert!(left && answer.stages.is_empty() && answer.notes[0].contains("--pod-uid"));
    assert!(!after(volume, vec![pod_state("another")]).0);
    assert!(!after("/var/lib/docker/volumes/v".into(), vec![pod_state(UID)]).0);
}
