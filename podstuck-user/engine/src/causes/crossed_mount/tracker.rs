//! A removal that went through a mount inside the volume and deletes what lies behind it. Go's
//! `os.RemoveAll`, and so kubelet, does not stop at a mount point.

use std::path::Path;

use podstuck_common::record::reason;

use crate::{
    bounded::Bounded,
    causes::crossed_mount,
    causes::shared::clean_up::is_clean_up,
    event::{Event, What},
    model::{identity::TargetKind, operation::Operation, time::Monotonic},
    query::{Answer, Query, Wants},
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId},
};

/// Targets followed at a time.
const TARGETS: usize = 1024;

/// A target with a removal behind a mount.
pub(crate) struct Crossed {
    /// The first deletion behind the mount.
    pub(crate) op: Operation,
    /// Deletions there, as far as they were reported.
    pub(crate) count: u64,
    /// The last of them.
    pub(crate) last: Monotonic,
}

/// All targets with a removal behind a mount.
pub(crate) struct CrossedMounts {
    targets: Bounded<u64, Crossed>,
}

impl Default for CrossedMounts {
    fn default() -> Self {
        Self { targets: Bounded::new(TARGETS) }
    }
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
        let wants = Wants::Mounts { pid, namespace, path, mount_id };
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
                if let Answer::Mounts(mounts) = &**answer
                    && let Some(crossed) = self.targets.get(&query.target_id)
                {
                    steps.found([crossed_mount::verdict::draft(context, crossed, mounts.as_ref())]);
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

/// A CSI volume's own mount sits one level below its directory: what is deleted in there is the
/// volume's content, whatever one may think of that.
fn is_foreign(op: &Operation) -> bool {
    let own = match op.target.volume.as_ref().map(|v| v.plugin.as_str()) {
        Some("kubernetes.io/csi") => 1,
        _ => 0,
    };
    let volume = matches!(op.target.kind, TargetKind::PodVolume | TargetKind::DockerVolume);
    volume && op.mount_depth > own
}
