use std::sync::Arc;

use super::*;
use crate::{
    engine::Output,
    event::{Event, What},
    model::{
        block_volume::BlockVolume,
        call::Call,
        csi::VolumeData,
        errno::Errno,
        identity::{Pod, Target},
        node::PodState,
    },
    testing::{failed, pod_state, run},
};

fn engine(one_answer: bool) -> Engine {
    let pod = Pod { uid: "u".into(), namespace: Some("shop".into()), name: Some("cart".into()) };
    Engine::new(crate::event::Run { pod: Some(pod), one_answer, ..run() })
}

fn at(second: u64) -> Monotonic {
    Monotonic(second * 1_000_000_000)
}

fn look(engine: &mut Engine, second: u64, pods: Vec<PodState>) -> Vec<Output> {
    let kubelets = vec![7];
    let sample = NodeSample { at: at(second), kubelets, pods, ..NodeSample::default() };
    engine.take(&Event { at: at(second), what: What::Sample(sample.into()) })
}

fn running() -> PodState {
    PodState { populated: Some(true), ..pod_state("u") }
}

#[test]
fn a_pod_that_goes_ends_its_diagnosis() {
    let mut engine = engine(true);
    look(&mut engine, 2, vec![pod_state("u")]);
    assert!(!engine.is_exhausted(at(60)) && engine.gone().is_none());
    assert!(look(&mut engine, 12, Vec::new()).is_empty(), "its answer says so");
    assert!(!engine.is_exhausted(at(13)), "one look");
    assert!(engine.is_exhausted(at(16)) && engine.has_gone());
    let answer = engine.diagnosis();
    assert_eq!(answer.gone.map(|gone| gone.after_s), Some(12.0));
    let next = answer.next.concat();
    assert!(
        next.contains("the API server was not asked") && !next.contains("longer look"),
        "{next}"
    );
}

#[test]
fn a_watch_says_that_the_pod_has_gone_and_goes_on() {
    let mut engine = engine(false);
    look(&mut engine, 2, vec![pod_state("u")]);
    let outputs = look(&mut engine, 4, Vec::new());
    assert!(matches!(&outputs[..], [Output::Gone(gone)] if gone.after_s == 4.0), "{outputs:?}");
    assert!(look(&mut engine, 6, Vec::new()).is_empty(), "once");
}

#[test]
fn where_to_look_next_names_the_driver_of_what_is_left() {
    let mut engine = engine(true);
    let (driver, handle, lifecycle) = ("block.example".into(), "h".into(), String::new());
    let device = |data| BlockVolume {
        target_id: 1,
        target: Target::unknown().into(),
        link: Some("/k/pods/u/volumeDevices/kubernetes.io~csi/pv".into()),
        leads_to: None,
        map: None,
        mounts: Vec::new(),
        data,
        users: Vec::new(),
    };
    let mut next = |data| {
        look(&mut engine, 2, vec![PodState { devices: vec![device(data)], ..pod_state("u") }]);
        engine.diagnosis().next.concat()
    };
    let known = next(Some(VolumeData::Known { driver, handle, lifecycle }));
    assert!(known.contains("the log of the CSI driver block.example"), "{known}");
    let none = next(None);
    assert!(none.contains("UnmountVolume.TearDown failed") && !none.contains("CSI"), "{none}");
}

#[test]
fn a_pod_that_goes_before_the_first_look_has_gone_and_was_here() {
    let mut engine = engine(true);
    let mut op = failed(Call::UnlinkatDir, Errno::EBUSY, "", 1.0);
    Arc::make_mut(&mut op.target).pod = engine.run.pod.clone();
    engine.take(&Event { at: op.end, what: What::Operation(Box::new(op)) });
    look(&mut engine, 2, Vec::new());
    assert_eq!(engine.gone().map(|gone| gone.after_s), Some(2.0));
}

#[test]
fn a_pod_below_an_unread_root_has_not_gone() {
    let mut engine = engine(true);
    look(&mut engine, 2, vec![pod_state("u")]);
    let sample = NodeSample { at: at(4), unread: vec!["/k".into()], ..NodeSample::default() };
    engine.take(&Event { at: at(4), what: What::Sample(sample.into()) });
    assert!(engine.gone().is_none() && !engine.is_exhausted(at(60)));
}

#[test]
fn what_was_gone_before_is_not_waited_for_and_is_no_all_clear() {
    let mut engine = engine(true);
    look(&mut engine, 2, Vec::new());
    assert!(engine.is_exhausted(at(6)) && engine.gone().is_none());
    assert!(engine.target_may_be_left(), "its record may be, and the API server has not answered");
    look(&mut engine, 6, Vec::new());
    let next = engine.diagnosis().next;
    assert!(!next.concat().contains("longer look"), "{next:?}");
    assert!(
        next[0].contains("kubectl -n shop get pod cart -o json | podstuck diagnose"),
        "{next:?}"
    );
}

#[test]
fn a_running_pod_without_a_known_deletion_is_not_waited_for() {
    let mut engine = engine(true);
    look(&mut engine, 2, vec![running()]);
    assert!(!engine.is_exhausted(at(2)));
    look(&mut engine, 26, vec![running()]);
    assert!(engine.is_exhausted(at(26)));
    let answered = engine.run.start.api.insert("API server x: 3 pods".into()).clone();
    assert!(!engine.is_exhausted(at(26)), "{answered}");
    engine.run.start.api = Some("no answer of the API server: no route".into());
    assert!(engine.is_exhausted(at(26)));
    assert!(engine.diagnosis().next[0].contains("no answer of the API server: no route"));
}

/// As with a finalizer, which only the record shows.
#[test]
fn a_pod_whose_record_alone_can_say_what_it_waits_for_is_not_waited_for() {
    let mut engine = engine(true);
    look(&mut engine, 2, vec![running()]);
    look(&mut engine, 19, vec![pod_state("u")]);
    assert!(!engine.is_exhausted(at(19)), "kubelet may go on");
    look(&mut engine, 26, vec![pod_state("u")]);
    assert!(engine.is_exhausted(at(26)) && engine.target_may_be_left());
    let next = engine.diagnosis().next;
    assert!(next[0].contains("the pod's record") && !next.concat().contains("longer"), "{next:?}");
    engine.run.start.api = Some("API server x: 3 pods".into());
    assert!(!engine.is_exhausted(at(26)));
    engine.run.start.api = None;
    // A component works on what is left.
    let mut op = failed(Call::UnlinkatDir, Errno::ENOTEMPTY, "", 30.0);
    Arc::make_mut(&mut op.target).pod = engine.run.pod.clone();
    engine.take(&Event { at: op.end, what: What::Operation(Box::new(op)) });
    assert!(!engine.is_exhausted(at(49)));
    assert!(engine.is_exhausted(at(51)));
    look(&mut engine, 52, vec![PodState { populated: None, ..pod_state("u") }]);
    assert!(!engine.is_exhausted(at(52)), "its containers may run");
}
