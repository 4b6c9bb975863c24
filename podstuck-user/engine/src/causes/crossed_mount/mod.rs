//! A removal that goes through a mount inside the volume and deletes what lies behind it. Go's `os.RemoveAll`, and
//! so kubelet, does not stop at a mount point.

use crate::cause::Origin;
use std::path::Path;

use podstuck_common::record::reason;

use crate::{
    bounded::Bounded,
    cause::{Cause, Kind, TriedWith, like, seen, way},
    causes::shared::clean_up::is_clean_up,
    command::View,
    event::{Event, What},
    family::Family,
    ids,
    model::{
        degraded::Feed, diagnosis::Stage, evidence::Source, finding::Severity,
        identity::TargetKind, mounts::Mounts, operation::Operation, path::safe_path,
        time::Monotonic,
    },
    query::{Query, Question, ReadMounts},
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId, TrackerSpec},
    verdict::Draft,
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[&REMOVAL_CROSSES_MOUNT],
    trackers: &[TrackerSpec {
        id: TrackerId::CrossedMount,
        feeds: &[Feed::Calls],
        yields: &[],
        new: || Box::<CrossedMounts>::default(),
    }],
};

/// Targets followed at a time.
const TARGETS: usize = 1024;

/// A target with a removal behind a mount.
pub(crate) struct Crossed {
    /// The first deletion behind the mount.
    pub(crate) op: Operation,
    /// Number of reported deletions there.
    pub(crate) count: u64,
    /// When the last deletion was.
    pub(crate) last: Monotonic,
}

/// All targets with a removal behind a mount.
#[derive(Default)]
pub(crate) struct CrossedMounts {
    targets: Bounded<u64, Crossed, TARGETS>,
}

impl CrossedMounts {
    fn observe(&mut self, op: &Operation) -> Option<Query> {
        if !op.has(reason::CROSSED) || !is_clean_up(op) || !is_foreign(op) {
            return None;
        }
        let begin = || Crossed { op: op.clone(), count: 0, last: op.end };
        let crossed = self.targets.or_insert_with(op.target_id, begin);
        crossed.count += 1 + u64::from(op.suppressed);
        crossed.last = op.end;
        let (pid, namespace) = (op.actor.pid, op.mnt_ns);
        let (path, mount_id) = (op.path.clone(), crossed.op.mount_id);
        let wants = ReadMounts { pid, namespace, path, mount_id }.into();
        Some(Query { tracker: self.id(), target_id: op.target_id, path: op.path.clone(), wants })
    }
}

impl Tracker for CrossedMounts {
    fn id(&self) -> TrackerId {
        TrackerId::CrossedMount
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Operation(op) => steps.ask(self.observe(op)),
            What::Answer { query, answer } => {
                if let Some((_, mounts)) = ReadMounts::answered(query, answer)
                    && let Some(crossed) = self.targets.get(&query.target_id)
                {
                    steps.found([draft(context, crossed, mounts.as_ref())]);
                }
            }
            _ => {}
        }
    }

    fn explains(&self, subject: &Subject<'_>, _: Claim) -> bool {
        self.targets.contains(&subject.target_id)
    }

    fn forget(&mut self, target_id: u64, path: Option<&Path>, _: Monotonic, _: &mut Steps) {
        if path.is_none() {
            self.targets.remove(&target_id);
        }
    }

    fn count(&self, target_id: u64) -> Option<u64> {
        self.targets.get(&target_id).map(|crossed| crossed.count)
    }

    fn dropped(&self) -> u64 {
        self.targets.dropped()
    }
}

/// Whether a deletion is behind a mount that is not the volume's own. A CSI volume's own mount sits one level
/// below its directory.
fn is_foreign(op: &Operation) -> bool {
    let own = match op.target.volume.as_ref().map(|v| v.plugin.as_str()) {
        Some("kubernetes.io/csi") => 1,
        _ => 0,
    };
    let volume = matches!(op.target.kind, TargetKind::PodVolume | TargetKind::DockerVolume);
    volume && op.mount_depth > own
}

/// A removal that deletes what lies behind a mount.
pub(crate) static REMOVAL_CROSSES_MOUNT: Cause = Cause {
    id: ids::REMOVAL_CROSSES_MOUNT,
    title: "the removal goes **through** a mount inside the volume and deletes what lies behind it: data is being lost now",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "Go's `os.RemoveAll`, and so kubelet and dockerd, does not stop at a mount point. \
        The removal of the volume went into a mount inside it and deletes the files behind that \
        mount, which may not be the pod's. When the removal is done, the mount point itself stays \
        busy.",
    confirmed_by: &[
        seen(
            "the node's own components delete files on another mount than the volume's",
            &[Origin::Calls],
        ),
        seen("the caller's mountinfo has a mount inside the volume", &[Origin::Mounts]),
    ],
    log: None,
    look_alikes: &[
        like(ids::EMPTYDIR_BIDIRECTIONAL_SUBMOUNT, "files behind the mount are being deleted"),
        like(ids::CONTAINER_CLEARS_OWN_VOLUME, "the caller runs in no container"),
    ],
    ways_out: &[
        way(
            "remount the mount read-only: the removal fails with EROFS from then on",
            "low: writes by other processes fail, too; the remount fails while a file is open for \
             writing",
        ),
        way(
            "stop the program that removes the volume (kubelet or dockerd), unmount, and start \
             the program again",
            "medium: the program does nothing for the node's other pods meanwhile. `umount -l` \
             alone would not stop a removal that has directories open",
        ),
    ],
    field: &[],
    tried: &[TriedWith::Lab, TriedWith::RealRuntime],
    source: &["go src/os/removeall_at.go, removeAllFrom"],
};

/// The finding, by the caller's mounts.
pub(crate) fn draft(context: &Context<'_>, crossed: &Crossed, mounts: Option<&Mounts>) -> Draft {
    let op = &crossed.op;
    let mut draft = Draft::about(TrackerId::CrossedMount, &REMOVAL_CROSSES_MOUNT, op);
    draft.severity = Severity::Critical;
    // Docker removes the container first, and no pod waits for its volume.
    let of_pod = op.target.kind == TargetKind::PodVolume;
    draft.blocks_deletion = of_pod.then_some(true);
    draft.count = crossed.count;
    draft.last = crossed.last;
    draft.fact(
        format!(
            "{} was deleted behind a mount that sits {} level(s) below the volume's root",
            safe_path(&op.path),
            op.mount_depth
        ),
        Source::Probe,
    );
    draft.fact(format!("at least {} deletions there so far", crossed.count), Source::Probe);
    let mount = mounts.and_then(|m| m.by_id(op.mount_id).map(|mount| (m, mount)));
    draft.explanation = "The removal of the volume went into a mount inside it and deletes the \
        files behind that mount, which may not be the pod's. Data is being lost now. When the \
        removal is done, the mount point itself stays busy, and the volume stays."
        .into();
    match mount {
        Some((table, mount)) => {
            let point = safe_path(&mount.point);
            draft.fact(
                format!("{point} is that mount: {}", mount.describe()),
                Source::mountinfo(&table.source),
            );
            let view = View::of(context, op);
            draft.remedy(
                view.on_mount("mount -o remount,bind,ro", &mount.point, Some(mount.id))
                    .so(", which stops the deletion behind it"),
                "low: stops the loss at once, since the removal goes through this mount and then \
                 fails with EROFS; writes by other processes fail, too. The remount fails while a \
                 file is open for writing: then repeat it",
            );
            draft.remedy(
                view.on_mount("umount", &mount.point, Some(mount.id))
                    .so(", through which files are being deleted"),
                "low once the removal has ended or its program was stopped; before that, the \
                 mount is busy, and `umount -l` would not stop a removal that has the directory \
                 open",
            );
        }
        None if mounts.is_some() => {
            draft.fact("the mount is gone by now", Source::mountinfo("mountinfo"));
        }
        None => draft.fact(
            "the mount could not be looked up: the caller's mounts could not be read, or its \
             namespace is gone",
            Source::mountinfo("mountinfo"),
        ),
    }
    draft.rule_out(ids::CONTAINER_CLEARS_OWN_VOLUME, "the caller runs in no container");
    draft
        .rule_out(ids::EMPTYDIR_BIDIRECTIONAL_SUBMOUNT, "files behind the mount are being deleted");
    draft
}
