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
        time::Monotonic,
    },
    testing::failed,
    trackers::unmounts::Unmounts,
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
    let of = |stacked, tried| cause(&own, stacked, &tried).id.as_str();
    assert_eq!(of(1, tried(None, 0)), "csi-driver-lost-publish-state");
    assert_eq!(of(1, tried(Some(1), 0)), "stacked-mounts");
    assert_eq!(of(1, tried(Some(2), 0)), "csi-umount-wrong-namespace");
    assert_eq!(of(2, tried(None, 0)), "stacked-mounts");
    assert_eq!(of(1, tried(None, 3)), "volume-held-by-host-process");
    let deep = op(Call::UnlinkatDir, &csi, "/pv/mount/a/b");
    assert_eq!(cause(&deep, 1, &tried(None, 0)).id.as_str(), "nested-mount-under-volume");
}

#[test]
fn a_mount_inside_an_empty_dir_has_its_own_names() {
    let empty = target("kubernetes.io/empty-dir", "/data");
    let of = |call, path: &str| cause(&op(call, &empty, path), 1, &tried(None, 0)).id.as_str();
    assert_eq!(of(Call::UnlinkatDir, "/data/m"), "emptydir-bidirectional-submount");
    assert_eq!(of(Call::Unlinkat, "/data/log"), "termination-message-in-bidirectional");
    assert_eq!(of(Call::UnlinkatDir, "/data"), "busy-unexplained");
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
