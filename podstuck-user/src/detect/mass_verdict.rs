//! What is said about a deletion of many entries.

use std::sync::Arc;

use super::{
    draft::{Draft, Family, PROBE},
    mass_estimate::Estimate,
    storm::Storm,
};
use crate::model::{
    call::Outcome,
    finding::Severity,
    identity::{Actor, Component, Target, TargetKind},
    path::safe_path,
    time::Monotonic,
};

fn cause(target: &Target, actor: &Actor) -> &'static str {
    let plugin = target.volume.as_ref().map_or("", |v| v.plugin.as_str());
    match (target.kind, plugin, actor.component) {
        (TargetKind::DockerVolume, _, Component::Dockerd) => "docker-volume-unlink-storm",
        (TargetKind::PodVolume, "kubernetes.io/empty-dir", _) => "emptydir-mass-files",
        _ => "mass-deletion",
    }
}

/// A draft, unless the deletion has stopped and nobody knows yet whether it is complete.
pub(super) fn draft(storm: &Storm, now: Monotonic) -> Option<Box<Draft>> {
    if storm.stalled(now) && !storm.incomplete {
        return None;
    }
    let op = storm.op.as_ref()?;
    let root = storm.root()?;
    let mut draft = Draft::about(Family::Mass, cause(&op.target, &op.actor), op);
    if op.target_id == 0 {
        // What belongs to no target is told apart by who does it.
        draft.target_id = u64::from(op.actor.pid);
        draft.target = Arc::new(Target::unknown());
    }
    draft.path = root.clone();
    draft.outcome = Some(Outcome::OK);
    draft.count = storm.deleted();
    draft.first = storm.first;
    draft.last = storm.last;
    let rate = storm.rate(now);
    let estimate = Estimate::of(storm.look.as_ref(), storm.deleted(), rate);
    draft.fact(
        format!(
            "{} entries deleted below {} since the observation began ({} files, {} directories), \
             {rate:.0} per second now",
            storm.deleted(),
            safe_path(&root),
            storm.files,
            storm.directories
        ),
        PROBE,
    );
    if storm.eisdir > 0 {
        draft.fact(
            format!("{} EISDIR answers: one for each directory is Go's normal way", storm.eisdir),
            PROBE,
        );
    }
    for fact in estimate.facts(storm.look.as_ref()) {
        draft.fact(fact, "statx, statfs and a bounded look at the directory");
    }
    let volume = if draft.id == "mass-deletion" { "directory" } else { "volume" };
    if storm.stalled(now) {
        draft.severity = Severity::Warning;
        draft.confidence = 0.6;
        draft.blocks_deletion = (op.target.kind == TargetKind::PodVolume).then_some(true);
        draft.explanation = format!(
            "The deletion of this {volume} has stopped before it was complete: nothing was deleted \
             for {:.0} s. See the other findings, and whether the process is blocked.",
            now.since(storm.last).as_secs_f64()
        );
        let pid = op.actor.pid;
        draft.remedy(format!("cat /proc/{pid}/stack /proc/{pid}/wchan"), "none");
    } else {
        draft.severity = Severity::Info;
        draft.confidence = 0.95;
        draft.blocks_deletion = Some(false);
        draft.explanation = format!(
            "The {volume} is being deleted and gets smaller; it has many entries and this takes \
             time. It is not stuck: wait. Restarting the process that deletes only starts it \
             over.{}",
            if draft.id == "docker-volume-unlink-storm" {
                " dockerd holds its volume store's lock meanwhile: creating, listing and removing \
                 volumes waits, on all containers."
            } else {
                ""
            }
        );
        draft.ruled_out.push("a hang: entries disappear at the rate above".into());
    }
    Some(Box::new(draft))
}
