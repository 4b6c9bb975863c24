//! What was tried against causes.

use std::sync::Arc;

use nix::errno::Errno;

use super::*;
use crate::{
    backoff::Attempts,
    model::{
        call::Call,
        evidence::Certainty,
        identity::{Target, Volume},
        mountinfo,
        path::JsonPath,
        said::NOT_ROOTS,
        time::Monotonic,
    },
    testing::failed,
    unmounts::Unmounts,
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
    let mut op = failed(call, Errno::EBUSY, "x", 1.0);
    (op.target, op.path, op.mnt_ns) = (Arc::new(target.clone()), path.into(), 1);
    op
}

#[test]
fn what_was_tried_tells_the_causes_apart() {
    let csi = target("kubernetes.io/csi", "/pv");
    let own = op(Call::UnlinkatDir, &csi, "/pv/mount");
    let of = |stacked, tried| cause(&own, &mount(b"/"), stacked, &tried, None).id.as_str();
    assert_eq!(of(1, tried(None, 0)), "csi-driver-lost-publish-state");
    assert_eq!(of(1, tried(Some(1), 0)), "stacked-mounts");
    assert_eq!(of(1, tried(Some(2), 0)), "csi-umount-wrong-namespace");
    assert_eq!(of(2, tried(None, 0)), "stacked-mounts");
    assert_eq!(of(1, tried(None, 3)), "volume-held-by-host-process");
    let deep = op(Call::UnlinkatDir, &csi, "/pv/mount/a/b");
    let deep = cause(&deep, &mount(b"/"), 1, &tried(None, 0), None);
    assert_eq!(deep.id.as_str(), "nested-mount-under-volume");
}

fn mount(root: &[u8]) -> Mount {
    let line = [b"9 2 0:9 ".as_slice(), root, b" /pv/mount rw - ext4 /dev/sdb rw\n"].concat();
    mountinfo::parse(&line).remove(0)
}

fn driver(reach: Reach) -> DriverProcess {
    DriverProcess {
        pid: 7,
        comm: "driver".into(),
        started: Monotonic(1),
        ticks: Some(1),
        reach,
        halted: None,
    }
}

#[test]
fn a_driver_whose_unmounts_stay_with_it_has_not_forgotten() {
    let csi = target("kubernetes.io/csi", "/pv");
    let own = op(Call::UnlinkatDir, &csi, "/pv/mount");
    let of = |reach, tried: Tried| {
        cause(&own, &mount(b"/"), 1, &tried, Some(&driver(reach))).id.as_str()
    };
    let forgot = "csi-driver-lost-publish-state";
    assert_eq!(of(Reach::Whole, tried(None, 0)), forgot);
    assert_eq!(of(Reach::Cut { mounted: true }, tried(None, 0)), forgot);
    assert_eq!(of(Reach::Cut { mounted: false }, tried(None, 0)), "csi-umount-wrong-namespace");
    // Somebody calls it where it counts.
    let held = of(Reach::Cut { mounted: false }, tried(None, 3));
    assert_eq!(held, "volume-held-by-host-process");
}

#[test]
fn a_mount_inside_an_empty_dir_has_its_own_names() {
    let empty = target("kubernetes.io/empty-dir", "/data");
    let on =
        |root: &[u8], op: &Operation| cause(op, &mount(root), 1, &tried(None, 0), None).id.as_str();
    let of = |call, path: &str| on(b"/", &op(call, &empty, path));
    assert_eq!(of(Call::UnlinkatDir, "/data/m"), "emptydir-bidirectional-submount");
    assert_eq!(of(Call::Unlinkat, "/data/log"), "termination-message-in-bidirectional");
    assert_eq!(of(Call::UnlinkatDir, "/data"), "busy-unexplained");
    // A log does not tell whether it is a file, and what is mounted on it does.
    let mut told = op(Call::Unlinkat, &empty, "/data/log");
    told.told_by = Some("log of kubelet".into());
    assert_eq!(on(b"/srv", &told), "emptydir-bidirectional-submount");
    for root in ["/k/pods/u/containers/c/98546bb6", "/pods/u/containers/c/9//deleted"] {
        assert_eq!(on(root.as_bytes(), &told), "termination-message-in-bidirectional", "{root}");
    }
}

/// What is said after so many attempts about an own mount of a CSI volume.
fn after(attempts: u64, tried: &Tried) -> Draft {
    let csi = target("kubernetes.io/csi", "/pv");
    let mut object = BusyObject {
        op: op(Call::UnlinkatDir, &csi, "/pv/mount"),
        count: attempts,
        first: Monotonic(1),
        attempts: Attempts::default(),
        held: None,
        asked_again: false,
        confirmed: false,
    };
    for attempt in 0..attempts {
        object.attempts.note(Monotonic(attempt * 1_000_000_000));
    }
    let all = mountinfo::parse(b"9 2 0:9 / /pv/mount rw - ext4 /dev/sdb rw\n");
    let mounts = Mounts { all, source: "/proc/1/mountinfo".into(), pid: 1 };
    let unmounts = Unmounts::default();
    let context = crate::testing::context(Monotonic(9_000_000_000), &unmounts, &[]);
    removal(&context, &object, tried, Some(&mounts)).unwrap()
}

#[test]
fn that_nobody_unmounts_is_known_only_after_some_attempts() {
    let silent = tried(None, 0);
    assert_eq!(after(3, &silent).certainty(), Certainty::Likely);
    let sure = after(4, &silent);
    assert_eq!((sure.id(), sure.certainty()), ("csi-driver-lost-publish-state", Certainty::Firm));
    let fact = "nobody unmounted it since 00:00:00Z, when the observation began";
    let fact = sure.evidence.iter().find(|known| known.fact == fact).unwrap();
    assert_eq!((&fact.source, fact.since), (&Source::Probe, Some(Monotonic(0))));
    // A log that others may write makes nothing firm, whatever else is known.
    let mut heard = after(4, &silent);
    heard.fact("x", Source::Log("log of kubelet (pid 7), /var/log/kubelet".into()));
    assert_eq!(heard.certainty(), Certainty::Firm);
    heard.fact("x", Source::Log(format!("log of kubelet (pid 7), /var/log/syslog, {NOT_ROOTS}")));
    assert_eq!(heard.certainty(), Certainty::Likely);
    assert_eq!(heard.not_known(), [format!("whether a log is right {NOT_ROOTS}")]);
    // Guessed from the pauses, and not seen by a probe.
    let guessed = |known: &&crate::verdict::Fact| known.fact.contains("back-off");
    let sources = sure.evidence.iter().filter(guessed).map(|known| &known.source);
    assert!(sources.into_iter().all(|source| *source == Source::Inference));
}

#[test]
fn without_the_user_of_a_mount_its_use_is_only_possible() {
    let held = after(9, &tried(None, 3));
    assert_eq!(held.id(), "volume-held-by-host-process");
    assert_eq!(held.certainty(), Certainty::Possible);
    for (ok, id) in [(1, "stacked-mounts"), (2, "csi-umount-wrong-namespace")] {
        let other = after(2, &tried(Some(ok), 0));
        assert_eq!((other.id(), other.certainty()), (id, Certainty::Firm));
    }
}
