//! kubelet state: facts against verdicts.

use std::sync::Arc;

use crate::{
    causes::kubelet_state::KubeletStates,
    event::What,
    model::{
        evidence::Certainty,
        halted::{Halted, HaltedKubelet},
        identity::{Component, Pod},
        node::NodeSample,
        pod_record::PodRecord,
        said::{Complaint, Report, Said},
        time::Monotonic,
    },
    testing::{Alone, found, pod_record, pod_state},
    verdict::{Draft, Verdict},
};

const STOPPED: Halted = Halted::Stopped;

fn at(second: u64) -> Monotonic {
    Monotonic(second * 1_000_000_000)
}

fn sample(kubelets: &[u32], halted: &[u32]) -> NodeSample {
    let halted =
        halted.iter().map(|pid| HaltedKubelet { pid: *pid, started: Some(4), halted: STOPPED });
    let pods = vec![pod_state("u")];
    let (kubelets, halted_kubelets) = (kubelets.to_vec(), halted.collect());
    NodeSample { pods, kubelets, halted_kubelets, ..NodeSample::default() }
}

fn look(alone: &mut Alone<KubeletStates>, second: u64, sample: &NodeSample) -> Vec<Verdict> {
    let sample = NodeSample { at: at(second), ..sample.clone() };
    alone.take(at(second), What::Sample(Arc::new(sample))).verdicts
}

/// The last finding of samples that are two seconds apart.
fn lasting(alone: &mut Alone<KubeletStates>, seconds: u64, node: &NodeSample) -> Option<Draft> {
    let looks = (0..=seconds).step_by(2).map(|second| found(look(alone, second, node)).pop());
    looks.last().flatten()
}

fn record(alone: &mut Alone<KubeletStates>, grace_ends: Option<i64>) {
    let record = PodRecord {
        pod: Pod { uid: "u".into(), namespace: None, name: None },
        deletion: grace_ends.map(|second| jiff::Timestamp::from_second(second).unwrap()),
        node: None,
        all_terminated: false,
        ..pod_record("u")
    };
    alone.take(at(0), What::Record { record: Box::new(record), node: "here".into() });
}

#[test]
fn a_pod_that_is_to_go_waits_for_a_kubelet_that_is_stopped() {
    let mut alone = Alone::<KubeletStates>::new();
    record(&mut alone, Some(0));
    let node = sample(&[7], &[7]);
    assert!(lasting(&mut alone, 4, &node).is_none(), "as by a debugger, for a moment");
    let draft = lasting(&mut alone, 6, &node).unwrap();
    draft.assert_is("kubelet-stopped", Certainty::Firm);
    let words = draft.remedies[0].words();
    assert!(words.ends_with(" = 4 ] && kill -CONT 7"), "{words}");
    let over = look(&mut alone, 8, &sample(&[7], &[]));
    assert!(matches!(over[..], [Verdict::Over { .. }]), "{over:?}");
}

#[test]
fn of_two_kubelets_the_one_that_runs_may_be_the_pods() {
    let mut alone = Alone::<KubeletStates>::new();
    record(&mut alone, Some(0));
    assert!(lasting(&mut alone, 20, &sample(&[7, 8], &[7])).is_none());
    assert!(lasting(&mut alone, 20, &sample(&[7, 8], &[7, 8])).is_some());
}

#[test]
fn a_node_without_kubelet_is_likely_since_another_program_may_do_its_work() {
    let mut alone = Alone::<KubeletStates>::new();
    let said =
        Said::new(Component::Kubelet, "log of kubelet", "u", jiff::Timestamp::UNIX_EPOCH, "");
    alone.take(at(0), What::Said(Box::new(Said { report: Some(Report::ToGo), ..said })));
    let node = sample(&[], &[]);
    assert!(lasting(&mut alone, 10, &node).is_none(), "it may be started again");
    let draft = lasting(&mut alone, 12, &node).unwrap();
    draft.assert_is("kubelet-down", Certainty::Likely);
    assert!(draft.is_settled && draft.blocks_deletion == Some(true));
}

#[test]
fn a_kubelet_that_ends_at_each_start_is_named_with_its_error_and_the_file() {
    let mut alone = Alone::<KubeletStates>::new();
    record(&mut alone, Some(0));
    let text = "Failed to start ContainerManager: start cpu manager error: could not restore state from checkpoint: \
        checkpoint is corrupted, please drain this node and delete the CPU manager checkpoint file \
        \"/var/lib/kubelet/cpu_manager_state\" before restarting Kubelet";
    let said = |second, times| {
        let time = jiff::Timestamp::from_second(second).unwrap();
        let complaint = Some(Complaint::KubeletEnds);
        let said = Said::new(Component::Kubelet, "log of kubelet", "", time, text);
        What::Said(Box::new(Said { complaint, times, ..said }))
    };
    let began = |pid, second| NodeSample { kubelet_since: Some(at(second)), ..sample(&[pid], &[]) };
    alone.take(at(10), said(10, 1));
    assert!(found(look(&mut alone, 12, &began(7, 11))).is_empty(), "it may start now");
    alone.take(at(20), said(20, 1));
    let draft = found(look(&mut alone, 20, &began(7, 11))).pop().unwrap();
    draft.assert_is("kubelet-down", Certainty::Likely);
    let draft = found(look(&mut alone, 22, &began(8, 21))).pop().unwrap();
    draft.assert_is("kubelet-down", Certainty::Likely);
    let words = draft.remedies[0].words();
    let file = "/var/lib/kubelet/cpu_manager_state";
    assert!(words.contains(&format!("mv {file} {file}.unusable")), "{words}");
    let draft = found(look(&mut alone, 22, &sample(&[], &[]))).pop().unwrap();
    draft.assert_is("kubelet-down", Certainty::Likely);
    assert!(found(look(&mut alone, 52, &began(8, 21))).is_empty(), "it runs");
    assert!(found(look(&mut alone, 22, &sample(&[7, 8], &[]))).is_empty(), "which one?");
}

#[test]
fn a_kubelet_that_has_ended_is_down_with_its_last_error() {
    let mut alone = Alone::<KubeletStates>::new();
    record(&mut alone, Some(0));
    let (source, time) = ("journal, --unit=kubelet.service", jiff::Timestamp::UNIX_EPOCH);
    let text = "command failed: failed to run Kubelet: running with swap on is not supported";
    let said = Said::new(Component::Kubelet, source, "", time, text);
    let ends = Said { complaint: Some(Complaint::KubeletEnds), ..said.clone() };
    alone.take(at(1), What::Said(Box::new(ends)));
    let node = sample(&[], &[]);
    let draft = lasting(&mut alone, 12, &node).unwrap();
    draft.assert_is("kubelet-down", Certainty::Likely);
    let words = draft.remedies[0].words();
    assert!(words.contains("swapoff"), "{words}");
    let again = Said { report: Some(Report::StartedAgain), times: 712, ..said };
    alone.take(at(13), What::Said(Box::new(again)));
    let draft = found(look(&mut alone, 14, &node)).pop().unwrap();
    let counts = |draft: &Draft| draft.evidence.iter().any(|it| it.fact.contains("712 times"));
    assert!(counts(&draft), "systemd's counter");
}

#[test]
fn a_pod_that_is_not_deleted_or_in_its_grace_period_has_no_finding() {
    for grace_ends in [None, Some(1000)] {
        let mut alone = Alone::<KubeletStates>::new();
        record(&mut alone, grace_ends);
        assert!(lasting(&mut alone, 20, &sample(&[7], &[7])).is_none(), "{grace_ends:?}");
    }
    // In a run over the whole node, a pod without a source has no finding either.
    assert!(lasting(&mut Alone::new(), 20, &sample(&[7], &[7])).is_none());
}
