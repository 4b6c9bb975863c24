//! Tests of the verdicts about network storage.

use std::{path::PathBuf, sync::Arc};

use jiff::Timestamp;

use crate::{
    causes::{
        network_storage::{NetworkStorage, judge},
        shared::stat_errors::FRESH,
    },
    event::What,
    model::{
        call::Outcome,
        errno::Errno,
        evidence::Certainty,
        file_system::FileSystem,
        identity::{Component, Target},
        node::{NodeSample, PodState, VolumeState},
        said::{Complaint, NamedLook, Said},
        time::Monotonic,
    },
    query::Answer,
    testing::{Alone, VOLUME, file_system, mounted, pod_state},
    verdict::{Draft, Verdict},
};

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

fn said(errno: Errno, second: i64) -> Said {
    let at = Timestamp::from_second(second).unwrap();
    let text = format!("stat {VOLUME}/mount: {}", errno.words());
    let outcome = Outcome(errno as u16);
    let looked = Some(NamedLook { path: format!("{VOLUME}/mount").into(), outcome });
    let volume = "kubernetes.io/csi/smb.csi.k8s.io^share".into();
    let said = Said::new(Component::Kubelet, "log of kubelet (pid 7), /log", UID, at, &text);
    Said { volume, looked, ..said }
}

fn sample(second: u64, is_mounted: bool) -> NodeSample {
    let path = PathBuf::from(VOLUME);
    let mounts = is_mounted.then(|| mounted(path.join("mount"), 12)).into_iter().collect();
    let target = Arc::new(Target::unknown());
    let volume = VolumeState { target_id: 7, target, path, file: None, csi: None, mounts };
    let pod = PodState { seen_by: Some((1, 1)), volumes: vec![volume], ..pod_state(UID) };
    let at = Monotonic(second * 1_000_000_000);
    NodeSample { at, pods: vec![pod], ..NodeSample::default() }
}

fn on(fs_type: &str) -> FileSystem {
    let point = format!("{VOLUME}/mount");
    let source = "//files.example/share".into();
    FileSystem { fs_type: fs_type.into(), source, device_exists: None, ..file_system(&point) }
}

/// The finding after a stat request failed with this error on a file system of this type.
fn found(errno: Errno, fs_type: &str, kernel: Option<&str>) -> Option<Draft> {
    let mut storage = Alone::<NetworkStorage>::new();
    if let Some(line) = kernel {
        let complaint = match fs_type {
            "ceph" => Complaint::SessionRejected,
            _ => Complaint::ServerSilent,
        };
        let at = Timestamp::UNIX_EPOCH;
        let line = Said::new(Component::Other, "log of the kernel, /dev/kmsg", "", at, line);
        let line = Said { complaint: Some(complaint), ..line };
        storage.take(Monotonic(1), What::Said(Box::new(line)));
    }
    storage.take(Monotonic(2_000_000_000), What::Said(Box::new(said(errno, 2))));
    let sample = sample(4, true);
    let steps = storage.take(sample.at, What::Sample(Arc::new(sample)));
    let [query] = &steps.queries[..] else { panic!("{steps:?}") };
    let answer = Answer::FileSystem(Some(on(fs_type)));
    storage.answer(query, answer)
}

#[test]
fn a_failed_stat_is_judged_by_the_file_system() {
    const SILENT: &str =
        r"CIFS: VFS: \\files.example has not responded in 180 seconds. Reconnecting...";
    const DENIED: &str = "ceph: mds0 reconnect denied";
    for (errno, fs_type, kernel, expected) in [
        (Errno::EHOSTDOWN, "cifs", None, Some(("smb-host-down", Certainty::Likely))),
        (Errno::EACCES, "cifs", None, Some(("smb-host-down", Certainty::Possible))),
        (Errno::EACCES, "cifs", Some(SILENT), Some(("smb-host-down", Certainty::Likely))),
        (Errno::EACCES, "ceph", None, Some(("cephfs-evicted", Certainty::Possible))),
        (Errno::EACCES, "ceph", Some(DENIED), Some(("cephfs-evicted", Certainty::Likely))),
        (Errno::EACCES, "nfs4", None, None),
        (Errno::EHOSTDOWN, "ext4", None, None),
        (Errno::ESTALE, "nfs4", None, None),
    ] {
        let draft = found(errno, fs_type, kernel);
        let finding = draft.as_ref().map(|draft| (draft.id(), draft.certainty()));
        assert_eq!(finding, expected, "{errno:?} on {fs_type}, {kernel:?}");
        let Some(draft) = draft else { continue };
        let has = |words: &str| draft.evidence.iter().any(|fact| fact.fact.contains(words));
        assert!(
            has("kubelet logged once: stat") && has(&format!("of type {fs_type}")),
            "{draft:#?}"
        );
        assert!(kernel.is_none_or(has), "{draft:#?}");
    }
}

#[test]
fn it_is_over_when_the_volume_is_unmounted() {
    let mut storage = Alone::<NetworkStorage>::new();
    storage.take(Monotonic(2_000_000_000), What::Said(Box::new(said(Errno::EHOSTDOWN, 2))));
    let mounted = sample(4, true);
    let steps = storage.take(mounted.at, What::Sample(Arc::new(mounted)));
    let answer = Answer::FileSystem(Some(on("cifs")));
    assert!(storage.answer(&steps.queries[0], answer).is_some());
    let gone = sample(6, false);
    let steps = storage.take(gone.at, What::Sample(Arc::new(gone)));
    assert!(matches!(steps.verdicts[..], [Verdict::Over { target_id: 7, .. }]), "{steps:?}");
}

#[test]
fn an_old_error_starts_no_query() {
    let mut storage = Alone::<NetworkStorage>::new();
    storage.take(Monotonic(2_000_000_000), What::Said(Box::new(said(Errno::EHOSTDOWN, 2))));
    let later = sample(2 + FRESH.as_secs() + 2, true);
    let steps = storage.take(later.at, What::Sample(Arc::new(later)));
    assert!(steps.queries.is_empty() && steps.verdicts.is_empty(), "{steps:?}");
}

#[test]
fn an_error_means_something_on_its_file_system_alone() {
    let id = |errno, fs_type| judge(errno, fs_type).map(|cause| cause.id.as_str());
    for errno in [Errno::EHOSTDOWN, Errno::EACCES, Errno::ENOTCONN, Errno::ETIMEDOUT] {
        assert_eq!(id(errno, "cifs"), Some("smb-host-down"));
        assert_eq!(id(errno, "ext4"), None);
    }
    for errno in [Errno::EACCES, Errno::EIO, Errno::ESHUTDOWN, Errno::ESTALE] {
        assert_eq!(id(errno, "ceph"), Some("cephfs-evicted"));
        assert_eq!(id(errno, "nfs4"), None);
    }
    assert_eq!(id(Errno::EBUSY, "cifs"), None);
}
