//! Tests of the verdicts about mass deletions.

use std::{path::Path, sync::Arc, time::Duration};

use crate::{
    causes::mass_deletion::{
        estimate::{Estimate, Looks, Rate},
        run::{Run, Where, common_ancestor},
        tracker::{BulkDeletes, COUNT_EVERY, SAMPLE_EVERY, pause, place},
    },
    event::{Count, What},
    model::{
        call::{Call, Outcome},
        errno::Errno,
        identity::Component,
        remaining::{Interval, Remaining, Sample},
        time::Monotonic,
    },
    query::{Answer, CountRemaining, NoAnswer, Query},
    testing::{self, Alone, failed},
    tracker::TrackerId,
    verdict::Verdict,
};

fn looks(left: Remaining) -> Looks {
    let mut looks = Looks::default();
    looks.add(left, 100);
    looks
}

fn steady(rate: f64) -> Rate {
    Rate { now: rate, overall: rate }
}

#[test]
fn a_complete_count_gives_one_number() {
    let counted = Remaining { seen: 1000, complete: true, ..Remaining::default() };
    let estimate = Estimate::of(&looks(counted), 300, steady(100.0));
    assert_eq!(estimate.remaining_range, Some((700, 900)));
    assert_eq!((estimate.remaining, estimate.eta_s), (Some(800), Some(8)));
}

#[test]
fn a_sample_gives_a_range_and_its_basis() {
    let sample =
        Sample { entries: 80_000, error: 8_000, directories: 900, levels: 3, linked: false };
    let left = Remaining { seen: 5_000, sample: Some(sample), ..Remaining::default() };
    let looks = looks(left);
    let estimate = Estimate::of(&looks, 100, Rate { now: 1000.0, overall: 2000.0 });
    assert_eq!((estimate.remaining, estimate.eta_s), (Some(80_000), Some(80)));
    let (low, high) = estimate.remaining_range.unwrap();
    assert!(low < 64_000 && high > 100_000 && high < 120_000, "{low} {high}");
    // The rest may go at the overall rate.
    let (soon, late) = estimate.eta_range_s.unwrap();
    assert!(soon <= low / 2666 + 1 && late >= high / 750, "{soon} {late}");
    let facts = estimate.facts(&looks).join("\n");
    assert!(
        facts.contains("estimated by a random sample: the last one read 900 directories"),
        "{facts}"
    );
}

#[test]
fn without_an_estimate_nothing_is_stated() {
    let sample = Sample { entries: 80_000, error: 60_000, ..Sample::default() };
    for sample in [Some(sample), None] {
        let left = Remaining { seen: 5, sample, inodes_used: 1_000_000, ..Remaining::default() };
        let looks = looks(left);
        let estimate = Estimate::of(&looks, 100, steady(1000.0));
        assert_eq!(estimate, Estimate::default());
        assert_eq!(estimate.facts(&looks)[0], "the number of remaining entries is not known");
    }
}

#[test]
fn nothing_is_claimed_without_a_count_or_without_progress() {
    let none = Looks::default();
    assert_eq!(Estimate::of(&none, 5, steady(1.0)), Estimate::default());
    let counted = Remaining { seen: 10, complete: true, ..Remaining::default() };
    let still = Estimate::of(&looks(counted), 100, steady(0.0));
    assert_eq!((still.remaining, still.eta_s), (Some(10), None));
    assert_eq!(Estimate::default().facts(&none), ["the number of remaining entries is not known"]);
}

fn sampled(entries: u64, error: u64) -> Remaining {
    let sample = Sample { entries, error, ..Sample::default() };
    Remaining { sample: Some(sample), ..Remaining::default() }
}

#[test]
fn entries_deleted_since_a_count_are_subtracted() {
    let mut looks = Looks::default();
    looks.add(Remaining { seen: 1000, complete: true, ..Remaining::default() }, 100);
    assert_eq!(looks.remaining(300), Some(Interval { estimate: 800, low: 800, high: 800 }));
    assert_eq!(looks.remaining(5000), Some(Interval { estimate: 0, low: 0, high: 0 }));
    assert!(!looks.is_rough());
}

#[test]
fn samples_that_agree_narrow_the_range_and_samples_that_differ_do_not() {
    let mut looks = Looks::default();
    looks.add(sampled(100_000, 15_000), 0);
    let one = looks.remaining(10_000).unwrap();
    looks.add(sampled(90_000, 15_000), 10_000);
    let agree = looks.remaining(10_000).unwrap();
    assert_eq!((one.estimate, agree.estimate), (90_000, 90_000));
    assert!(agree.low > one.low && agree.high < one.high, "{one:?} {agree:?}");
    let mut looks = Looks::default();
    looks.add(sampled(100_000, 10_000), 0);
    looks.add(sampled(60_000, 10_000), 10_000);
    let differ = looks.remaining(10_000);
    assert!(differ.is_none_or(|d| d.high - d.low > agree.high - agree.low), "{differ:?}");
}

#[test]
fn a_sample_grows_old_as_entries_go() {
    let mut looks = Looks::default();
    looks.add(sampled(100_000, 15_000), 0);
    let (fresh, old) = (looks.remaining(0).unwrap(), looks.remaining(80_000).unwrap());
    // The error stays, and is a larger part of the remaining entries.
    assert_eq!((fresh.high - old.high, old.low, old.estimate), (80_000, 0, 20_000));
    looks.add(sampled(30_000, 2_000), 80_000);
    let left = looks.remaining(80_000).unwrap();
    assert!((29_000..30_000).contains(&left.estimate), "{left:?}");
    assert!(left.high - left.low < old.high - old.low, "{left:?}");
}

#[test]
fn a_sample_without_an_estimate_keeps_the_others() {
    let mut looks = Looks::default();
    assert!(looks.remaining(1).is_none() && looks.is_rough());
    looks.add(sampled(100_000, 10_000), 0);
    looks.add(Remaining::default(), 1000);
    let sure = looks.remaining(1000).unwrap();
    assert_eq!((sure.estimate, looks.samples()), (99_000, 1));
    looks.add(sampled(10_000, 9_000), 1000);
    assert_eq!(looks.remaining(1000), Some(sure));
}

fn counted(calls: u64) -> Count {
    Count { target_id: 1, pid: 1, ..testing::count(Call::Unlink, Outcome::OK, calls) }
}

#[test]
fn the_directory_of_a_run_is_what_its_samples_share() {
    let paths = ["/a/b/c/1", "/a/b/d", "/a/b/c/2/x"].map(Path::new);
    assert_eq!(common_ancestor(paths.into_iter()), Some("/a/b".into()));
    assert_eq!(common_ancestor(["/x", "/y"].map(Path::new).into_iter()), Some("/".into()));
}

#[test]
fn entries_deleted_since_the_last_count_were_gone_before_the_sample() {
    let mut run = Run::new(Monotonic(0));
    for second in 1..=10_u64 {
        run.count(&counted(50_000), Monotonic(second * 1_000_000_000));
    }
    let at = |ms: u64| run.deleted_at_look(Monotonic(ms * 1_000_000));
    assert_eq!((at(10_000), at(10_350)), (500_000, 500_000));
    assert!((540_000..=550_000).contains(&at(11_350)), "{}", at(11_350));
    // A paused deletion deletes nothing meanwhile.
    assert!(at(15_000) <= 600_000 && at(30_000) == 500_000);
}

#[test]
fn a_rate_is_a_mean_of_the_last_seconds() {
    let mut run = Run::new(Monotonic(0));
    for second in 1..=20_u64 {
        run.count(&counted(3000), Monotonic(second * 1_000_000_000));
    }
    let now = Monotonic(20_000_000_000);
    assert!((run.rate(now) - 3000.0).abs() < 400.0, "{}", run.rate(now));
    assert!(run.matters(Where::Target(1), now));
    let later = Monotonic(31_000_000_000);
    assert!(run.stalled(later) && run.rate(later) == 0.0);
}

#[test]
fn a_process_id_that_is_given_again_takes_no_counts_over() {
    let mut bulk = Alone::<BulkDeletes>::new();
    let deletes = |started, second| {
        let mut op = failed(Call::Unlink, Errno::ENOENT, "m", second);
        (op.target_id, op.outcome) = (0, Outcome::OK);
        Arc::make_mut(&mut op.actor).started = Some(started);
        What::Operation(Box::new(op))
    };
    let count = |component, started| {
        let count = testing::count(Call::Unlink, Outcome::OK, 7);
        What::Counts(vec![Count { target_id: 0, started: Some(started), component, ..count }])
    };
    let at = |second: u64| Monotonic(second * 1_000_000_000);
    let deleted =
        |bulk: &Alone<BulkDeletes>| bulk.tracker.runs.get(&place(0, 42)).map(Run::deleted);
    bulk.take(at(1), deletes(5, 1.0));
    bulk.take(at(2), count(Component::Kubelet, 5));
    bulk.take(at(3), count(Component::Workload, 5));
    bulk.take(at(3), count(Component::Kubelet, 6));
    assert_eq!(deleted(&bulk), Some(7), "nor is what is not proven to be the node's");
    let steps = bulk.take(at(4), deletes(6, 4.0));
    assert!(matches!(steps.verdicts[..], [Verdict::Over { target_id: 42, .. }]));
    assert_eq!(deleted(&bulk), Some(0));
    // A count of the earlier process, in the same drain.
    bulk.take(at(5), count(Component::Kubelet, 5));
    assert_eq!(deleted(&bulk), Some(0));
    bulk.take(at(5), count(Component::Kubelet, 6));
    assert_eq!(deleted(&bulk), Some(7));
}

#[test]
fn only_what_is_known_to_be_gone_is_over() {
    let at = |second: u64| Monotonic(second * 1_000_000_000);
    let left = |gone| Remaining { gone, complete: true, ..Remaining::default() };
    for (answer, is_over) in [
        (Err(NoAnswer::Refused("opening it: Permission denied".into())), false),
        (Err(NoAnswer::Deadline(Duration::from_secs(2))), false),
        (Ok(left(true)), true),
    ] {
        let mut bulk = Alone::<BulkDeletes>::new();
        let mut op = failed(Call::Unlinkat, Errno::ENOENT, "m", 1.0);
        op.outcome = Outcome::OK;
        let wants = CountRemaining { pid: 42, directory: op.target.root.clone() }.into();
        let (tracker, path) = (TrackerId::BulkDelete, op.target.root.clone());
        let query = Query { tracker, target_id: op.target_id, path, wants };
        bulk.take(at(1), What::Operation(Box::new(op)));
        let answer = Box::new(Answer::Remaining(answer));
        let steps =
            bulk.take(at(600), What::Answer { query: query.into(), answer: answer.clone() });
        let cleared = matches!(steps.verdicts[..], [Verdict::Cleared { .. }]);
        assert_eq!(cleared, is_over, "{answer:?}: {:?}", steps.verdicts);
    }
}

#[test]
fn many_deletions_together_are_counted_as_often_as_one() {
    assert_eq!(pause(true, 1), SAMPLE_EVERY);
    assert_eq!(pause(true, 12), SAMPLE_EVERY * 12);
    assert_eq!(pause(false, 0), COUNT_EVERY);
}
