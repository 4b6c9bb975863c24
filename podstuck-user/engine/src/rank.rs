//! Which of several findings is the answer.

use std::cmp::Reverse;

use crate::{
    cause::Kind,
    model::{
        container::{ContainerProgress, ContainerStage},
        diagnosis::{Diagnosis, PodStage, Stage},
        evidence::{Certainty, RuledOut},
        finding::{Finding, FindingState},
        said::Said,
    },
};

/// Whether a finding is an answer on which somebody may act: it holds, its cause is known well, and
/// it says whether the pod waits for it.
pub(crate) fn is_firm(finding: &Finding) -> bool {
    finding.state != FindingState::Cleared
        && finding.certainty == Certainty::Firm
        && finding.blocks_deletion.is_some()
}

/// Whether a finding is an answer that does not become better by waiting: likely at least, of what the pod
/// waits for.
pub(crate) fn is_settled(finding: &Finding) -> bool {
    finding.state != FindingState::Cleared
        && finding.certainty >= Certainty::Likely
        && finding.blocks_deletion == Some(true)
        && finding.is_settled
}

/// The order in which causes are told: what blocks before what does not, known before unexplained,
/// then by certainty and severity.
pub fn order(finding: &Finding) -> impl Ord + use<> {
    let blocks = match finding.blocks_deletion {
        Some(true) => 0,
        None => 1,
        Some(false) => 2,
    };
    let admits = finding.kind == Kind::Admission;
    let certainty = Reverse(finding.certainty);
    (blocks, admits, certainty, Reverse(finding.severity), Reverse(finding.last))
}

/// Puts everything that was found into an answer.
pub fn diagnosis<'a>(
    target: Option<&str>,
    stages: Vec<PodStage>,
    said: Vec<Said>,
    window_s: f64,
    findings: impl Iterator<Item = &'a Finding>,
) -> Diagnosis {
    let (over, mut causes): (Vec<_>, Vec<_>) =
        findings.cloned().partition(|finding| finding.state == FindingState::Cleared);
    causes.sort_by_key(order);
    let firm = causes.first().is_some_and(is_firm);
    let mut ruled_out: Vec<RuledOut> = Vec::new();
    for other in causes.iter().flat_map(|cause| &cause.likely_causes_ruled_out) {
        // What one finding rules out may be what another one is.
        let found = causes.iter().any(|cause| cause.id == other.cause);
        let same = |known: &RuledOut| known.cause == other.cause && known.fact == other.fact;
        if !found && !ruled_out.iter().any(same) {
            ruled_out.push(other.clone());
        }
    }
    let next = if firm { Vec::new() } else { next(&stages) };
    Diagnosis {
        target: target.map(str::to_owned),
        stages,
        containers: Vec::new(),
        firm,
        window_s,
        causes,
        notes: Vec::new(),
        over,
        said,
        ruled_out,
        next,
    }
}

/// Where to look when no cause is firm. Kubernetes' own records say what no system call shows.
fn next(stages: &[PodStage]) -> Vec<String> {
    let has = |stage| stages.iter().any(|pod| pod.stage == stage);
    let mut next = vec![
        "the pod's record: `kubectl get pod NAME -o json`: is there a deletionTimestamp, and has it \
         passed? Are there finalizers? Then the controller that set them must act, and nothing on \
         this node will"
            .to_owned(),
    ];
    if has(Stage::Containers) {
        next.push(
            "the runtime: `crictl ps --pod ID`, `crictl inspect`, and its log: a stop that times \
             out (`StopContainer ... DeadlineExceeded`), a shim that does not answer, a CNI plugin \
             that fails"
                .into(),
        );
    }
    if has(Stage::Volumes) {
        next.push(
            "kubelet's log, for the pod's UID: `UnmountVolume.TearDown failed` with its \
             durationBeforeRetry, and the CSI driver's log for NodeUnpublishVolume"
                .into(),
        );
    }
    if has(Stage::Directories) || has(Stage::Gone) || stages.is_empty() {
        next.push(
            "kubelet itself: is it running and connected to the API server (`journalctl -u \
             kubelet`: `Failed to update status`, expired certificates)? A webhook may refuse the \
             update"
                .into(),
        );
    }
    if has(Stage::Api) {
        next.push(
            "who keeps the record: kubelet deletes it when it has done its part, and its log says where that \
             fails (`journalctl -u kubelet`: `Failed to delete status for pod`, `Failed to update status for \
             pod`, `Unauthorized`). An admission webhook may refuse it (`kubectl get \
             validatingwebhookconfigurations,mutatingwebhookconfigurations`); and while kubelet cannot reach \
             the API server, the record stays"
                .into(),
        );
        next.push(
            "the record again: it may have gone since it was read. `kubectl get pod NAME -o jsonpath='{.metadata.uid}'` \
             shows whether the pod of that name is another one by now"
                .into(),
        );
        return next;
    }
    next.push(
        "a longer look: kubelet tries again only every 122 seconds in the end, and an attempt that \
         fails says most"
            .into(),
    );
    next
}

/// The same of a container that is no pod's: its runtime alone says whether it is to go.
pub(crate) fn next_of_container(containers: &[ContainerProgress]) -> Vec<String> {
    if containers.iter().all(|it| it.stage == ContainerStage::Gone) {
        return Vec::new();
    }
    vec![
        "another attempt while this runs: runtimes do not try again by themselves to remove a container that is no \
         pod's, and an attempt that fails says most"
            .into(),
        "the runtime's log, for the container's id (`journalctl -u docker`, `journalctl -u containerd`): it says why an \
         earlier attempt failed"
            .into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cause::{Cause, id},
        ledger::Ledger,
        model::{
            call::Call,
            container::ContainerName,
            time::{Clock, Monotonic},
        },
        rules::{
            mount_point::BUSY_UNEXPLAINED,
            pod_record::{FINALIZER, IN_GRACE, NOT_ON_THIS_NODE},
        },
        testing::failed,
        tracker::TrackerId,
        verdict::{Draft, Verdict},
    };

    /// A cause without look-alikes, and whether something about it is doubtful.
    type Made = (&'static Cause, TrackerId, Option<bool>, bool);

    fn ledger(drafts: &[Made]) -> Ledger {
        let mut ledger = Ledger::new(Clock::new(jiff::Timestamp::UNIX_EPOCH, Monotonic(0)));
        for (cause, tracker, blocks, doubtful) in drafts {
            let op = failed(Call::UnlinkatDir, nix::errno::Errno::EBUSY, "m", 1.0);
            let mut draft = Draft::about(*tracker, cause, &op);
            draft.blocks_deletion = *blocks;
            if *doubtful {
                draft.doubt("something");
            }
            draft.rule_out(id!("nfs-silly-rename"), "as busy-unexplained says");
            ledger.admit(Verdict::Found(Box::new(draft)));
        }
        ledger
    }

    fn ids(drafts: &[Made]) -> (Vec<&'static str>, bool) {
        let ledger = ledger(drafts);
        let answer = diagnosis(None, Vec::new(), Vec::new(), 1.0, ledger.all());
        (answer.causes.iter().map(|cause| cause.id.as_str()).collect(), answer.firm)
    }

    #[test]
    fn of_a_container_its_runtime_is_asked_and_no_pods_record() {
        let at = |stage| ContainerProgress {
            container: ContainerName { id: "c".into(), name: None, pod: None },
            stage,
            fact: String::new(),
        };
        let next = next_of_container(&[at(ContainerStage::Layer)]);
        assert!(next.len() == 2 && next.iter().all(|it| !it.contains("kube")), "{next:?}");
        assert!(next_of_container(&[at(ContainerStage::Gone)]).is_empty());
    }

    #[test]
    fn what_blocks_comes_before_what_is_surer() {
        let (order, firm) = ids(&[
            (&IN_GRACE, TrackerId::BulkDelete, Some(false), false),
            (&NOT_ON_THIS_NODE, TrackerId::FileSystem, None, false),
            (&BUSY_UNEXPLAINED, TrackerId::Busy, Some(true), false),
            (&FINALIZER, TrackerId::Refused, Some(true), false),
        ]);
        let expected =
            [&FINALIZER, &BUSY_UNEXPLAINED, &NOT_ON_THIS_NODE, &IN_GRACE].map(|cause| cause.id);
        assert_eq!(order, expected.map(|id| id.as_str()));
        assert!(firm);
    }

    #[test]
    fn without_a_firm_cause_there_is_where_to_look_next() {
        let ledger = ledger(&[(&FINALIZER, TrackerId::Busy, Some(true), true)]);
        let answer = diagnosis(None, Vec::new(), Vec::new(), 1.0, ledger.all());
        assert!(!answer.firm && answer.next.len() >= 3, "{:?}", answer.next);
    }

    #[test]
    fn what_only_admits_is_never_firm_and_what_it_rules_out_is_told_once() {
        let made = |tracker| (&BUSY_UNEXPLAINED, tracker, Some(true), false);
        let ledger = ledger(&[made(TrackerId::Busy), made(TrackerId::Refused)]);
        let answer = diagnosis(None, Vec::new(), Vec::new(), 1.0, ledger.all());
        assert!(!answer.firm);
        let out: Vec<String> = answer.ruled_out.iter().map(ToString::to_string).collect();
        assert_eq!(out, ["nfs-silly-rename: as busy-unexplained says"]);
    }
}
