//! What an EBUSY means, given the mounts and what was tried.

use super::{
    busy::BusyObject,
    command::View,
    draft::{Draft, Family, PROBE, times},
    umounts::Tried,
    untried_words::WRONG_NAMESPACE,
};
use crate::{
    model::{
        finding::Severity, identity::TargetKind, operation::Operation, path::safe_path,
        time::Monotonic,
    },
    state::mounts::Mounts,
};

/// kubelet tries once more after half a second: an EBUSY that was not repeated may be over.
const ATTEMPTS_NEEDED: u64 = 2;
/// A shim tries 50 times at 50 ms before it gives up once.
pub(super) const SHIM_BURST: u64 = 10;

/// A directory or file could not be removed.
pub(super) fn removal(
    object: &BusyObject,
    tried: &Tried,
    mounts: Option<&Mounts>,
) -> Option<Draft> {
    let op = &object.op;
    // Docker's volume removal makes one attempt for each command of its user.
    if object.attempts.count() < ATTEMPTS_NEEDED && op.target.kind != TargetKind::DockerVolume {
        return None;
    }
    let path = safe_path(&op.path).into_owned();
    let Some(mounts) = mounts else {
        let mut draft = base("busy-unexplained", object, 0.3);
        draft.fact("the mounts of the caller could not be read: its namespace is gone", "/proc");
        draft.explanation =
            "The path is busy, and whether it is a mount point is not known.".into();
        return Some(draft);
    };
    let here: Vec<_> = mounts.at(&op.path).collect();
    let Some(top) = here.last() else {
        let mut draft = base("busy-unexplained", object, 0.3);
        draft.fact(format!("{path} is not a mount point for the caller now"), &mounts.source);
        draft.explanation = "The kernel said EBUSY although the path is not a mount point. A mount \
            that came and went, or a file that NFS keeps for an open descriptor (`.nfsXXXX`), would \
            explain it."
            .into();
        return Some(draft);
    };
    let mut draft = base(cause(op, here.len(), tried), object, 0.0);
    draft.confidence = confidence(object, draft.id);
    draft.fact(
        format!("{path} is a mount point for the caller: {}", top.describe()),
        &mounts.source,
    );
    if here.len() > 1 {
        draft.fact(format!("{} mounts are stacked on it", here.len()), &mounts.source);
    }
    tell_attempts(&mut draft, tried);
    explain(&mut draft, object);
    let umount = View::of(op).on_mount("umount", &op.path);
    draft.remedy(
        umount,
        "low once all containers of the pod have ended and nobody uses the mount; what is mounted \
         stays intact. Never `rm -rf` below it: that deletes the data behind the mount",
    );
    Some(draft)
}

/// What is common to all verdicts about something busy.
pub(super) fn base(id: &'static str, object: &BusyObject, confidence: f64) -> Draft {
    let op = &object.op;
    let mut draft = Draft::about(Family::Busy, id, op);
    draft.confidence = confidence;
    draft.severity = Severity::Warning;
    draft.count = object.count;
    draft.first = object.first;
    draft.blocks_deletion = match op.target.kind {
        TargetKind::PodVolume | TargetKind::PodDirectory | TargetKind::ContainerBundle => {
            Some(true)
        }
        // Containers and their layers are collected in the background since Kubernetes 1.27.
        TargetKind::ContainerLayer | TargetKind::DockerVolume | TargetKind::Other => None,
    };
    let attempts = object.attempts.count();
    draft.fact(
        format!(
            "{} failed with EBUSY {} in {attempts} {}",
            op.call.name(),
            times(object.count),
            if attempts == 1 { "attempt" } else { "attempts" }
        ),
        PROBE,
    );
    if let Some(gap) = object.attempts.next_gap() {
        let gaps: Vec<String> =
            object.attempts.gaps().iter().map(|g| format!("{:.1}", g.as_secs_f64())).collect();
        let due = gap.saturating_sub(Monotonic::now().since(object.op.end)).as_secs_f64();
        draft.fact(
            format!(
                "the pauses ({} s) are kubelet's back-off; next attempt in about {due:.0} s",
                gaps.join(", ")
            ),
            PROBE,
        );
    }
    draft
}

/// Which cause fits a mount point that its owner tries to remove instead of unmounting it.
fn cause(op: &Operation, stacked: usize, tried: &Tried) -> &'static str {
    let Operation { call, target, path, .. } = op;
    let unmounted = tried.succeeded_in(op.mnt_ns);
    let plugin = target.volume.as_ref().map_or("", |v| v.plugin.as_str());
    let below_root = *path != target.root;
    match plugin {
        // A driver's own mount sits at `mount` below the volume's directory, or at its root.
        "kubernetes.io/csi" => {
            let own = path.parent() == Some(&target.root) || !below_root;
            match (own, unmounted, tried.busy > 0) {
                (false, ..) => "nested-mount-under-volume",
                _ if stacked > 1 => "stacked-mounts",
                (_, Some(true), _) => "stacked-mounts",
                (_, Some(false), _) => "csi-umount-wrong-namespace",
                (_, None, true) => "volume-held-by-host-process",
                (_, None, false) => "csi-driver-lost-publish-state",
            }
        }
        _ if stacked > 1 || (!below_root && unmounted == Some(true)) => "stacked-mounts",
        "kubernetes.io/empty-dir" if below_root && !call.removes_directory() => {
            "termination-message-in-bidirectional"
        }
        "kubernetes.io/empty-dir" if below_root => "emptydir-bidirectional-submount",
        "subpath" => "subpath-busy",
        _ if below_root => "nested-mount-under-volume",
        _ => "busy-unexplained",
    }
}

fn confidence(object: &BusyObject, id: &str) -> f64 {
    match id {
        "busy-unexplained" => 0.3,
        "volume-held-by-host-process" => 0.5,
        // That nobody unmounts is known better with every attempt that passes.
        "csi-driver-lost-publish-state" => match object.attempts.count() {
            0..=2 => 0.6,
            3 => 0.75,
            _ if object.attempts.next_gap().is_some() => 0.9,
            _ => 0.8,
        },
        _ => 0.9,
    }
}

fn tell_attempts(draft: &mut Draft, tried: &Tried) {
    let Some((_, outcome, who)) = tried.last.as_ref().filter(|_| tried.any()) else {
        draft.fact("nobody called umount2 on it since the observation began", PROBE);
        return;
    };
    draft.fact(
        format!(
            "umount2 on it: {} succeeded, {} failed with EBUSY, {} otherwise; last {} by {who}",
            tried.ok,
            tried.busy,
            tried.other,
            outcome.name()
        ),
        PROBE,
    );
}

fn explain(draft: &mut Draft, object: &BusyObject) {
    let plugin = object.op.target.volume.as_ref().map_or("", |v| v.plugin.as_str());
    draft.explanation = match draft.id {
        "csi-driver-lost-publish-state" => {
            draft.ruled_out.extend([
                "volume-held-by-host-process: umount2 would have failed with EBUSY; nobody called \
                 it"
                .to_owned(),
                "stacked-mounts: there is one mount on the path, and none was unmounted".to_owned(),
                "csi-driver-not-registered: kubelet stops before it touches the path when the \
                 driver is not registered"
                    .to_owned(),
            ]);
            "The CSI driver told kubelet that the volume is unpublished without unmounting it, \
             most likely because it was restarted and forgot what it had published; kubelet then \
             tries to remove a directory that still is a mount point. Not known from here: what \
             the driver answered; its log says (`not published`, `nothing to do`)."
        }
        "stacked-mounts" => {
            "The volume was mounted more than once on the same path, and one unmount removes only \
             the uppermost. Unmount until it fails with EINVAL."
        }
        "csi-umount-wrong-namespace" => WRONG_NAMESPACE,
        "emptydir-bidirectional-submount" => {
            "A container mounted something inside its emptyDir with Bidirectional propagation and \
             ended without unmounting it. kubelet deletes what it can reach before it fails: see \
             that nothing valuable lies behind the mount."
        }
        "termination-message-in-bidirectional" => {
            "A file inside the volume is a mount point (often the container's \
             terminationMessagePath inside a volume with Bidirectional propagation)."
        }
        "subpath-busy" => "A subPath mount was not unmounted before its directory is removed.",
        "volume-held-by-host-process" => {
            "The driver's unmount fails because somebody uses the mount; who it is, this finding \
             does not know."
        }
        "nested-mount-under-volume" => {
            "Something is mounted inside the volume and must be unmounted first."
        }
        _ if plugin.is_empty() => "The path is a mount point and must be unmounted first.",
        _ => "The volume's directory is still a mount point; nobody unmounts it.",
    }
    .into();
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nix::errno::Errno;

    use super::{super::sample, *};
    use crate::model::{
        call::Call,
        identity::{Target, Volume},
        path::JsonPath,
    };

    fn target(plugin: &str, root: &str) -> Target {
        let path = JsonPath(root.into());
        let volume = Volume { name: "v".into(), plugin: plugin.into(), path };
        Target {
            kind: TargetKind::PodVolume,
            root: root.into(),
            volume: Some(volume),
            ..Target::unknown()
        }
    }

    fn tried(ok: Option<u32>, busy: u64) -> Tried {
        let last_ok = ok.map(|namespace| (Monotonic(1), namespace));
        Tried { ok: u64::from(ok.is_some()), last_ok, busy, ..Tried::default() }
    }

    fn op(call: Call, target: &Target, path: &str) -> Operation {
        let mut op = sample::failed(call, Errno::EBUSY, "x", 1.0);
        (op.target, op.path, op.mnt_ns) = (Arc::new(target.clone()), path.into(), 1);
        op
    }

    #[test]
    fn what_was_tried_tells_the_causes_apart() {
        let csi = target("kubernetes.io/csi", "/pv");
        let own = op(Call::UnlinkatDir, &csi, "/pv/mount");
        let of = |stacked, tried| cause(&own, stacked, &tried);
        assert_eq!(of(1, tried(None, 0)), "csi-driver-lost-publish-state");
        assert_eq!(of(1, tried(Some(1), 0)), "stacked-mounts");
        assert_eq!(of(1, tried(Some(2), 0)), "csi-umount-wrong-namespace");
        assert_eq!(of(2, tried(None, 0)), "stacked-mounts");
        assert_eq!(of(1, tried(None, 3)), "volume-held-by-host-process");
        let deep = op(Call::UnlinkatDir, &csi, "/pv/mount/a/b");
        assert_eq!(cause(&deep, 1, &tried(None, 0)), "nested-mount-under-volume");
    }

    #[test]
    fn a_mount_inside_an_empty_dir_has_its_own_names() {
        let empty = target("kubernetes.io/empty-dir", "/data");
        let of = |call, path: &str| cause(&op(call, &empty, path), 1, &tried(None, 0));
        assert_eq!(of(Call::UnlinkatDir, "/data/m"), "emptydir-bidirectional-submount");
        assert_eq!(of(Call::Unlinkat, "/data/log"), "termination-message-in-bidirectional");
        assert_eq!(of(Call::UnlinkatDir, "/data"), "busy-unexplained");
    }
}
