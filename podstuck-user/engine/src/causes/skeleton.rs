//! The form of a new cause, which `cargo xtask cause new` copies.

use crate::{
    cause::{Cause, CauseId, Kind, Origin, TriedWith, like, seen, way},
    command::Step,
    ids,
    model::{diagnosis::Stage, errno::Errno, evidence::Source, operation::Operation},
    tracker::TrackerId,
    verdict::Draft,
};

/// FILL IN: in a few words.
pub(crate) static MADE_UP_CAUSE: Cause = Cause {
    id: CauseId::new("made-up-cause"),
    title: "FILL IN: what it means, in one line",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "FILL IN: what happens, in a few short sentences that name the components.",
    confirmed_by: &[seen("FILL IN: each fact that is required", &[Origin::Calls])],
    log: None,
    look_alikes: &[like(ids::CALL_HUNG_UNEXPLAINED, "FILL IN: what holds here and not there")],
    ways_out: &[way("FILL IN: what to do", "FILL IN: what it may break")],
    field: &["FILL IN: issues as PROJECT#NUMBER, or nothing"],
    tried: &[TriedWith::Lab],
    source: &["FILL IN: where the kernel or Kubernetes does it"],
};

/// The finding; `None` where the facts do not confirm it. The family's tracker calls it, and asks for the facts.
pub(crate) fn draft(op: &Operation) -> Option<Draft> {
    // FILL IN: the facts that are required.
    let is_confirmed = false;
    if !is_confirmed {
        return None;
    }
    let mut draft = Draft::about(TrackerId::Busy, &MADE_UP_CAUSE, op);
    draft.fact("FILL IN: what was seen", Source::Probe);
    let command = Step::new("FILL IN: what it does, and to whom", "FILL IN: a command");
    draft.remedy(command, "FILL IN: what it may break");
    // FILL IN: `draft.rule_out(ids::..., "...")` for each look-alike, by the fact that was seen.
    Some(draft)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{call::Call, evidence::Certainty},
        testing::failed,
    };

    #[test]
    #[ignore = "it is filled in where it is copied to"]
    fn what_confirms_it_makes_it_firm() {
        // FILL IN: the call that shows it.
        let op = failed(Call::UnlinkatDir, Errno::EBUSY, "m", 1.0);
        let draft = draft(&op).expect("the facts confirm it");
        draft.assert_is("made-up-cause", Certainty::Firm);
    }
}
