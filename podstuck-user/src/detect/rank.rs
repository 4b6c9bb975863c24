//! Which of several findings is the answer.

use std::cmp::Reverse;

use crate::model::{
    diagnosis::{Diagnosis, PodStage, Stage},
    finding::{Finding, FindingState},
};

/// From here on a cause is firm.
const FIRM: f64 = 0.8;

/// Whether a finding is an answer on which somebody may act: it holds, its cause is known well, and
/// it says whether the pod waits for it.
pub fn is_firm(finding: &Finding) -> bool {
    finding.state != FindingState::Cleared
        && finding.confidence >= FIRM
        && finding.blocks_deletion.is_some()
}

/// The order in which causes are told: what blocks before what does not, known before unexplained,
/// then by confidence and severity.
fn order(finding: &Finding) -> impl Ord + use<> {
    let blocks = match finding.blocks_deletion {
        Some(true) => 0,
        None => 1,
        Some(false) => 2,
    };
    let hundredths = (finding.confidence * 100.0) as u32;
    let unexplained = finding.id.ends_with("-unexplained");
    (blocks, unexplained, Reverse(hundredths), Reverse(finding.severity), Reverse(finding.last))
}

/// Puts everything that was found into an answer.
pub fn diagnosis<'a>(
    target: Option<&str>,
    stages: Vec<PodStage>,
    window_s: f64,
    findings: impl Iterator<Item = &'a Finding>,
) -> Diagnosis {
    let (over, mut causes): (Vec<_>, Vec<_>) =
        findings.cloned().partition(|finding| finding.state == FindingState::Cleared);
    causes.sort_by_key(order);
    let firm = causes.first().is_some_and(is_firm);
    let mut ruled_out: Vec<String> = Vec::new();
    for fact in causes.iter().flat_map(|cause| &cause.likely_causes_ruled_out) {
        // What one finding rules out may be what another one is.
        let found = causes.iter().any(|cause| fact.starts_with(&format!("{}:", cause.id)));
        if !found && !ruled_out.contains(fact) {
            ruled_out.push(fact.clone());
        }
    }
    let next = if firm { Vec::new() } else { next(&stages) };
    Diagnosis {
        target: target.map(str::to_owned),
        stages,
        firm,
        window_s,
        causes,
        over,
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
    next.push(
        "a longer look: kubelet tries again only every 122 seconds in the end, and an attempt that \
         fails says most"
            .into(),
    );
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        detect::{Draft, Family, Verdict, ledger::Ledger, sample::failed},
        model::{call::Call, time::Clock},
    };

    fn ledger(drafts: &[(&'static str, Family, Option<bool>, f64)]) -> Ledger {
        let mut ledger = Ledger::new(Clock::start());
        for (id, family, blocks, confidence) in drafts {
            let op = failed(Call::UnlinkatDir, nix::errno::Errno::EBUSY, "m", 1.0);
            let mut draft = Draft::about(*family, id, &op);
            draft.blocks_deletion = *blocks;
            draft.confidence = *confidence;
            ledger.admit(Verdict::Found(Box::new(draft)));
        }
        ledger
    }

    fn ids(drafts: &[(&'static str, Family, Option<bool>, f64)]) -> (Vec<&'static str>, bool) {
        let ledger = ledger(drafts);
        let answer = diagnosis(None, Vec::new(), 1.0, ledger.all());
        (answer.causes.iter().map(|cause| cause.id).collect(), answer.firm)
    }

    #[test]
    fn what_blocks_comes_before_what_is_surer() {
        let order = ids(&[
            ("mass", Family::Mass, Some(false), 0.95),
            ("maybe", Family::Space, None, 0.9),
            ("busy-unexplained", Family::Busy, Some(true), 0.85),
            ("cause", Family::Permission, Some(true), 0.8),
        ]);
        assert_eq!(order, (vec!["cause", "busy-unexplained", "maybe", "mass"], true));
    }

    #[test]
    fn without_a_firm_cause_there_is_where_to_look_next() {
        let ledger = ledger(&[("maybe", Family::Busy, Some(true), 0.5)]);
        let answer = diagnosis(None, Vec::new(), 1.0, ledger.all());
        assert!(!answer.firm && answer.next.len() >= 3, "{:?}", answer.next);
    }
}
