//! file system: facts against verdicts.

use std::{path::Path, sync::Arc};

use jiff::Timestamp;

use crate::{
    causes::file_system::tracker::FileSystemErrors,
    engine::{Engine, Output},
    event::{Event, What},
    model::{
        call::{Call, Outcome},
        errno::Errno,
        evidence::Certainty,
        file_system::{Counted, FileSystem, Subvolume},
        identity::{Component, Pod},
        node::{NodeSample, PodState},
        object::FileId,
        operation::Operation,
        said::{Complaint, Level, NamedLook, Said},
        time::Monotonic,
    },
    query::{Answer, NoAnswer, ReadFileSystem, Wants},
    testing::{Alone, failed, file_system, mounted, pod_state, run, volume_state},
    tracker::{Steps, Tracker, TrackerId},
    verdict::Draft,
};

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

fn op(errno: Errno, object: &str, second: f64) -> Operation {
    let mut op = failed(Call::Unlinkat, errno, object, second);
    let pod = Pod { uid: UID.into(), namespace: None, name: None };
    Arc::make_mut(&mut op.target).pod = Some(pod);
    op
}

fn verdict(errno: Errno, found: Option<&FileSystem>) -> Option<Draft> {
    let mut errors = Alone::<FileSystemErrors>::new();
    assert!(errors.ask(&op(errno, "f", 1.0)).is_empty(), "a single failure proves nothing");
    let query = errors.ask(&op(errno, "f", 1.5)).pop().unwrap();
    errors.answer(&query, Answer::FileSystem(found.cloned()))
}

#[test]
fn a_read_only_node_differs_from_a_read_only_mount_in_the_pod() {
    let root =
        FileSystem { read_only: true, mount_read_only: true, ..file_system("/var/lib/kubelet") };
    let draft = verdict(Errno::EROFS, Some(&root)).unwrap();
    assert_eq!((draft.id(), draft.blocks_deletion), ("node-fs-readonly", Some(true)));
    let inside = format!("/var/lib/kubelet/pods/{UID}/volumes/p/data");
    let volume = FileSystem { mount_read_only: true, ..file_system(&inside) };
    assert!(verdict(Errno::EROFS, Some(&volume)).is_none(), "a mount in the way, which is busy");
    let meanwhile = file_system("/var/lib/kubelet");
    let draft = verdict(Errno::EROFS, Some(&meanwhile)).unwrap();
    assert_eq!(
        (draft.id(), draft.certainty()),
        ("removal-failed-unexplained", Certainty::Possible)
    );
}

/// The finding about EROFS on a btrfs that can be written, by what is found of the subvolume.
fn of_subvolume(point: &str, found: Result<Option<Subvolume>, NoAnswer>) -> Draft {
    let mut errors = Alone::<FileSystemErrors>::new();
    errors.ask(&op(Errno::EROFS, "f", 1.0));
    let query = errors.ask(&op(Errno::EROFS, "f", 1.5)).pop().unwrap();
    let btrfs = FileSystem { fs_type: "btrfs".into(), ..file_system(point) };
    let answer = Box::new(Answer::FileSystem(Some(btrfs)));
    let steps = errors.take(Monotonic(2), What::Answer { query: Box::new(query), answer });
    let [query] = steps.queries.try_into().unwrap();
    assert!(matches!(query.wants, Wants::Subvolume(_)));
    errors.answer(&query, Answer::Subvolume(found)).unwrap()
}

fn words(draft: &Draft) -> String {
    draft.remedies.iter().map(|it| it.words().to_owned()).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_read_only_subvolume_is_named() {
    let file = FileId { device: 7, inode: 256 };
    let path = format!("/var/lib/kubelet/pods/{UID}/volumes/p/data/.snapshot");
    let found = |read_only| Ok(Some(Subvolume { path: path.clone().into(), file, read_only }));
    let inside = format!("/var/lib/kubelet/pods/{UID}/volumes/p/data");
    for point in ["/var/lib/kubelet", &inside] {
        let draft = of_subvolume(point, found(true));
        draft.assert_is("subvolume-readonly", Certainty::Firm);
        let commands = words(&draft);
        let first = "[ \"$(stat -c %d:%i ./.snapshot)\" = 7:256 ] && btrfs property set -ts ./.snapshot ro false";
        assert!(commands.contains(first), "{commands}");
    }
    for unknown in [found(false), Ok(None), Err(NoAnswer::NotEntered("x".into()))] {
        let draft = of_subvolume("/var/lib/kubelet", unknown);
        draft.assert_is("removal-failed-unexplained", Certainty::Possible);
        assert!(words(&draft).contains("btrfs property get -ts "), "{draft:?}");
    }
}

#[test]
fn a_read_only_mount_inside_an_empty_dir_is_unmounted() {
    let volume = format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~empty-dir/data");
    let draft = |point: &str, is_logged: bool| {
        let mut errors = Alone::<FileSystemErrors>::new();
        let failed = |second| {
            let mut op = op(Errno::EROFS, "f", second);
            op.path = format!("{volume}/app/bin/tool").into();
            Arc::make_mut(&mut op.target).root = volume.clone().into();
            op.logged_in = is_logged.then(|| "log of kubelet".into());
            op
        };
        errors.ask(&failed(1.0));
        let query = errors.ask(&failed(1.5)).pop().unwrap();
        let squashfs = FileSystem {
            fs_type: "squashfs".into(),
            read_only: true,
            mount_read_only: true,
            ..file_system(point)
        };
        errors.answer(&query, Answer::FileSystem(Some(squashfs)))
    };
    let app = format!("{volume}/app");
    let inside = draft(&app, true).unwrap();
    inside.assert_is("emptydir-bidirectional-submount", Certainty::Firm);
    assert!(words(&inside).contains("umount "), "{inside:?}");
    assert!(draft(&app, false).is_none(), "in the end, the mount point is busy");
    draft(&volume, true).unwrap().assert_is("mount-over-volume", Certainty::Firm);
}

#[test]
fn a_read_only_subvolume_is_searched_for_on_btrfs_only() {
    let ext4 = verdict(Errno::EROFS, Some(&file_system("/var/lib/kubelet"))).unwrap();
    assert!(!words(&ext4).contains("btrfs"));
    let root = FileSystem {
        fs_type: "btrfs".into(),
        read_only: true,
        mount_read_only: true,
        ..file_system("/var/lib/kubelet")
    };
    let draft = verdict(Errno::EROFS, Some(&root)).unwrap();
    draft.assert_is("node-fs-readonly", Certainty::Firm);
}

#[test]
fn a_volume_without_room_is_not_the_nodes_disk() {
    let inside = file_system(&format!("/var/lib/kubelet/pods/{UID}/volumes/p/data"));
    for errno in [Errno::ENOSPC, Errno::EDQUOT] {
        let draft = verdict(errno, Some(&file_system("/var/lib/kubelet"))).unwrap();
        assert_eq!(draft.id(), "disk-full-runtime");
        let draft = verdict(errno, Some(&inside)).unwrap();
        assert_eq!(draft.id(), "removal-failed-unexplained");
        assert!(draft.explanation.contains("own disks are not concerned"), "{draft:?}");
    }
}

#[test]
fn a_file_system_that_was_not_read_is_not_described() {
    for (errno, id) in [
        (Errno::EIO, "removal-failed-unexplained"),
        (Errno::ENOSPC, "removal-failed-unexplained"),
        (Errno::EDQUOT, "removal-failed-unexplained"),
        (Errno::EROFS, "removal-failed-unexplained"),
        (Errno::ESTALE, "removal-failed-unexplained"),
        (Errno::EUCLEAN, "device-io-error"),
    ] {
        let draft = verdict(errno, None).unwrap();
        assert_eq!((draft.id(), draft.certainty()), (id, Certainty::Possible), "{errno:?}");
        let text = &draft.explanation;
        assert!(text.contains("could not be looked up"), "{errno:?}: {text}");
        assert!(!text.contains("mount table does not show"), "{errno:?}: {text}");
        let inside = ["nested-mount-under-volume", "mount-over-volume"];
        let ruled_out = |other: &crate::verdict::NotThis| inside.contains(&other.cause.as_str());
        assert!(!draft.ruled_out.iter().any(ruled_out), "{errno:?}: {:?}", draft.ruled_out);
    }
}

#[test]
fn a_server_on_the_network_is_named_by_its_file_system() {
    let on = |fs_type: &str| FileSystem {
        fs_type: fs_type.into(),
        source: "//files/share".into(),
        device: "0:45".into(),
        device_exists: None,
        ..file_system("/k/pods/x/volumes/p/v")
    };
    for (errno, fs_type, id, certainty) in [
        (Errno::EHOSTDOWN, "cifs", "smb-host-down", Certainty::Likely),
        (Errno::ENOTCONN, "cifs", "smb-host-down", Certainty::Possible),
        (Errno::EACCES, "smb3", "smb-host-down", Certainty::Possible),
        (Errno::EACCES, "ceph", "cephfs-evicted", Certainty::Possible),
        (Errno::EIO, "ceph", "cephfs-evicted", Certainty::Possible),
        (Errno::EACCES, "ext4", "removal-failed-unexplained", Certainty::Possible),
        (Errno::ESTALE, "nfs4", "nfs-stale-handle", Certainty::Firm),
    ] {
        let draft = verdict(errno, Some(&on(fs_type))).unwrap();
        assert_eq!((draft.id(), draft.certainty()), (id, certainty), "{errno:?} on {fs_type}");
    }
    assert!(verdict(Errno::ENOTCONN, Some(&on("fuse.x"))).is_none(), "another tracker's");
}

#[test]
fn what_the_kernel_says_of_an_evicted_client_makes_it_likely() {
    let mut errors = Alone::<FileSystemErrors>::new();
    let line = "ceph: mds0 reconnect denied";
    let said = Said::new(Component::Other, "log of the kernel", "", Timestamp::UNIX_EPOCH, line);
    let said = Said { complaint: Some(Complaint::SessionRejected), ..said };
    errors.take(Monotonic(1), What::Said(Box::new(said)));
    errors.ask(&op(Errno::EACCES, "f", 1.0));
    let query = errors.ask(&op(Errno::EACCES, "f", 1.5)).pop().unwrap();
    let ceph = FileSystem { fs_type: "ceph".into(), ..file_system("/k/pods/x/volumes/p/v") };
    let draft = errors.answer(&query, Answer::FileSystem(Some(ceph))).unwrap();
    draft.assert_is("cephfs-evicted", Certainty::Likely);
    assert!(draft.evidence.iter().any(|fact| fact.fact.contains(line)));
}

/// An error shows that the device fails if it is about this device, and new; any other warning is only quoted.
#[test]
fn an_error_that_the_kernel_logs_now_shows_that_the_device_fails() {
    let line = "I/O error, dev sda, sector 2048";
    let minutes = |minutes: u64| Monotonic(minutes * 60_000_000_000);
    for (at, level, number, quoted, certainty) in [
        (50, Level::Error, "8:1", true, Certainty::Firm),
        (20, Level::Error, "8:1", false, Certainty::Likely),
        (50, Level::Warning, "8:1", true, Certainty::Likely),
        (50, Level::Error, "8:2", false, Certainty::Likely),
    ] {
        let mut errors = Alone::<FileSystemErrors>::new();
        let at = Timestamp::from_second(at * 60).unwrap();
        let said = Said::new(Component::Other, "log of the kernel", "", at, line);
        let complaint = Some(Complaint::DeviceWarning);
        let said = Said { complaint, level, devices: vec![number.into()], times: 2, ..said };
        errors.take(minutes(51), What::Said(Box::new(said)));
        errors.ask(&op(Errno::EIO, "f", 51.0 * 60.0 + 1.0));
        let query = errors.ask(&op(Errno::EIO, "f", 51.0 * 60.0 + 1.5)).pop().unwrap();
        let answer = Answer::FileSystem(Some(file_system("/v")));
        let draft = errors.answer_at(minutes(52), &query, answer).unwrap();
        draft.assert_is("device-io-error", certainty);
        let fact = format!("the kernel logged, 2 times, last at {at:.0}: {line}");
        assert_eq!(draft.evidence.iter().any(|it| it.fact == fact), quoted, "{:?}", draft.evidence);
    }
}

#[test]
fn no_pod_waits_for_an_orphan_on_a_broken_disk() {
    let mut engine = Engine::new(run());
    let mut asked = Vec::new();
    let mut take = |op: &Operation| {
        engine.take(&Event { at: op.end, what: What::Operation(Box::new(op.clone())) })
    };
    for second in [2.0, 4.0, 6.0, 8.0, 10.0] {
        let mut whole = op(Errno::ENOTEMPTY, "x", second);
        whole.call = Call::UnlinkatDir;
        whole.path = format!("/k/pods/{UID}/volumes").into();
        take(&whole);
        let mut below = op(Errno::EIO, "x", second);
        below.call = Call::UnlinkatDir;
        below.path = format!("/k/pods/{UID}/volumes/p/v").into();
        let of_this = |output: &&Output| match output {
            Output::Query(query) => query.tracker == TrackerId::FileSystem,
            _ => false,
        };
        asked.push(take(&below).iter().filter(of_this).count());
    }
    assert_eq!(asked, [0, 1, 0, 0, 0], "the third time, it is an orphan");
}

#[test]
fn a_broken_device_is_surer_when_the_kernel_has_counted() {
    let calm = verdict(Errno::EIO, Some(&file_system("/v"))).unwrap();
    let counted = Counted { value: "7".into(), file: "/sys/fs/ext4/sda1/errors_count".into() };
    let broken = FileSystem { errors: vec![counted], ..file_system("/v") };
    let sure = verdict(Errno::EIO, Some(&broken)).unwrap();
    assert_eq!((calm.id(), sure.id()), ("device-io-error", "device-io-error"));
    assert_eq!((calm.certainty(), sure.certainty()), (Certainty::Likely, Certainty::Firm));
    let gone = FileSystem { device_exists: Some(false), ..file_system("/v") };
    assert_eq!(verdict(Errno::ENODEV, Some(&gone)).unwrap().certainty(), Certainty::Firm);
}

#[test]
fn what_cannot_be_known_is_not_claimed() {
    let nfs = FileSystem { fs_type: "nfs4".into(), device_exists: None, ..file_system("/v") };
    assert_eq!(verdict(Errno::ESTALE, Some(&nfs)).unwrap().id(), "nfs-stale-handle");
    for errno in [Errno::ESTALE, Errno::EACCES, Errno::ENAMETOOLONG, Errno::EOVERFLOW] {
        for found in [Some(&file_system("/v")), None] {
            let draft = verdict(errno, found).unwrap();
            assert_eq!(
                (draft.id(), draft.certainty()),
                ("removal-failed-unexplained", Certainty::Possible)
            );
        }
    }
}

#[test]
fn a_pod_has_one_finding_and_read_only_wins() {
    let mut errors = Alone::<FileSystemErrors>::new();
    for second in [1.0, 2.0] {
        let mut other = op(Errno::EIO, "f", second);
        other.target_id = 8;
        errors.ask(&other);
    }
    for (second, target) in [(3.0, 7), (3.1, 9), (4.0, 9)] {
        let mut ro = op(Errno::EROFS, "f", second);
        ro.target_id = target;
        errors.ask(&ro);
    }
    let counts = [7, 8, 9].map(|target_id| errors.tracker.count(target_id));
    assert_eq!(counts, [Some(3), None, None]);
    assert!(errors.ask(&op(Errno::EIO, "f", 5.0)).is_empty());
    errors.tracker.forget(7, None, Monotonic(0), &mut Steps::default());
    assert_eq!(errors.tracker.count(7), None);
}

#[test]
fn a_container_may_fail_at_its_own_volume() {
    let mut errors = Alone::<FileSystemErrors>::new();
    for second in [1.0, 2.0, 3.0] {
        let mut own = op(Errno::EACCES, "f", second);
        Arc::make_mut(&mut own.actor).component = Component::Workload;
        assert!(errors.ask(&own).is_empty());
    }
}

#[test]
fn a_mount_point_lies_on_the_file_system_above() {
    let mut errors = Alone::<FileSystemErrors>::new();
    let mut path_of = |call| {
        let mut last = op(Errno::EROFS, "m", 1.0);
        last.call = call;
        errors.ask(&last);
        last.end = Monotonic(2_000_000_000);
        let wants = errors.ask(&last).pop().unwrap().wants;
        errors.tracker.forget(7, None, Monotonic(0), &mut Steps::default());
        let Wants::FileSystem(ReadFileSystem { path, .. }) = wants else { panic!("{wants:?}") };
        (last.path, path)
    };
    let (removed, asked) = path_of(Call::UnlinkatDir);
    assert_eq!(removed.parent(), Some(asked.as_path()));
    let (unmounted, asked) = path_of(Call::Umount2);
    assert_eq!(unmounted, asked);
}

/// The verdict on a volume whose mount kubelet fails to stat(2) with this error.
fn stat_fails(mount: &Path, text: &str, errno: Errno, fs: FileSystem) -> Option<Draft> {
    let mut alone = Alone::<FileSystemErrors>::new();
    let at = Timestamp::from_second(590).unwrap();
    let said = Said::new(Component::Kubelet, "log of kubelet (pid 7), /log", UID, at, text);
    let looked = Some(NamedLook { path: mount.into(), outcome: Outcome(errno as u16) });
    alone.take(Monotonic(600_000_000_000), What::Said(Box::new(Said { looked, ..said })));
    let volume = volume_state(mount.parent().unwrap(), vec![mounted(mount, 12)]);
    let pods = vec![PodState { seen_by: Some((1, 1)), volumes: vec![volume], ..pod_state(UID) }];
    let at = Monotonic(602_000_000_000);
    let sample = NodeSample { at, pods, ..NodeSample::default() };
    let query = alone.take(at, What::Sample(sample.into())).queries.pop().unwrap();
    alone.answer(&query, Answer::FileSystem(Some(fs)))
}

/// As in kubernetes issue 71584: kubelet calls stat(2) on a subPath, and comes to no unmount.
#[test]
fn a_stat_that_nfs_answers_with_estale_is_the_servers_fault() {
    let subpath = Path::new("/k/pods/u/volume-subpaths/content/app/2");
    let verdict = |fs: FileSystem| {
        let text = format!("lstat {}: stale NFS file handle", subpath.display());
        let draft = stat_fails(subpath, &text, Errno::ESTALE, fs);
        draft.map(|draft| (draft.id(), draft.remedies[0].words().to_owned()))
    };
    let of =
        |fs_type: &str, point: &str| FileSystem { fs_type: fs_type.into(), ..file_system(point) };
    let point = subpath.to_string_lossy().into_owned();
    let (id, words) = verdict(of("nfs4", &point)).unwrap();
    assert_eq!(id, "nfs-stale-handle");
    assert!(words.contains("umount -f"), "{words}");
    assert_eq!(verdict(of("fuse.glusterfs", &point)), None, "which server has it is not known");
    assert_eq!(verdict(of("nfs4", "/k")), None, "it is not the volume's own");
}

/// As in openebs/zfs-localpv issue 615: the driver calls stat(2) on the volume, and gives up.
#[test]
fn a_stat_on_a_failed_file_system_is_its_fault_and_no_drivers() {
    let mount = "/k/pods/u/volumes/kubernetes.io~csi/pv/mount";
    let verdict = |fs: FileSystem| {
        let text = format!("stat {mount}: input/output error");
        let draft = stat_fails(Path::new(mount), &text, Errno::EIO, fs);
        draft.map(|draft| (draft.id(), draft.certainty(), draft.remedies[0].words().to_owned()))
    };
    let at = |point: &str| FileSystem { device_exists: Some(true), ..file_system(point) };
    let shut_down = FileSystem { options: vec!["shutdown".into()], ..at(mount) };
    let (id, certainty, words) = verdict(shut_down.clone()).unwrap();
    assert_eq!((id, certainty), ("device-io-error", Certainty::Firm));
    assert!(words.contains("umount"), "{words}");
    let counted = Counted { file: "/sys/fs/ext4/sda/errors_count".into(), value: "3".into() };
    let old = FileSystem { errors: vec![counted], ..at(mount) };
    assert_eq!(verdict(old).unwrap().1, Certainty::Likely, "these errors may be old ones");
    // As in kubernetes issue 67072, of XFS: neither the mount table nor sysfs shows that it has shut itself down.
    assert_eq!(verdict(at(mount)).unwrap().1, Certainty::Likely, "the kernel shows nothing of it");
    let other = FileSystem { device_exists: None, ..at(mount) };
    assert_eq!(verdict(other), None, "it is on no disk of this node");
    let elsewhere = FileSystem { options: shut_down.options.clone(), ..at("/k") };
    assert_eq!(verdict(elsewhere), None, "it is not the volume's own");
    let served = FileSystem { fs_type: "nfs4".into(), ..shut_down };
    assert_eq!(verdict(served), None);
}
