//! disk full: facts against verdicts.

use std::sync::Arc;

use jiff::Timestamp;

use crate::{
    causes::disk_full::FullDisks,
    event::What,
    model::{
        evidence::Certainty, identity::Component, node::NodeSample, said::Said, time::Monotonic,
    },
    testing::{Alone, holder_of, space},
    verdict::Verdict,
};

fn sampled(disks: &mut Alone<FullDisks>, second: u64, available: u64) -> Vec<Verdict> {
    let at = Monotonic(second * 1_000_000_000);
    let spaces = vec![space(available, at)];
    let sample = NodeSample { at, spaces, ..NodeSample::default() };
    disks.take(at, What::Sample(Arc::new(sample))).verdicts
}

#[test]
fn a_disk_that_stays_full_is_a_likely_cause() {
    let mut disks = Alone::new();
    assert!(sampled(&mut disks, 0, 0).is_empty());
    let verdicts = sampled(&mut disks, 10, 0);
    let [Verdict::Found(draft)] = &verdicts[..] else { panic!("{verdicts:?}") };
    assert_eq!((draft.id(), draft.blocks_deletion), ("disk-full-runtime", None));
    assert_eq!(draft.certainty(), Certainty::Likely, "a full disk alone is no proof");
    let over = sampled(&mut disks, 20, 1 << 29);
    assert!(matches!(over[..], [Verdict::Over { .. }]));
}

/// learning-kubernetes#80: dockerd cannot write the state of the container that it is to stop.
#[test]
fn a_runtime_that_says_so_is_named_before_one_that_may_hang() {
    let found = |path: &str, second: i64| {
        let mut disks = Alone::new();
        sampled(&mut disks, 990, 0);
        let at = Timestamp::from_second(second).unwrap();
        let text = format!(
            "Error saving dying container to disk: write {path}/x: no space left on device"
        );
        let said = Said::new(Component::Dockerd, "log of dockerd (pid 40), /log", "u", at, &text);
        disks.take(Monotonic(991_000_000_000), What::Said(Box::new(Said { times: 8, ..said })));
        let verdicts = sampled(&mut disks, 1000, 0);
        let [Verdict::Found(draft)] = &verdicts[..] else { panic!("{verdicts:?}") };
        (draft.blocks_deletion, holder_of(&draft.held_by), draft.certainty(), draft.ruled_out.len())
    };
    let root = space(0, Monotonic(0)).path;
    let root = root.display().to_string();
    let of_dockerd = (Some(true), "dockerd".to_owned(), Certainty::Likely, 2);
    assert_eq!(found(&root, 980), of_dockerd);
    let (blocks, held_by, ..) = found("/elsewhere", 980);
    assert_eq!((blocks, &*held_by), (None, ""), "of another disk");
    assert_eq!(found(&root, 100).0, None, "of another time");
}

#[test]
fn a_moment_is_nothing() {
    let mut disks = Alone::new();
    for second in [0, 20, 40] {
        assert!(sampled(&mut disks, second, 0).is_empty());
        assert!(sampled(&mut disks, second + 10, 1 << 29).is_empty());
    }
}
