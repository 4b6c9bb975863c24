//! A removal that went through a mount inside the volume and deletes what lies behind it. Go's
//! `os.RemoveAll`, and so kubelet, does not stop at a mount point.

use std::collections::HashMap;

use super::{Case, Draft, Family, Needs, command::View, draft::PROBE, is_clean_up};
use crate::{
    model::{
        finding::Severity, identity::TargetKind, operation::Operation, path::safe_path,
        time::Monotonic,
    },
    state::mounts::Mounts,
};
use podstuck_common::record::reason;

/// Targets followed at a time.
const TARGETS: usize = 1024;

struct Crossed {
    /// The first deletion behind the mount.
    op: Operation,
    count: u64,
    last: Monotonic,
}

/// All targets with a removal behind a mount.
#[derive(Default)]
pub(super) struct Crossing {
    targets: HashMap<u64, Crossed>,
}

impl Crossing {
    pub(super) fn observe(&mut self, op: &Operation) -> Option<Case> {
        if !op.has(reason::CROSSED) || !is_clean_up(op) || !is_foreign(op) {
            return None;
        }
        if self.targets.len() >= TARGETS && !self.targets.contains_key(&op.target_id) {
            return None;
        }
        let crossed = self.targets.entry(op.target_id).or_insert_with(|| Crossed {
            op: op.clone(),
            count: 0,
            last: op.end,
        });
        crossed.count += 1 + u64::from(op.suppressed);
        crossed.last = op.end;
        Some(Case {
            family: Family::Crossing,
            target_id: op.target_id,
            path: op.path.clone(),
            needs: Needs::Mounts { pid: op.actor.pid, namespace: op.mnt_ns },
        })
    }

    pub(super) fn conclude(&self, case: &Case, mounts: Option<&Mounts>) -> Option<Draft> {
        let crossed = self.targets.get(&case.target_id)?;
        let op = &crossed.op;
        let mut draft = Draft::about(Family::Crossing, "removal-crosses-mount", op);
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
            PROBE,
        );
        draft.fact(format!("at least {} deletions there so far", crossed.count), PROBE);
        let mount = mounts.and_then(|m| m.by_id(op.mount_id).map(|mount| (m, mount)));
        draft.confidence = if mount.is_some() { 0.98 } else { 0.9 };
        draft.explanation =
            "The removal of the volume went into a mount inside it and deletes the \
            files behind that mount, which may belong to somebody else. Data is being lost now. \
            When it is done, the mount point itself stays busy, and the volume stays."
                .into();
        match mount {
            Some((table, mount)) => {
                let point = safe_path(&mount.point);
                draft.fact(format!("{point} is that mount: {}", mount.describe()), &table.source);
                draft.remedy(
                    View::of(op).on_mount("umount -l", &mount.point),
                    "low: detaches the mount at once, so that the removal no longer reaches the \
                     files behind it; whoever still uses it keeps it until then",
                );
            }
            None => draft.fact("the mount is gone, or its namespace is", "/proc"),
        }
        draft.ruled_out.push(
            "a container that tidies up its own volume: the caller runs in no container".into(),
        );
        Some(draft)
    }

    /// Whether a removal behind a mount explains that a path is busy: one finding is enough.
    pub(super) fn explains(&self, target_id: u64) -> bool {
        self.targets.contains_key(&target_id)
    }

    /// Deletions behind a mount, as far as they were seen.
    pub(super) fn count(&self, target_id: u64) -> Option<u64> {
        self.targets.get(&target_id).map(|crossed| crossed.count)
    }

    /// Forgets a target.
    pub(super) fn forget(&mut self, target_id: u64) {
        self.targets.remove(&target_id);
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
