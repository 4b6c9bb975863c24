use super::*;
use crate::{
    event::Event,
    model::{
        identity::Component, node::NodeSample, pod_record::PodRecord, said::Said, time::Monotonic,
    },
    testing::{pod_record, pod_state, run},
};

const SOON: u64 = 1_000_000_000;

fn take(engine: &mut Engine, what: What) {
    engine.take(&Event { at: Monotonic(SOON), what });
}

fn record(uid: &str, by: i64, finalizers: &[&str]) -> What {
    let record = PodRecord {
        pod: Pod { uid: uid.into(), namespace: Some("shop".into()), name: Some(uid.into()) },
        deletion: Some(Timestamp::from_second(by).unwrap()),
        finalizers: finalizers.iter().map(|name| (*name).to_owned()).collect(),
        ..pod_record(uid)
    };
    What::Record { record: Box::new(record), node: "here".into() }
}

fn to_go(uid: &str) -> What {
    let at = Timestamp::UNIX_EPOCH;
    let mut said = Said::new(Component::Kubelet, "a log", uid, at, "SyncLoop DELETE");
    said.report = Some(Report::ToGo);
    What::Said(Box::new(said))
}

fn looked(uids: &[&str]) -> What {
    let pods = uids.iter().map(|uid| pod_state(uid)).collect();
    What::Sample(NodeSample { pods, ..NodeSample::default() }.into())
}

fn listed(engine: &Engine) -> Vec<(String, Option<&'static str>)> {
    let cause = |it: &Deleted| it.cause.as_ref().map(|cause| cause.id.as_str());
    engine.deleted().iter().map(|it| (it.pod.uid.clone(), cause(it))).collect()
}

#[test]
fn a_pod_from_several_sources_is_listed_once() {
    let mut engine = Engine::new(run());
    assert!(!engine.knows_deleted(), "there was no scan");
    take(&mut engine, record("b", -60, &["example.org/backup"]));
    take(&mut engine, record("a", -600, &[]));
    take(&mut engine, to_go("a"));
    take(&mut engine, to_go("logged"));
    take(&mut engine, to_go("gone"));
    take(&mut engine, looked(&["a", "b", "logged", "stays"]));
    let all = listed(&engine);
    let expected = [("a", None), ("b", Some("pod-finalizer")), ("logged", None)];
    assert_eq!(all, expected.map(|(uid, cause)| (uid.to_owned(), cause)));
    let first = &engine.deleted()[0];
    assert_eq!(first.since, Timestamp::from_second(-630).ok());
    assert_eq!(first.stage.as_ref().map(|it| it.stage), Some(Stage::Directories));
    assert!(!engine.knows_deleted(), "of two no cause is known");
    assert_eq!(engine.beside_deleted(&engine.deleted()), 0);
}

#[test]
fn of_several_records_each_is_judged() {
    let mut engine = Engine::new(run());
    for uid in ["a", "b", "c"] {
        take(&mut engine, record(uid, -60, &["example.org/backup"]));
    }
    take(&mut engine, looked(&[]));
    assert_eq!(engine.found(), 3);
    assert!(engine.knows_deleted());
}

#[test]
fn what_holds_no_pod_stands_beside() {
    let mut engine = Engine::new(run());
    let What::Record { mut record, node } = record("stays", 0, &[]) else { unreachable!() };
    record.deletion = None;
    take(&mut engine, What::Record { record, node });
    take(&mut engine, looked(&["stays"]));
    assert!(engine.deleted().is_empty() && engine.knows_deleted() && engine.saw_all_pods());
    assert_eq!(engine.beside_deleted(&[]), 1, "its deletion was not requested");
    let unread = NodeSample { unread: vec!["/k".into()], ..NodeSample::default() };
    take(&mut engine, What::Sample(unread.into()));
    assert!(!engine.saw_all_pods());
}
