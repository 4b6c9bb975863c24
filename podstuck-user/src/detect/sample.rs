//! Operations for the detectors' tests.

use std::{path::Path, sync::Arc, time::Duration};

use nix::errno::Errno;

use crate::{
    model::{
        call::{Call, Outcome},
        holder::{HeldMount, Holder, How, Subject, Through},
        identity::{Actor, Component, Target, TargetKind, Volume},
        operation::Operation,
        path::JsonPath,
        time::Monotonic,
    },
    state::holders::Snapshot,
};

/// Root of the sample volume.
pub(super) const VOLUME: &str = "/k/pods/u/volumes/kubernetes.io~empty-dir/data";

/// A failed call of kubelet on an object of an emptyDir.
pub(super) fn failed(call: Call, errno: Errno, object: &str, seconds: f64) -> Operation {
    let volume = Volume {
        name: "data".into(),
        plugin: "kubernetes.io/empty-dir".into(),
        path: JsonPath(VOLUME.into()),
    };
    let target = Target {
        kind: TargetKind::PodVolume,
        root: VOLUME.into(),
        volume: Some(volume),
        ..Target::unknown()
    };
    Operation {
        end: Monotonic((seconds * 1e9) as u64),
        duration: Duration::from_micros(9),
        call,
        outcome: Outcome(errno as u16),
        reason: podstuck_common::record::reason::FAILED,
        flaws: 0,
        flags: 0,
        path: Path::new(VOLUME).join(object),
        target_id: 7,
        target: Arc::new(target),
        actor: Arc::new(actor(Component::Kubelet)),
        tid: 42,
        mnt_ns: 1,
        directory: (1, 2),
        mount_id: 9,
        depth: 1,
        mount_depth: 0,
        suppressed: 0,
    }
}

/// Somebody who plays a part.
pub(super) fn actor(component: Component) -> Actor {
    let comm = component.name().into();
    Actor { pid: 42, comm, cgroup: None, component, pod: None, parent: None }
}

/// Process 77, which holds something on mount 9.
pub(super) fn holder(how: How, through: Through, explains: Option<bool>) -> Holder {
    Holder {
        how,
        object: JsonPath("/v/x".into()),
        count: 1,
        through,
        mount: HeldMount { id: 9, namespace: Some(5), point: JsonPath("/v".into()) },
        explains_ebusy: explains,
        exact: true,
        pid: Some(77),
        comm: Some("backup".into()),
        component: Some(Component::Other),
        cgroup: None,
        container: None,
        pod: None,
        source: "/proc/77/fdinfo/3".into(),
    }
}

/// A snapshot with these holders of the sample volume.
pub(super) fn snapshot(holders: Vec<Holder>) -> Snapshot {
    let subject = Subject {
        path: JsonPath(VOLUME.into()),
        what: "mount of tmpfs of type tmpfs, device 0:45".into(),
        device: "0:45".into(),
        mount_id: Some(9),
        namespace: Some(5),
    };
    let looked_at = (100, 3, 200);
    Snapshot { at: Monotonic(0), subject: Ok(subject), holders, unseen: Vec::new(), looked_at }
}
