//! The finding about a deletion of many entries.

use std::sync::Arc;

use crate::{
    cause::{Cause, LookAlike, Origin, Proof, WayOut, like, seen, way},
    causes::{
        mass_deletion::{
            causes::{DOCKER_VOLUME_STORM, EMPTYDIR_FILES, MASS_DELETION},
            estimate::Estimate,
            run::Run,
        },
        shared::clients,
    },
    command::{NAME, Step},
    ids,
    model::{
        call::Outcome,
        evidence::Source,
        finding::Severity,
        identity::{Actor, Component, Target, TargetKind},
        operation::Operation,
        path::{clip, safe, safe_path},
        time::Monotonic,
    },
    tracker::TrackerId,
    verdict::Draft,
};

pub(super) const CONFIRMED: &[Proof] = &[seen(
    "thousands of entries were deleted below one directory, and more are deleted every second",
    &[Origin::Calls],
)];
pub(super) const ALIKE: &[LookAlike] =
    &[like(ids::CALL_HUNG_UNEXPLAINED, "entries disappear, second by second")];
pub(super) const WAIT: &[WayOut] =
    &[way("wait", "restarting the deleting process only starts the deletion over")];
pub(super) const TITLE: &str = "very many entries: slow, not stuck; shows the rate, how many are left and how \
    long it will take";

/// Whether dockerd deletes a volume, which blocks its other volume commands.
pub(crate) fn holds_up_others(op: &Operation) -> bool {
    *cause(&op.target, &op.actor) == DOCKER_VOLUME_STORM
}

fn cause(target: &Target, actor: &Actor) -> &'static Cause {
    let plugin = target.volume.as_ref().map_or("", |v| v.plugin.as_str());
    match (target.kind, plugin, actor.component) {
        (TargetKind::DockerVolume, _, Component::Dockerd) => &DOCKER_VOLUME_STORM,
        (TargetKind::PodVolume, "kubernetes.io/empty-dir", _) => &EMPTYDIR_FILES,
        _ => &MASS_DELETION,
    }
}

/// The finding; `None` if the deletion has stopped and it is not known yet whether it is complete.
pub(crate) fn draft(run: &Run, now: Monotonic) -> Option<Draft> {
    if run.stalled(now) && !run.incomplete {
        return None;
    }
    let op = run.op.as_ref()?;
    let root = run.root()?;
    let mut draft = Draft::about(TrackerId::BulkDelete, cause(&op.target, &op.actor), op);
    if op.target_id == 0 {
        // A deletion without a target is identified by its process.
        draft.target_id = u64::from(op.actor.pid);
        draft.target = Arc::new(Target::unknown());
    }
    draft.path = root.clone();
    draft.outcome = Some(Outcome::OK);
    draft.count = run.deleted();
    draft.first = run.first;
    draft.last = run.last;
    let rate = run.rate(now);
    let estimate = Estimate::of(&run.looks, run.deleted(), run.rates(now));
    draft.fact(
        format!(
            "{} entries deleted below {} since the observation began ({} files, {} directories), \
             {rate:.0} per second now",
            run.deleted(),
            safe_path(&root),
            run.files,
            run.directories
        ),
        Source::Probe,
    );
    if run.eisdir > 0 {
        draft.fact(
            format!(
                "{} calls failed with EISDIR: one for each directory is normal for Go",
                run.eisdir
            ),
            Source::Probe,
        );
    }
    for fact in estimate.facts(&run.looks) {
        draft.fact(fact, Source::Look("statx, statfs and a bounded look at the directory"));
    }
    if let Some((clients, looked)) = &run.clients {
        clients::wait(&mut draft, op.actor.component.name(), clients, (run.first, *looked));
    }
    let volume = if *draft.cause == MASS_DELETION { "directory" } else { "volume" };
    let waits = op.target.kind == TargetKind::PodVolume;
    if run.stalled(now) {
        draft.severity = Severity::Warning;
        draft.blocks_deletion = waits.then_some(true);
        draft.explanation = format!(
            "The deletion of this {volume} has stopped before it was complete: nothing was deleted \
             for {:.0} s. See the other findings, and whether the process is blocked.",
            now.since(run.last).as_secs_f64()
        );
        let pid = op.actor.pid;
        let comm = clip(&safe(op.actor.comm.as_bytes()), NAME);
        let look = Step::new(
            format!("show where in the kernel {comm} (pid {pid}) waits"),
            format!("cat /proc/{pid}/stack /proc/{pid}/wchan"),
        );
        draft.remedy(look, "none");
    } else {
        draft.severity = Severity::Info;
        // kubelet removes a pod's volumes before it finishes the pod's deletion.
        draft.blocks_deletion = Some(waits);
        let until = match estimate.eta_range_s {
            Some((soon, late)) if waits => {
                format!(" The pod waits until it is done, for {soon} to {late} s.")
            }
            None if waits => {
                " The pod waits until it is done; how long that takes is not known yet.".into()
            }
            _ => String::new(),
        };
        draft.explanation = format!(
            "The {volume} is being deleted and gets smaller; it has many entries and this takes \
            time. It is not stuck: wait. Restarting the deleting process only starts the \
            deletion over.{until}{}",
            if *draft.cause == DOCKER_VOLUME_STORM {
                " dockerd holds its volume store's lock meanwhile: creating, listing and removing \
                 volumes waits, on all containers."
            } else {
                ""
            }
        );
        draft.rule_out(ids::CALL_HUNG_UNEXPLAINED, "entries disappear at the rate above");
    }
    Some(draft)
}
