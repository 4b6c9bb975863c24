//! What the table of suppressions must be, whoever adds a row to it.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

#[test]
fn the_suppressions_are_these() {
    let mut graph: BTreeMap<TrackerId, Vec<String>> = BTreeMap::new();
    for Suppression { of, by, claim, scope, why } in SUPPRESSIONS {
        let row = format!("  <- {by:?} ({claim:?}, {scope:?}): {why}");
        graph.entry(*of).or_default().push(row);
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
      <- Busy (Suspicion, Target): somebody does try, and fails
      <- NotEmpty (Suspicion, Target): somebody does try, and fails
      <- HungCall (Suspicion, Target): somebody does try, and fails
      <- DeadMount (Finding, Target): somebody does try, and fails
      <- NetworkStorage (Finding, Target): somebody does try, and fails
      <- KubeletState (Finding, Pod): kubelet, which would try, does not run
      <- RuntimeSays (Finding, Pod): kubelet unmounts nothing before the pod's sandbox has been stopped
      <- RuntimeState (Finding, Pod): kubelet unmounts nothing before the pod's sandbox has been stopped
      <- DockerState (Finding, Pod): kubelet unmounts nothing before the pod's sandbox has been stopped
    NotEmpty
      <- DeadMount (Finding, Path): what is above a dead mount stays because of it
      <- Orphan (Suspicion, Pod): kubelet removes only directories of a pod that is gone
    LeftRootfs
      <- Busy (Suspicion, Target): somebody does try, and fails
    Protected
      <- Refused (Finding, Target): somebody does try, and fails
    RuntimeSays
      <- RuntimeState (Finding, Pod): it is known what the runtime waits for, and so why it does not answer
      <- DockerState (Finding, Pod): it is known what the runtime waits for, and so why it does not answer
      <- Unkillable (Finding, Pod): it is known what the runtime waits for, and so why it does not answer
      <- LeftRootfs (Suspicion, Pod): it is known what the runtime waits for, and so why it does not answer
    ShimState
      <- RuntimeSays (Finding, Pod): the same shim is told with what the runtime says of it
    HeldVolume
      <- Busy (Suspicion, Target): somebody does try, and fails
    ");
}

#[test]
fn no_suppression_is_there_twice() {
    let rows = SUPPRESSIONS.iter().map(|row| (row.of, row.by));
    let mut seen = BTreeSet::new();
    for row in rows {
        assert!(seen.insert(row), "{row:?}: which of its claims and scopes holds?");
    }
}

#[test]
fn nobody_explains_itself_away() {
    // Whoever is reached again from itself could be silent because it is silent.
    for start in SUPPRESSIONS.iter().map(|row| row.of) {
        let mut seen = BTreeSet::new();
        let mut next = vec![start];
        while let Some(of) = next.pop() {
            for by in SUPPRESSIONS.iter().filter(|row| row.of == of).map(|row| row.by) {
                assert_ne!(by, start, "by way of {seen:?}");
                if seen.insert(by) {
                    next.push(by);
                }
            }
        }
    }
}

#[test]
fn whoever_is_named_is_one_of_the_trackers() {
    let ids: Vec<TrackerId> = crate::trackers::all().iter().map(|tracker| tracker.id()).collect();
    let unique: BTreeSet<TrackerId> = ids.iter().copied().collect();
    assert_eq!(unique.len(), ids.len(), "two trackers of one name share their findings: {ids:?}");
    for row in SUPPRESSIONS {
        assert!(unique.contains(&row.of) && unique.contains(&row.by), "{row:?}");
        assert!(!row.why.is_empty(), "{row:?}");
    }
}
