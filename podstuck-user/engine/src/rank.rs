//! The order of findings, and which of them answers the question.

use std::cmp::Reverse;

use crate::{
    catalogue,
    cause::{CauseId, Kind},
    model::{
        diagnosis::{Diagnosis, PodStage},
        evidence::{Certainty, RuledOut},
        finding::{Finding, FindingState},
        said::Said,
    },
    where_next::{self, Known},
};

/// Whether a finding is certain enough to act on: it holds, it is firm, and it says whether it blocks the pod.
pub(crate) fn is_firm(finding: &Finding) -> bool {
    finding.state != FindingState::Cleared
        && finding.certainty == Certainty::Firm
        && finding.blocks_deletion.is_some()
        && !finding.is_later
}

/// Whether waiting cannot improve a finding: it is at least likely, and it blocks the pod.
pub(crate) fn is_settled(finding: &Finding) -> bool {
    finding.state != FindingState::Cleared
        && finding.certainty >= Certainty::Likely
        && finding.blocks_deletion == Some(true)
        && finding.is_settled
}

/// The first finding's cause, if the finding is likely and blocks the pod, and the cause is never more than likely.
pub(crate) fn at_most<'a>(findings: impl Iterator<Item = &'a Finding>) -> Option<CauseId> {
    let held = findings.filter(|finding| finding.state != FindingState::Cleared);
    let first = held.min_by_key(|finding| order(finding))?;
    let is_likely = first.certainty == Certainty::Likely && first.blocks_deletion == Some(true);
    let cause = catalogue::find(first.id.as_str()).filter(|_| is_likely)?;
    (Certainty::at_most(cause) == Certainty::Likely).then_some(first.id)
}

/// The order of findings: blocking before harmless, causes before admissions, then by certainty and severity.
pub fn order(finding: &Finding) -> impl Ord + use<> {
    let blocks = match finding.blocks_deletion {
        Some(true) if !finding.is_later => 0,
        Some(true) => 1,
        None => 2,
        Some(false) => 3,
    };
    let admits = finding.kind == Kind::Admission;
    let certainty = Reverse(finding.certainty);
    (blocks, admits, certainty, Reverse(finding.severity), Reverse(finding.last))
}

/// Assembles the answer from all findings.
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
        // A cause that one finding rules out may be found by another.
        let found = causes.iter().any(|cause| cause.id == other.cause);
        let same = |known: &RuledOut| known.cause == other.cause && known.fact == other.fact;
        if !found && !ruled_out.iter().any(same) {
            ruled_out.push(other.clone());
        }
    }
    let next = if firm { Vec::new() } else { where_next::of_pods(&stages, Known::default()) };
    Diagnosis {
        target: target.map(str::to_owned),
        stages,
        containers: Vec::new(),
        firm,
        terminating: None,
        gone: None,
        progress: Vec::new(),
        window_s,
        causes,
        notes: Vec::new(),
        over,
        said,
        ruled_out,
        remedies: Vec::new(),
        next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;
    use crate::{
        cause::Cause,
        causes::{
            busy_mount::causes::BUSY_UNEXPLAINED,
            pod_record::{FINALIZER, IN_GRACE, NOT_ON_THIS_NODE},
        },
        ledger::Ledger,
        model::{
            call::Call,
            evidence::Source,
            time::{Clock, Monotonic},
        },
        testing::failed,
        tracker::TrackerId,
        verdict::{Draft, Verdict},
    };

    /// A cause without look-alikes, its tracker, whether it blocks the pod, and whether it is doubtful.
    type Made = (&'static Cause, TrackerId, Option<bool>, bool);

    fn ledger(drafts: &[Made]) -> Ledger {
        let mut ledger = Ledger::new(Clock::new(jiff::Timestamp::UNIX_EPOCH, Monotonic(0)));
        for (cause, tracker, blocks, doubtful) in drafts {
            let op = failed(Call::UnlinkatDir, crate::model::errno::Errno::EBUSY, "m", 1.0);
            let mut draft = Draft::about(*tracker, cause, &op);
            draft.blocks_deletion = *blocks;
            draft.fact("its record says so", Source::Record);
            if *doubtful {
                draft.doubt("something");
            }
            draft.rule_out(ids::NFS_SILLY_RENAME, "as busy-unexplained says");
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
    fn an_admission_is_never_firm_and_what_it_rules_out_is_listed_once() {
        let made = |tracker| (&BUSY_UNEXPLAINED, tracker, Some(true), false);
        let ledger = ledger(&[made(TrackerId::Busy), made(TrackerId::Refused)]);
        let answer = diagnosis(None, Vec::new(), Vec::new(), 1.0, ledger.all());
        assert!(!answer.firm);
        let out: Vec<String> = answer.ruled_out.iter().map(ToString::to_string).collect();
        assert_eq!(out, ["nfs-silly-rename: as busy-unexplained says"]);
    }
}
