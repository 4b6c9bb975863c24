//! disk full: facts against verdicts.

use std::sync::Arc;

use crate::{
    causes::disk_full::FullDisks,
    event::What,
    model::{evidence::Certainty, node::NodeSample, time::Monotonic},
    testing::{Alone, space},
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

#[test]
fn a_moment_is_nothing() {
    let mut disks = Alone::new();
    for second in [0, 20, 40] {
        assert!(sampled(&mut disks, second, 0).is_empty());
        assert!(sampled(&mut disks, second + 10, 1 << 29).is_empty());
    }
}
