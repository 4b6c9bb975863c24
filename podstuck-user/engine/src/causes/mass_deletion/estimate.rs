//! Estimates the remaining entries and time of a mass deletion from several counts and samples.

use std::collections::VecDeque;

use crate::model::remaining::{Interval, Remaining};

/// Factor by which the rest may be faster or slower than before. In six deletions on a busy machine the rest was 0.6 to
/// 1.3 times as fast as the last ten seconds; with the range of the entries, 22 of 24 stated times held.
const RATE_CHANGES: f64 = 4.0 / 3.0;

/// Deletions per second: in the last seconds, and since the deletion was first seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) now: f64,
    pub(crate) overall: f64,
}

/// Remaining entries and seconds, each as an estimate and a range; `None` if not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) remaining: Option<u64>,
    pub(crate) remaining_range: Option<(u64, u64)>,
    pub(crate) eta_s: Option<u64>,
    pub(crate) eta_range_s: Option<(u64, u64)>,
}

impl Estimate {
    /// The estimate from the samples and the entries deleted since.
    pub(crate) fn of(looks: &Looks, deleted: u64, rate: Rate) -> Self {
        let Some(Interval { estimate, low, high }) = looks.remaining(deleted) else {
            return Self::default();
        };
        let moving = rate.now >= 1.0;
        // Counts come once a second, and entries are deleted while they are counted: both ends of the range allow for
        // that second.
        let slack = if moving { rate.now as u64 } else { 0 };
        let (low, high) = (low.saturating_sub(slack), high.saturating_add(slack));
        let seconds = |entries: u64, rate: f64| (entries as f64 / rate).ceil() as u64;
        // The rest may go at the current rate or at the overall one.
        let slow = rate.now.min(rate.overall.max(1.0)) / RATE_CHANGES;
        let fast = rate.now.max(rate.overall) * RATE_CHANGES;
        Self {
            remaining: Some(estimate),
            remaining_range: Some((low, high)),
            eta_s: moving.then(|| seconds(estimate, rate.now)),
            eta_range_s: moving.then(|| (seconds(low, fast), seconds(high, slow))),
        }
    }

    /// The estimate and its evidence as sentences.
    pub(crate) fn facts(&self, looks: &Looks) -> Vec<String> {
        let mut facts = Vec::new();
        let last = looks.last();
        match (self.remaining_range, self.eta_range_s) {
            (Some((low, high)), Some((soon, late))) => facts.push(format!(
                "{low} to {high} entries remain, which takes {soon} to {late} s at the rates seen"
            )),
            (Some((low, high)), None) if low < high => {
                facts.push(format!("{low} to {high} entries remain"));
            }
            (Some((all, _)), None) => facts.push(format!("{all} entries remain")),
            (None, _) => facts.push("the number of remaining entries is not known".into()),
        }
        match last.map(|left| (left, left.sample)) {
            Some((left, _)) if left.complete => {}
            Some((left, Some(sample))) => {
                let how = match looks.samples() {
                    _ if self.remaining.is_none() => "random samples differ too much".to_owned(),
                    1 => "estimated by a random sample".to_owned(),
                    samples => format!("estimated by {samples} random samples"),
                };
                facts.push(format!(
                    "{how}: the last one read {} directories at {} levels, with {} entries",
                    sample.directories, sample.levels, left.seen
                ));
                if sample.linked {
                    facts.push(
                        "files have several names: there may be more entries than inodes".into(),
                    );
                }
            }
            Some((left, None)) => facts.push(format!(
                "{} entries were counted within the time limit, and the rest cannot be estimated",
                left.seen
            )),
            None => {}
        }
        if let Some(left) = last.filter(|left| left.is_ext) {
            if left.nlink == 1 {
                facts.push(
                    "the directory's link count is 1: on ext4 it has held more than 64,998 \
                     subdirectories"
                        .into(),
                );
            }
            if left.size >= 1 << 20 {
                facts.push(format!("the directory itself is {} MiB large", left.size >> 20));
            }
        }
        facts
    }
}

/// Samples remembered. Older ones are worth little: their error is relative to a larger tree.
const LOOKS: usize = 8;
/// The least error of a sample, as a fraction of its estimate.
const LEAST_ERROR: f64 = 0.01;

/// A count or sample of the directory.
#[derive(Clone, Debug)]
struct Look {
    left: Remaining,
    /// Entries deleted before it was taken.
    deleted_before: u64,
}

/// The latest counts and samples, the newest last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks(VecDeque<Look>);

impl Looks {
    pub(crate) fn add(&mut self, left: Remaining, deleted: u64) {
        // A complete count replaces all samples.
        if left.complete {
            self.0.clear();
        }
        if self.0.len() == LOOKS {
            self.0.pop_front();
        }
        self.0.push_back(Look { left, deleted_before: deleted });
    }

    /// The newest count or sample.
    pub(crate) fn last(&self) -> Option<&Remaining> {
        self.0.back().map(|look| &look.left)
    }

    /// Number of samples that the estimate is based on, complete counts excluded.
    pub(crate) fn samples(&self) -> usize {
        self.0.iter().filter(|look| !look.left.complete && look.left.interval().is_some()).count()
    }

    /// Whether a new sample would make the estimate more certain.
    pub(crate) fn is_rough(&self) -> bool {
        !self.0.back().is_some_and(|look| look.left.complete)
    }

    /// The remaining entries after `deleted` deletions.
    ///
    /// Samples are combined with the inverse of their variance as weight. If they differ by more than their errors
    /// allow, the error grows by that factor (the Birge ratio).
    pub(crate) fn remaining(&self, deleted: u64) -> Option<Interval> {
        let newest = self.0.iter().rev().find(|look| look.left.interval().is_some())?;
        let at_newest = match newest.left.complete {
            true => newest.left.interval(),
            false => self.combined(newest),
        }?;
        // The entries deleted since are known exactly.
        let since = deleted.saturating_sub(newest.deleted_before);
        Some(Interval {
            estimate: at_newest.estimate.saturating_sub(since),
            low: at_newest.low.saturating_sub(since),
            high: at_newest.high.saturating_sub(since),
        })
    }

    /// All samples with an estimate, combined as of the newest.
    fn combined(&self, newest: &Look) -> Option<Interval> {
        let (mut weights, mut sum, mut samples) = (0.0, 0.0, Vec::new());
        for look in self.0.iter().filter(|look| look.left.interval().is_some()) {
            let Some(sample) = look.left.sample else { continue };
            let since = newest.deleted_before.saturating_sub(look.deleted_before);
            let left = sample.entries.saturating_sub(since) as f64;
            // A sample with no error would outweigh all others.
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
