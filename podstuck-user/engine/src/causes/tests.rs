//! Tests of the table of families.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::model::degraded::Feed;

/// Each tracker with each tracker that suppresses it.
fn rows() -> impl Iterator<Item = (TrackerId, &'static Yields)> {
    trackers().flat_map(|spec| spec.yields.iter().map(|row| (spec.id, row)))
}

#[test]
fn the_suppressions_are_these() {
    let mut graph: BTreeMap<TrackerId, Vec<String>> = BTreeMap::new();
    for (of, Yields { to, claim, scope, why }) in rows() {
        let row = format!("  <- {to:?} ({claim:?}, {scope:?}): {why}");
        graph.entry(of).or_default().push(row);
    }
    let text: Vec<String> =
        graph.iter().map(|(of, rows)| format!("{of:?}\n{}", rows.join("\n"))).collect();
    insta::assert_snapshot!(text.join("\n"), @r"
    Busy
      <- CrossedMount (Suspicion, Target): the mount that a removal went through is busy afterwards
      <- Orphan (Finding, Pod): no pod waits for an orphan
      <- DeadMount (Finding, Path): what is above a dead mount stays because of it
    DeadMount
      <- CrossedMount (Suspicion, Target): the mount that a removal went through is busy afterwards
      <- Orphan (Finding, Pod): no pod waits for an orphan
    FileSystem
      <- Orphan (Finding, Pod): no pod waits for an orphan
    NotAttempted
      <- Orphan (Suspicion, Pod): kubelet removes only directories of a pod that is gone
      <- Busy (Suspicion, Target): an attempt is made, and fails
      <- NotEmpty (Suspicion, Target): an attempt is made, and fails
      <- HungCall (Suspicion, Target): an attempt is made, and fails
      <- DeadMount (Finding, Target): an attempt is made, and fails
      <- FileSystem (Finding, Target): an attempt is made, and fails
      <- NetworkStorage (Finding, Target): an attempt is made, and fails
      <- VolumeCommand (Finding, Pod): an attempt is made, and does not return
      <- KubeletState (Finding, Pod): kubelet, which would try, does not run
      <- RuntimeSays (Finding, Pod): kubelet unmounts nothing before the pod's sandbox has been stopped
      <- RuntimeState (Finding, Pod): kubelet unmounts nothing before the pod's sandbox has been stopped
      <- DockerState (Finding, Pod): kubelet unmounts nothing before the pod's sandbox has been stopped
    NotEmpty
      <- DeadMount (Finding, Path): what is above a dead mount stays because of it
      <- Orphan (Suspicion, Pod): kubelet removes only directories of a pod that is gone
    FlexVolume
      <- Busy (Suspicion, Target): an attempt is made, and fails
      <- HungCall (Suspicion, Target): an attempt is made, and does not return
      <- VolumeCommand (Finding, Pod): an attempt is made, and does not return
      <- NetworkStorage (Finding, Target): the driver fails because of the file system
      <- FileSystem (Finding, Target): the driver fails because of the file system
    VolumeCommand
      <- HungCall (Suspicion, Target): the command waits in the kernel, for a call on the volume
    LeftRootfs
      <- Busy (Suspicion, Target): an attempt is made, and fails
    Protected
      <- Refused (Finding, Target): an attempt is made, and fails
    RuntimeSays
      <- RuntimeState (Finding, Pod): it is known what the runtime waits for, and so why it does not answer
      <- DockerState (Finding, Pod): it is known what the runtime waits for, and so why it does not answer
      <- Unkillable (Finding, Pod): it is known what the runtime waits for, and so why it does not answer
      <- LeftRootfs (Suspicion, Pod): it is known what the runtime waits for, and so why it does not answer
    ShimState
      <- RuntimeSays (Finding, Pod): the finding about what the runtime says names the same shim
    HeldVolume
      <- Busy (Suspicion, Target): an attempt is made, and fails
    ");
}

#[test]
fn no_suppression_is_there_twice() {
    let rows = rows().map(|(of, row)| (of, row.to));
    let mut seen = BTreeSet::new();
    for row in rows {
        assert!(seen.insert(row), "{row:?}: which of its claims and scopes holds?");
    }
}

#[test]
fn no_tracker_suppresses_itself() {
    // A tracker that is reached again from itself would suppress itself.
    for start in rows().map(|(of, _)| of) {
        let mut seen = BTreeSet::new();
        let mut next = vec![start];
        while let Some(of) = next.pop() {
            for by in yields_of(of).iter().map(|row| row.to) {
                assert_ne!(by, start, "by way of {seen:?}");
                if seen.insert(by) {
                    next.push(by);
                }
            }
        }
    }
}

#[test]
fn each_tracker_is_of_one_family_and_has_its_turn() {
    let ids: Vec<TrackerId> = FAMILIES.iter().flat_map(|it| it.trackers).map(|it| it.id).collect();
    let unique: BTreeSet<TrackerId> = ids.iter().copied().collect();
    assert_eq!(unique.len(), ids.len(), "two trackers of one name share their findings: {ids:?}");
    assert_eq!(unique, ORDER.into_iter().collect(), "which are shown no event?");
    assert_eq!(ORDER.len(), unique.len(), "which are shown an event twice?");
    for spec in trackers() {
        assert_eq!(spec.id, (spec.new)().id());
    }
    for (of, row) in rows() {
        assert!(unique.contains(&row.to) && !row.why.is_empty(), "{of:?}: {row:?}");
    }
}

#[test]
fn a_static_cause_is_of_one_family() {
    let causes: Vec<_> = FAMILIES.iter().flat_map(|it| it.causes).map(|it| it.id).collect();
    let unique: BTreeSet<_> = causes.iter().copied().collect();
    assert_eq!(unique.len(), causes.len());
}

/// The feeds of a tracker, by the events and queries in its files.
fn feeds_of(files: &[&str]) -> Vec<Feed> {
    let code: String = files.iter().filter_map(|file| file.split("#[cfg(test)]").next()).collect();
    let by_words: [(Feed, &[&str]); 7] = [
        (Feed::Calls, &["What::Operation(", "What::Counts("]),
        (Feed::HungCalls, &["What::Stuck("]),
        (Feed::Node, &["What::Sample("]),
        // A verdict may also read the spaces, to rule out a full disk.
        (Feed::Space, &["in &sample.spaces", "sample.is_full()"]),
        (
            Feed::Objects,
            &[
                "ReachFuseMounts {",
                "ReadAttributes {",
                "ReadSubvolume {",
                "FindProtected {",
                "CountRemaining {",
                "ReadDirectory {",
            ],
        ),
        (Feed::Holders, &["Wants::Holders"]),
        (Feed::Logs, &["What::Said("]),
    ];
    let has = |words: &[&str]| words.iter().any(|word| code.contains(word));
    by_words.into_iter().filter(|(_, words)| has(words)).map(|(feed, _)| feed).collect()
}

#[test]
fn the_feeds_match_the_events_and_queries_of_the_trackers() {
    macro_rules! check {
        ($($tracker:ident: $($file:literal)+,)*) => {
            $({
                let files = [$(include_str!(concat!($file, ".rs"))),+];
                let spec = tracker(TrackerId::$tracker).unwrap();
                assert_eq!(spec.feeds, feeds_of(&files), stringify!($tracker));
            })*
        };
    }
    check! {
        CrossedMount: "crossed_mount/mod",
        Busy: "busy_mount/tracker",
        DeadMount: "dead_fuse/mod",
        Refused: "permission/tracker",
        FileSystem: "file_system/tracker",
        Unkillable: "unkillable/tracker",
        BulkDelete: "mass_deletion/tracker",
        NotAttempted: "csi_volume/tracker",
        Orphan: "orphan/mod",
        NotEmpty: "not_empty/tracker",
        PinnedDevice: "device/pinned",
        HungCall: "hung_call/tracker",
        DiskFull: "disk_full/mod",
        PodRecord: "pod_record/mod",
        LeftRootfs: "busy_mount/left_rootfs",
        HeldVolume: "busy_mount/held_volume" "shared/pending_deletion",
        KubeletState: "kubelet_state/mod" "shared/pending_deletion",
        SliceWait: "kubelet_state/slice",
        Protected: "permission/protected",
        RuntimeSays: "runtime/tracker" "runtime/sandbox" "runtime/verdict",
        BlockVolume: "device/block_volume",
        DeviceReference: "device/referenced",
        RuntimeState: "runtime/state" "runtime/unresponsive" "shared/pending_deletion",
        DockerState: "runtime/docker" "shared/pending_deletion",
        ShimState: "runtime/shim",
        NetworkStorage: "network_storage/mod",
        MountStorm: "mount_table/mod",
    }
}
