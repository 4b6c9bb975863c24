//! dead fuse: facts against verdicts.

use std::{path::Path, sync::Arc};

use jiff::Timestamp;

use crate::{
    causes::dead_fuse::DeadMounts,
    event::What,
    model::{
        call::{Call, Outcome},
        errno::Errno,
        evidence::Certainty,
        hung::{FuseServer, MountPoint},
        identity::Component,
        mounted::Mounted,
        node::{NodeSample, PodState},
        said::{NamedLook, Said},
        time::Monotonic,
    },
    query::Answer,
    testing::{Alone, VOLUME, failed, holder_of, mounted, pod_state, volume_state},
    tracker::{Claim, Steps, Subject, Tracker},
    verdict::Verdict,
};

fn mount(errno: Errno) -> Answer {
    let point = Path::new(VOLUME).join("m");
    let mount = MountPoint { point, fs_type: "fuse.s3".into(), ..MountPoint::default() };
    Answer::FuseMounts(vec![(mount, errno as i32)])
}

fn explains(dead: &DeadMounts, target_id: u64, path: &Path) -> bool {
    let subject = Subject { target_id, path, pod: "", at: Monotonic(0) };
    dead.explains(&subject, Claim::Finding)
}

fn forget(dead: &mut DeadMounts, path: &Path) -> Vec<Verdict> {
    let mut steps = Steps::default();
    dead.forget(7, Some(path), Monotonic(0), &mut steps);
    steps.verdicts
}

#[test]
fn a_directory_that_stays_is_asked_about_only_the_second_time() {
    let mut dead = Alone::<DeadMounts>::new();
    let failed = |errno, second| failed(Call::UnlinkatDir, errno, "", second);
    assert!(dead.ask(&failed(Errno::ENOTEMPTY, 1.0)).is_empty(), "every removal does that");
    let query = dead.ask(&failed(Errno::ENOTEMPTY, 1.1)).pop().unwrap();
    assert!(dead.ask(&failed(Errno::ENOTEMPTY, 1.2)).is_empty(), "too soon");
    assert!(dead.answer(&query, mount(Errno::EACCES)).is_none());
    let draft = dead.answer(&query, mount(Errno::ENOTCONN)).unwrap();
    assert_eq!((draft.id(), draft.path), ("fuse-daemon-dead", Path::new(VOLUME).join("m")));
    assert!(explains(&dead.tracker, 7, Path::new(VOLUME)));
    assert!(!explains(&dead.tracker, 8, Path::new("/")));
}

/// GlusterFS answers ENOTCONN by itself while its own servers are away.
#[test]
fn a_server_that_lives_is_not_surely_gone_whatever_it_answers() {
    let of = |fuse| {
        let mut dead = Alone::<DeadMounts>::new();
        let failed = |second| failed(Call::UnlinkatDir, Errno::ENOTEMPTY, "", second);
        drop(dead.ask(&failed(1.0)));
        let query = dead.ask(&failed(1.1)).pop().unwrap();
        let point = Path::new(VOLUME).join("m");
        let mount = MountPoint { point, fs_type: "fuse.g".into(), fuse, ..MountPoint::default() };
        let answer = Answer::FuseMounts(vec![(mount, Errno::ENOTCONN as i32)]);
        dead.answer(&query, answer).unwrap()
    };
    let lives = of(Some(FuseServer::Lives(9)));
    assert_eq!(lives.certainty(), Certainty::Likely, "it may be aborted");
    // As in kubernetes issue 65703.
    assert_eq!(holder_of(&lives.held_by), "the FUSE server (pid 9)");
    assert!(!lives.explanation.contains("has ended"), "{}", lives.explanation);
    assert_eq!(of(Some(FuseServer::Gone)).certainty(), Certainty::Firm);
    assert_eq!(of(Some(FuseServer::NotShown)).certainty(), Certainty::Likely);
}

fn sample(second: u64, is_mounted: bool) -> What {
    let mount = Mounted { is_fuse: true, ..mounted(Path::new(VOLUME).join("m"), 12) };
    let volume = volume_state(VOLUME, is_mounted.then_some(mount).into_iter().collect());
    let pod = PodState { seen_by: Some((1, 1)), volumes: vec![volume], ..pod_state("u") };
    let at = Monotonic(second * 1_000_000_000);
    What::Sample(Arc::new(NodeSample { at, pods: vec![pod], ..NodeSample::default() }))
}

#[test]
fn a_late_run_finds_a_dead_mount_by_kubelets_log() {
    let mut dead = Alone::<DeadMounts>::new();
    let at = |second: u64| Monotonic(second * 1_000_000_000);
    let path = Path::new(VOLUME).join("m");
    let outcome = Outcome(Errno::ENOTCONN as u16);
    let time = Timestamp::from_second(1).unwrap();
    let said = Said::new(Component::Kubelet, "log of kubelet", "u", time, "openfdat m: ...");
    let said = Said { looked: Some(NamedLook { path, outcome }), ..said };
    dead.take(at(1), What::Said(Box::new(said)));
    assert!(dead.take(at(2), sample(2, false)).queries.is_empty(), "it is not mounted");
    let query = dead.take(at(3), sample(3, true)).queries.pop().unwrap();
    assert!(dead.take(at(4), sample(4, true)).queries.is_empty(), "too soon");
    assert!(dead.answer(&query, mount(Errno::EACCES)).is_none());
    let draft = dead.answer(&query, mount(Errno::ENOTCONN)).unwrap();
    draft.assert_is("fuse-daemon-dead", Certainty::Firm);
    assert!(explains(&dead.tracker, 7, Path::new(VOLUME)));
    assert!(dead.take(at(5), sample(5, true)).verdicts.is_empty());
    let over = dead.take(at(6), sample(6, false)).verdicts;
    assert!(matches!(over[..], [Verdict::Cleared { .. }]), "{over:?}");
}

#[test]
fn it_is_over_when_the_mount_point_is_gone() {
    let mut dead = Alone::<DeadMounts>::new();
    let op = failed(Call::UnlinkatDir, Errno::EBUSY, "m", 1.0);
    let query = dead.ask(&op).pop().unwrap();
    dead.answer(&query, mount(Errno::ENOTCONN)).unwrap();
    let dead = &mut dead.tracker;
    assert!(forget(dead, Path::new("/elsewhere")).is_empty());
    let over = forget(dead, &op.path);
    assert!(matches!(over[..], [Verdict::Cleared { .. }]), "{over:?}");
    assert!(!explains(dead, 7, &op.path));
}
