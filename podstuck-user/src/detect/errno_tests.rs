use std::sync::Arc;

use super::{super::sample::failed, *};
use crate::{
    model::identity::{Component, Pod},
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
fn a_volume_without_room_is_not_the_nodes_disk() {
    let inside = on(&format!("/var/lib/kubelet/pods/{UID}/volumes/p/data"));
    for errno in [Errno::ENOSPC, Errno::EDQUOT] {
        let draft = verdict(errno, Some(&on("/var/lib/kubelet"))).unwrap();
        assert_eq!(draft.id, "disk-full-runtime");
        let draft = verdict(errno, Some(&inside)).unwrap();
        assert_eq!(draft.id, "removal-failed-unexplained");
        assert!(draft.explanation.contains("own disks are not concerned"), "{draft:?}");
    }
}

#[test]
fn no_pod_waits_for_an_orphan_on_a_broken_disk() {
    let mut detectors = crate::detect::Detectors::default();
    let mut cases = Vec::new();
    for second in [2.0, 4.0, 6.0, 8.0, 10.0] {
        let mut whole = op(Errno::ENOTEMPTY, "x", second);
        whole.call = Call::UnlinkatDir;
        whole.path = format!("/k/pods/{UID}/volumes").into();
        detectors.observe(&whole);
        let mut below = op(Errno::EIO, "x", second);
        below.call = Call::UnlinkatDir;
        below.path = format!("/k/pods/{UID}/volumes/p/v").into();
        let family = |case: &Case| case.family == Family::Space;
        cases.push(detectors.observe(&below).0.iter().filter(|case| family(case)).count());
    }
    assert_eq!(cases, [0, 1, 0, 0, 0], "the third time, it is an orphan");
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
    for errno in [Errno::ESTALE, Errno::EACCES, Errno::ENAMETOOLONG, Errno::EOVERFLOW] {
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

#[test]
fn a_mount_point_lies_on_the_file_system_above() {
    let mut errnos = Errnos::default();
    let mut path_of = |call| {
        let mut last = op(Errno::EROFS, "m", 1.0);
        last.call = call;
        errnos.observe(&last);
        last.end = Monotonic(2_000_000_000);
        let needs = errnos.observe(&last).unwrap().needs;
        errnos.forget(7, None);
        let Needs::FileSystem { path, .. } = needs else { panic!("{needs:?}") };
        (last.path, path)
    };
    let (removed, asked) = path_of(Call::UnlinkatDir);
    assert_eq!(removed.parent(), Some(asked.as_path()));
    let (unmounted, asked) = path_of(Call::Umount2);
    assert_eq!(unmounted, asked);
}
