//! What is said about a deletion of many entries.

use std::sync::Arc;

use crate::{
    cause::{Cause, Kind, LookAlike, TriedWith, WayOut, like, way},
    causes::{
        mass_deletion::{estimate::Estimate, run::Run},
        shared::clients,
    },
    command::{NAME, Step},
    ids,
    model::{
        call::Outcome,
        diagnosis::Stage,
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

const CONFIRMED: &[&str] =
    &["thousands of entries were deleted below one directory, and more are deleted every second"];
const ALIKE: &[LookAlike] =
    &[like(ids::CALL_HUNG_UNEXPLAINED, "entries disappear, second by second")];
const WAIT: &[WayOut] = &[way("wait", "restarting the process that deletes only starts it over")];
const TITLE: &str = "very many entries: slow, not stuck; shows the rate, how many are left and how \
    long it will take";

/// In an emptyDir.
pub(crate) static EMPTYDIR_FILES: Cause = Cause {
    id: ids::EMPTYDIR_MASS_FILES,
    title: TITLE,
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The pod's emptyDir has so many entries that kubelet takes long to delete them one by \
        one. The pod waits meanwhile; it is not stuck.",
    confirmed_by: CONFIRMED,
    log: None,
    look_alikes: ALIKE,
    ways_out: WAIT,
    field: &["kubernetes#97242", "kubernetes#36983", "trident#664"],
    tried: &[TriedWith::Lab, TriedWith::RealKubelet],
    source: &["kubernetes pkg/volume/emptydir/empty_dir.go, teardownDefault"],
};

/// In a volume of Docker's.
pub(crate) static DOCKER_VOLUME_STORM: Cause = Cause {
    id: ids::DOCKER_VOLUME_UNLINK_STORM,
    title: TITLE,
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "An image declares a VOLUME, its application left millions of entries in it, and \
        dockerd deletes them while it holds its volume store's lock: creating, listing and removing \
        volumes waits, for all containers of the node.",
    confirmed_by: &[
        "thousands of entries were deleted below one directory, and more are deleted every second",
        "who waits meanwhile: processes that are connected to dockerd, and how far their requests have come",
    ],
    log: None,
    look_alikes: ALIKE,
    ways_out: WAIT,
    field: &["NetEase's article on a docker volume with millions of entries", "moby#41424"],
    tried: &[TriedWith::RealRuntime],
    source: &["moby volume/local/local.go, (*Root).Remove"],
};

/// Anywhere else.
pub(crate) static MASS_DELETION: Cause = Cause {
    id: ids::MASS_DELETION,
    title: TITLE,
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A directory with very many entries is being deleted. It holds up no pod by itself, and \
        slows down whoever uses the same disk.",
    confirmed_by: CONFIRMED,
    log: None,
    look_alikes: ALIKE,
    ways_out: WAIT,
    field: &[],
    tried: &[TriedWith::Test],
    source: &["go src/os/removeall_at.go, removeAllFrom"],
};

/// Whether dockerd deletes a volume, and lets no other volume command go on.
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

/// A draft, unless the deletion has stopped and nobody knows yet whether it is complete.
pub(crate) fn draft(run: &Run, now: Monotonic) -> Option<Draft> {
    if run.stalled(now) && !run.incomplete {
        return None;
    }
    let op = run.op.as_ref()?;
    let root = run.root()?;
    let mut draft = Draft::about(TrackerId::BulkDelete, cause(&op.target, &op.actor), op);
    if op.target_id == 0 {
        // What belongs to no target is told apart by who does it.
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
            format!("{} EISDIR answers: one for each directory is Go's normal way", run.eisdir),
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
        // kubelet removes a pod's volumes before it lets the pod go.
        draft.blocks_deletion = Some(waits);
        let until = match estimate.eta_range_s {
            Some((soon, late)) if waits => {
                format!(" The pod waits until it is done, for {soon} to {late} s.")
            }
            None if waits => {
                " The pod waits until it is done; how long that is cannot be told yet.".into()
            }
            _ => String::new(),
        };
        draft.explanation = format!(
            "The {volume} is being deleted and gets smaller; it has many entries and this takes \
             time. It is not stuck: wait. Restarting the process that deletes only starts it \
             over.{until}{}",
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
