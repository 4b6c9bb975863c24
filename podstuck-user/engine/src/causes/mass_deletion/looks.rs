//! What several looks at one mass deletion say together.

use std::collections::VecDeque;

use crate::model::remaining::{Interval, Remaining};

/// Looks that are remembered: an older one is worth little, since its error is that of a larger tree.
const LOOKS: usize = 8;
/// The least error of a sample, as a part of its estimate.
const LEAST_ERROR: f64 = 0.01;

/// A look at the directory, and how far the deletion was then.
#[derive(Clone, Debug)]
struct Look {
    left: Remaining,
    /// Entries deleted before it.
    deleted_before: u64,
}

/// The latest looks, the newest last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks(VecDeque<Look>);

impl Looks {
    pub(crate) fn add(&mut self, left: Remaining, deleted: u64) {
        // A count makes samples needless, and one that found nothing to say leaves the others alone.
        if left.complete {
            self.0.clear();
        }
        if self.0.len() == LOOKS {
            self.0.pop_front();
        }
        self.0.push_back(Look { left, deleted_before: deleted });
    }

    /// What the newest one saw.
    pub(crate) fn last(&self) -> Option<&Remaining> {
        self.0.back().map(|look| &look.left)
    }

    /// Samples that the number rests on, unless it was counted.
    pub(crate) fn samples(&self) -> usize {
        self.0.iter().filter(|look| !look.left.complete && look.left.interval().is_some()).count()
    }

    /// Whether a new look would tell more.
    pub(crate) fn is_rough(&self) -> bool {
        !self.0.back().is_some_and(|look| look.left.complete)
    }

    /// How many entries remain when so many have been deleted.
    ///
    /// Samples are combined with the inverse of their variance as weight. Where they differ by more than
    /// their errors allow, the error grows by as much (the Birge ratio).
    pub(crate) fn remaining(&self, deleted: u64) -> Option<Interval> {
        let newest = self.0.iter().rev().find(|look| look.left.interval().is_some())?;
        let at_newest = match newest.left.complete {
            true => newest.left.interval(),
            false => self.combined(newest),
        }?;
        // What was deleted since is known exactly.
        let since = deleted.saturating_sub(newest.deleted_before);
        Some(Interval {
            estimate: at_newest.estimate.saturating_sub(since),
            low: at_newest.low.saturating_sub(since),
            high: at_newest.high.saturating_sub(since),
        })
    }

    /// All samples that say something, as of the newest of them.
    fn combined(&self, newest: &Look) -> Option<Interval> {
        let (mut weights, mut sum, mut samples) = (0.0, 0.0, Vec::new());
        for look in self.0.iter().filter(|look| look.left.interval().is_some()) {
            let Some(sample) = look.left.sample else { continue };
            let since = newest.deleted_before.saturating_sub(look.deleted_before);
            let left = sample.entries.saturating_sub(since) as f64;
            // One that claims no error would silence the others.
            let error = (sample.error as f64).max(sample.entries as f64 * LEAST_ERROR);
            weights += error.powi(-2);
            sum += left * error.powi(-2);
            samples.push((left, error));
        }
        let mean = sum / weights;
        let differences = samples.iter().map(|(left, error)| ((left - mean) / error).powi(2));
        let freedom = samples.len().saturating_sub(1).max(1);
        let birge = (differences.sum::<f64>() / freedom as f64).max(1.0);
        newest.left.around(mean, (birge / weights).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::remaining::Sample;

    fn sampled(entries: u64, error: u64) -> Remaining {
        let sample = Sample { entries, error, ..Sample::default() };
        Remaining { sample: Some(sample), ..Remaining::default() }
    }

    #[test]
    fn what_was_deleted_since_a_count_is_subtracted() {
        let mut looks = Looks::default();
        looks.add(Remaining { seen: 1000, complete: true, ..Remaining::default() }, 100);
        assert_eq!(looks.remaining(300), Some(Interval { estimate: 800, low: 800, high: 800 }));
        assert_eq!(looks.remaining(5000), Some(Interval { estimate: 0, low: 0, high: 0 }));
        assert!(!looks.is_rough());
    }

    #[test]
    fn samples_that_agree_make_it_surer_and_those_that_differ_do_not() {
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
        // The error stays, and is more of what is left.
        assert_eq!((fresh.high - old.high, old.low, old.estimate), (80_000, 0, 20_000));
        looks.add(sampled(30_000, 2_000), 80_000);
        let left = looks.remaining(80_000).unwrap();
        assert!((29_000..30_000).contains(&left.estimate), "{left:?}");
        assert!(left.high - left.low < old.high - old.low, "{left:?}");
    }

    #[test]
    fn a_look_that_says_nothing_leaves_the_others_alone() {
        let mut looks = Looks::default();
        assert!(looks.remaining(1).is_none() && looks.is_rough());
        looks.add(sampled(100_000, 10_000), 0);
        looks.add(Remaining::default(), 1000);
        let sure = looks.remaining(1000).unwrap();
        assert_eq!((sure.estimate, looks.samples()), (99_000, 1));
        looks.add(sampled(10_000, 9_000), 1000);
        assert_eq!(looks.remaining(1000), Some(sure));
    }
}
