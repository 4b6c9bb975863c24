use std::sync::Arc;

use super::{super::sample::failed, *};
use crate::{
    model::{
        call::Call,
        identity::{Component, Pod},
    },
    state::file_system::Counted,
};

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

fn op(errno: Errno, object: &str, second: f64) -> Operation {
    let mut op = failed(Call::Unlinkat, errno, object, second);
    let pod = Pod { uid: UID.into(), namespace: None, name: None };
    Arc::make_mut(&mut op.target).pod = Some(pod);
    op
}

fn on(point: &str) -> FileSystem {
    FileSystem {
        point: point.into(),
        fs_type: "ext4".into(),
        source: "/dev/sda1".into(),
        device: "8:1".into(),
        mount_read_only: false,
        read_only: false,
        options: Vec::new(),
        device_exists: Some(true),
        errors: Vec::new(),
        table: "/proc/1/mountinfo".into(),
    }
}

fn verdict(errno: Errno, found: Option<&FileSystem>) -> Option<Draft> {
    let mut errnos = Errnos::default();
    assert!(errnos.observe(&op(errno, "f", 1.0)).is_none(), "a single failure proves nothing");
    let case = errnos.observe(&op(errno, "f", 1.5)).unwrap();
    errnos.conclude(&case, found)
}

#[test]
fn a_read_only_node_is_told_from_a_read_only_mount_in_the_pod() {
    let root = FileSystem { read_only: true, mount_read_only: true, ..on("/var/lib/kubelet") };
    let draft = verdict(Errno::EROFS, Some(&root)).unwrap();
    assert_eq!((draft.id, draft.blocks_deletion), ("node-fs-readonly", Some(true)));
    let inside = format!("/var/lib/kubelet/pods/{UID}/volumes/p/data");
    let volume = FileSystem { mount_read_only: true, ..on(&inside) };
    assert!(verdict(Errno::EROFS, Some(&volume)).is_none(), "a mount in the way, which is busy");
    let meanwhile = on("/var/lib/kubelet");
    let draft = verdict(Errno::EROFS, Some(&meanwhile)).unwrap();
    assert_eq!((draft.id, draft.confidence), ("removal-failed-unexplained", 0.3));
}

#[test]
fn a_broken_device_is_surer_when_the_kernel_has_counted() {
    let calm = verdict(Errno::EIO, Some(&on("/v"))).unwrap();
    let counted = Counted { value: "7".into(), file: "/sys/fs/ext4/sda1/errors_count".into() };
    let broken = FileSystem { errors: vec![counted], ..on("/v") };
    let sure = verdict(Errno::EIO, Some(&broken)).unwrap();
    assert_eq!((calm.id, sure.id), ("device-io-error", "device-io-error"));
    assert!(calm.confidence < sure.confidence);
    let gone = FileSystem { device_exists: Some(false), ..on("/v") };
    assert_eq!(verdict(Errno::ENODEV, Some(&gone)).unwrap().confidence, 0.9);
}

#[test]
fn what_cannot_be_known_is_not_claimed() {
    let nfs = FileSystem { fs_type: "nfs4".into(), device_exists: None, ..on("/v") };
    assert_eq!(verdict(Errno::ESTALE, Some(&nfs)).unwrap().id, "nfs-stale-handle");
    for errno in [Errno::ESTALE, Errno::EACCES, Errno::ENAMETOOLONG] {
        for found in [Some(&on("/v")), None] {
            let draft = verdict(errno, found).unwrap();
            assert_eq!((draft.id, draft.confidence), ("removal-failed-unexplained", 0.3));
        }
    }
}

#[test]
fn a_pod_has_one_finding_and_read_only_wins() {
    let mut errnos = Errnos::default();
    for second in [1.0, 2.0] {
        let mut other = op(Errno::EIO, "f", second);
        other.target_id = 8;
        errnos.observe(&other);
    }
    for (second, target) in [(3.0, 7), (3.1, 9), (4.0, 9)] {
        let mut ro = op(Errno::EROFS, "f", second);
        ro.target_id = target;
        errnos.observe(&ro);
    }
    assert_eq!((errnos.count(7), errnos.count(8), errnos.count(9)), (Some(3), None, None));
    assert!(errnos.observe(&op(Errno::EIO, "f", 5.0)).is_none());
    errnos.forget(7, None);
    assert_eq!(errnos.count(7), None);
}

#[test]
fn a_container_may_fail_at_its_own_volume() {
    let mut errnos = Errnos::default();
    for second in [1.0, 2.0, 3.0] {
        let mut own = op(Errno::EACCES, "f", second);
        Arc::make_mut(&mut own.actor).component = Component::Workload;
        assert!(errnos.observe(&own).is_none());
    }
}
