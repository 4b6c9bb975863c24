//! Tests of the verdicts about orphaned pod directories.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;

use crate::{
    causes::orphan::Orphans,
    event::What,
    model::{
        call::Call,
        csi::{CsiState, Registration, VolumeData},
        errno::Errno,
        evidence::Certainty,
        identity::{Component, Pod},
        node::{NodeSample, PodState, VolumeState},
        node_record::NodeRecord,
        operation::Operation,
        said::Said,
        time::Monotonic,
    },
    testing::{Alone, FILE, failed, found, holder_of, mounted, pod_state, volume_state},
    tracker::{Claim, Subject, Tracker},
    verdict::{Draft, Verdict},
};

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

fn op(call: Call, errno: Errno, below: &str, second: f64) -> Operation {
    let mut op = failed(call, errno, "x", second);
    op.path = format!("/k/pods/{UID}/{below}").into();
    let pod = Pod { uid: UID.into(), namespace: None, name: None };
    Arc::make_mut(&mut op.target).pod = Some(pod);
    op
}

fn observe(orphans: &mut Alone<Orphans>, op: Operation) -> Option<Draft> {
    found(orphans.take(op.end, What::Operation(Box::new(op))).verdicts).pop()
}

fn attempt(orphans: &mut Alone<Orphans>, second: f64) -> Option<Draft> {
    let whole = op(Call::UnlinkatDir, Errno::ENOTEMPTY, "volumes", second);
    let found = observe(orphans, whole);
    let file = "volumes/kubernetes.io~csi/pv/vol_data.json";
    observe(orphans, op(Call::UnlinkatDir, Errno::ENOTDIR, file, second));
    found
}

fn explains(orphans: &Alone<Orphans>, second: u64, claim: Claim) -> bool {
    let at = Monotonic(second * 1_000_000_000);
    let subject = Subject { target_id: 0, path: Path::new(""), pod: UID, at };
    orphans.tracker.explains(&subject, claim)
}

fn over(orphans: &mut Alone<Orphans>, second: u64) -> Vec<Verdict> {
    let at = Monotonic(second * 1_000_000_000);
    let sample = NodeSample { at, ..NodeSample::default() };
    orphans.take(at, What::Sample(Arc::new(sample))).verdicts
}

#[test]
fn housekeeping_that_comes_again_and_again_is_an_orphans() {
    let mut orphans = Alone::new();
    assert!(attempt(&mut orphans, 2.0).is_none());
    assert!(attempt(&mut orphans, 4.0).is_none());
    assert!(explains(&orphans, 5, Claim::Suspicion) && !explains(&orphans, 5, Claim::Finding));
    let draft = attempt(&mut orphans, 6.0).unwrap();
    assert_eq!((draft.id(), draft.blocks_deletion), ("orphaned-pod-dir", Some(false)));
    assert!(draft.evidence.iter().any(|e| e.fact.contains("vol_data.json fails with")));
    assert!(explains(&orphans, 7, Claim::Finding) && explains(&orphans, 7, Claim::Suspicion));
    assert!(over(&mut orphans, 8).is_empty());
    assert!(matches!(over(&mut orphans, 30)[..], [Verdict::Over { .. }]));
}

fn node(missing: &str) -> What {
    What::Node(Box::new(NodeRecord {
        node: "n".into(),
        read: Timestamp::UNIX_EPOCH,
        ready: None,
        kubelet: None,
        drivers: None,
        missing: vec![Pod { uid: missing.into(), namespace: None, name: None }],
    }))
}

fn look(orphans: &mut Alone<Orphans>, second: u64, uids: &[&str]) -> Vec<Verdict> {
    let at = Monotonic(second * 1_000_000_000);
    let pods = uids.iter().map(|uid| pod_state(uid)).collect();
    orphans
        .take(at, What::Sample(Arc::new(NodeSample { at, pods, ..NodeSample::default() })))
        .verdicts
}

#[test]
fn a_pod_that_the_api_server_does_not_have_is_reported_at_the_first_sample_and_once() {
    let mut orphans = Alone::new();
    assert!(look(&mut orphans, 1, &[UID]).is_empty());
    orphans.take(Monotonic(1), node(UID));
    let draft = found(look(&mut orphans, 2, &[UID, "another"])).pop().unwrap();
    assert_eq!((draft.id(), draft.blocks_deletion), ("orphaned-pod-dir", Some(false)));
    assert_eq!(draft.target.pod.as_ref().map(|pod| pod.uid.as_str()), Some(UID));
    for second in [4.0, 6.0, 8.0, 10.0] {
        assert!(attempt(&mut orphans, second).is_none(), "it is said already");
    }
    assert!(look(&mut orphans, 11, &[UID]).is_empty());
    assert!(matches!(look(&mut orphans, 12, &[])[..], [Verdict::Over { .. }]), "removed");
    assert!(look(&mut orphans, 13, &[]).is_empty());
}

/// After the driver has unmounted the volume, only kubelet's `vol_data.json` is left.
#[test]
fn each_remaining_object_is_named_with_the_command_that_removes_it() {
    let mut orphans = Alone::<Orphans>::new();
    orphans.take(Monotonic(1), node(UID));
    let path = PathBuf::from(format!("/k/pods/{UID}/volumes/kubernetes.io~csi/pv"));
    let (driver, handle) = ("block.example".into(), "h-1".into());
    let csi = CsiState {
        data: VolumeData::Known { driver, handle, lifecycle: "Persistent".into() },
        socket: "/s".into(),
        registration: Registration::Listening,
        registry_changed: None,
        driver: None,
    };
    let report = |orphans: &mut Alone<Orphans>, mounts| {
        let volume = VolumeState {
            target_id: 5,
            file: Some(FILE),
            csi: Some(csi.clone()),
            ..volume_state(path.clone(), mounts)
        };
        let pods = vec![PodState { volumes: vec![volume], ..pod_state(UID) }];
        let at = Monotonic(2_000_000_000);
        let sample = NodeSample { at, pods, ..NodeSample::default() };
        let draft = found(orphans.take(at, What::Sample(Arc::new(sample))).verdicts).pop();
        let draft = draft.unwrap();
        let commands: Vec<String> =
            draft.remedies.iter().filter_map(|it| it.command.clone()).collect();
        (draft.evidence.iter().map(|it| it.fact.clone()).collect::<Vec<_>>().join("\n"), commands)
    };
    let (facts, commands) = report(&mut orphans, Vec::new());
    assert!(facts.contains("/pv/vol_data.json is left, and nothing is mounted"), "{facts}");
    assert!(commands[0].contains("rm -f ./pv/vol_data.json && find ./pv -depth"), "{commands:?}");
    assert!(commands.iter().all(|command| !command.contains("grep -F")), "{commands:?}");
    let mut orphans = Alone::<Orphans>::new();
    orphans.take(Monotonic(1), node(UID));
    let (facts, commands) = report(&mut orphans, vec![mounted(path.join("mount"), 9)]);
    assert!(facts.contains("/pv/mount is still mounted"), "{facts}");
    assert!(commands[0].starts_with("grep -F -- "), "{commands:?}");
    assert!(commands.iter().all(|command| !command.contains("rm ")), "{commands:?}");
}

#[test]
fn a_pod_that_is_deleted_in_good_health_sees_it_once() {
    let mut orphans = Alone::new();
    for pod in 0..20 {
        let second = f64::from(pod);
        // A static pod keeps its UID.
        observe(&mut orphans, op(Call::Umount2, Errno::EINVAL, "volumes/p/v", second));
        assert!(attempt(&mut orphans, second + 0.1).is_none());
    }
}

/// As in kubernetes issue 106942 and deckhouse issue 4863.
#[test]
fn a_file_where_kubelet_expects_a_directory_is_removed() {
    let path = format!("/k/pods/{UID}/volume-subpaths/certs/module/0");
    let text = format!(
        "There were many similar errors.: orphaned pod \"{UID}\" found, but failed to rmdir() subpath at path {path}: \
         not a directory"
    );
    let heard = |uid: &str, text: &str| {
        let mut orphans = Alone::<Orphans>::new();
        let at = Timestamp::from_second(590).unwrap();
        let said = Said::new(Component::Kubelet, "log of kubelet (pid 7), /log", uid, at, text);
        orphans.take(Monotonic(600_000_000_000), What::Said(Box::new(Said { times: 3, ..said })));
        let state = PodState { directory: format!("/k/pods/{UID}").into(), ..pod_state(UID) };
        let at = Monotonic(602_000_000_000);
        let sample = NodeSample { at, pods: vec![state], ..NodeSample::default() };
        found(orphans.take(at, What::Sample(sample.into())).verdicts).pop()
    };
    let draft = heard(UID, &text).unwrap();
    draft.assert_is("orphaned-pod-dir", Certainty::Firm);
    let first = draft.remedies[0].words();
    let without_data = r"\( -type f -empty -o -type l -o -type s -o -type p \) -delete";
    assert!(first.ends_with(&format!("/module -maxdepth 1 -name 0 {without_data}")), "{first}");
    let volume = format!("/k/pods/{UID}/volumes/kubernetes.io~csi/pvc-1.a");
    // As kubelet 1.20 ends the line.
    let counted = format!(
        "{text} : There were a total of 1 errors similar to this. Turn up verbosity to see them."
    );
    assert_eq!(heard(UID, &counted).unwrap().remedies[0].words(), first);
    // kubelet's clean-up also removes what is beside the volumes.
    let plugins = format!("/k/pods/{UID}/plugins/kubernetes.io~empty-dir/cache");
    for error in [
        format!("cannot delete directory {plugins}: it is a mount point"),
        format!("unlinkat {plugins}: device or resource busy"),
    ] {
        let subdir = format!("/k/pods/{UID}/plugins");
        let text = format!(
            "orphaned pod \"{UID}\" found, but error occurred when trying to remove subdir {subdir}: {error}"
        );
        let draft = heard(UID, &text).unwrap();
        assert_eq!(holder_of(&draft.held_by), format!("the mount at {plugins}"));
        assert!(draft.remedies[0].words().starts_with("grep -F -- "), "{:?}", draft.remedies);
    }
    let of_volume = heard(UID, &text.replace(&path, &volume)).unwrap();
    let first = of_volume.remedies[0].words();
    assert!(first.ends_with(&format!(" -name pvc-1.a {without_data}")), "{first}");
    for hostile in ["a*", "a b", "-delete", "a;b"] {
        let hostile = format!("/k/pods/{UID}/volumes/kubernetes.io~csi/{hostile}");
        let draft = heard(UID, &text.replace(&path, &hostile)).unwrap();
        assert!(!draft.remedies[0].words().contains("-delete"), "{hostile}");
    }
    let outside = text.replace(&path, "/etc/shadow");
    assert!(!heard(UID, &outside).unwrap().remedies[0].words().contains("-delete"));
    let above = text.replace("certs/module", "../../x");
    assert!(!heard(UID, &above).unwrap().remedies[0].words().contains("-delete"));
    // The words may come from a pod's name: their UID must match the UID of the line.
    let other = text.replace(UID, "1f0e0d0c-1111-2222-3333-444455556666");
    assert!(heard(UID, &other).is_none());
}
