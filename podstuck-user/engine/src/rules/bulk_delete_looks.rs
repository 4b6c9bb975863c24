//! What several looks at one mass deletion say together.

use std::collections::VecDeque;

use crate::model::remaining::{Interval, Remaining};

/// Looks that are remembered: by then a deletion of an hour has been looked at for minutes.
const LOOKS: usize = 8;

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
        self.0.iter().filter(|look| !look.left.complete && look.left.sample.is_some()).count()
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
        let newest = self.0.back()?;
        let since = |look: &Look| deleted.saturating_sub(look.deleted_before);
        let seen = newest.left.seen.saturating_sub(since(newest));
        if newest.left.complete {
            return Some(Interval { estimate: seen, low: seen, high: seen });
        }
        let samples: Vec<(f64, f64)> = self
            .0
            .iter()
            .filter_map(|look| {
                let sample = look.left.sample?;
                let left = sample.entries as f64 - since(look) as f64;
                // One that claims no error would silence the others.
                Some((left.max(0.0), (sample.error as f64).max(sample.entries as f64 * 0.01)))
            })
            .collect();
        let weights: f64 = samples.iter().map(|(_, error)| error.powi(-2)).sum();
        let mean = samples.iter().map(|(left, error)| left * error.powi(-2)).sum::<f64>() / weights;
        let differences = samples.iter().map(|(left, error)| ((left - mean) / error).powi(2));
        let freedom = samples.len().saturating_sub(1).max(1);
        let birge = (differences.sum::<f64>() / freedom as f64).max(1.0);
        newest.left.around(mean, (birge / weights).sqrt(), seen)
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
        assert!(looks.remaining(20_000).is_some());
        // The same error is too much of what is left.
        assert_eq!(looks.remaining(60_000), None);
        looks.add(sampled(40_000, 4_000), 60_000);
        let left = looks.remaining(60_000).unwrap();
        assert!((38_000..42_000).contains(&left.estimate), "{left:?}");
    }

    #[test]
    fn a_look_that_says_nothing_leaves_the_others_alone() {
        let mut looks = Looks::default();
        assert!(looks.remaining(1).is_none() && looks.is_rough());
        looks.add(sampled(100_000, 10_000), 0);
        looks.add(Remaining::default(), 1000);
        assert_eq!(looks.remaining(1000).unwrap().estimate, 99_000);
        assert_eq!(looks.samples(), 1);
    }
}
