//! What remains of a mass deletion, for how long, and how sure that is.

use crate::{causes::mass_deletion::looks::Looks, model::remaining::Interval};

/// By how much the rest may go faster or slower than what went before: in six deletions on a busy machine
/// it was 0.6 to 1.3 times as fast as the last ten seconds. With the range of the entries, 22 of 24 stated
/// times held.
const RATE_CHANGES: f64 = 4.0 / 3.0;

/// Deletions per second: of the last seconds, and since the deletion was first seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) now: f64,
    pub(crate) overall: f64,
}

/// Remaining entries and time, each as a guess and a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) remaining: Option<u64>,
    pub(crate) remaining_range: Option<(u64, u64)>,
    pub(crate) eta_s: Option<u64>,
    pub(crate) eta_range_s: Option<(u64, u64)>,
}

impl Estimate {
    /// From the looks and what was deleted since.
    pub(crate) fn of(looks: &Looks, deleted: u64, rate: Rate) -> Self {
        let Some(Interval { estimate, low, high }) = looks.remaining(deleted) else {
            return Self::default();
        };
        let moving = rate.now >= 1.0;
        // Counts come once a second and entries went while they were counted: both ends of the
        // range keep that second apart.
        let slack = if moving { rate.now as u64 } else { 0 };
        let (low, high) = (low.saturating_sub(slack), high.saturating_add(slack));
        let seconds = |entries: u64, rate: f64| (entries as f64 / rate).ceil() as u64;
        // What is left may go as fast as now, or as fast as all that went before.
        let slow = rate.now.min(rate.overall.max(1.0)) / RATE_CHANGES;
        let fast = rate.now.max(rate.overall) * RATE_CHANGES;
        Self {
            remaining: Some(estimate),
            remaining_range: Some((low, high)),
            eta_s: moving.then(|| seconds(estimate, rate.now)),
            eta_range_s: moving.then(|| (seconds(low, fast), seconds(high, slow))),
        }
    }

    /// The estimate and its tells as sentences.
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
            (None, _) => facts.push("how much remains is not known".into()),
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
                    facts.push("files have several names: there may be more entries than inodes".into());
                }
            }
            Some((left, None)) => facts.push(format!(
                "{} entries were counted before the time was over, and the rest cannot be estimated",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::remaining::{Remaining, Sample};

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
    fn a_sample_gives_a_range_and_what_it_rests_on() {
        let sample =
            Sample { entries: 80_000, error: 8_000, directories: 900, levels: 3, linked: false };
        let left = Remaining { seen: 5_000, sample: Some(sample), ..Remaining::default() };
        let looks = looks(left);
        let estimate = Estimate::of(&looks, 100, Rate { now: 1000.0, overall: 2000.0 });
        assert_eq!((estimate.remaining, estimate.eta_s), (Some(80_000), Some(80)));
        let (low, high) = estimate.remaining_range.unwrap();
        assert!(low < 64_000 && high > 100_000 && high < 120_000, "{low} {high}");
        // What is left may go as fast as the rest did.
        let (soon, late) = estimate.eta_range_s.unwrap();
        assert!(soon <= low / 2666 + 1 && late >= high / 750, "{soon} {late}");
        let facts = estimate.facts(&looks).join("\n");
        assert!(
            facts.contains("estimated by a random sample: the last one read 900 directories"),
            "{facts}"
        );
    }

    #[test]
    fn where_nothing_can_be_said_nothing_is_said() {
        let sample = Sample { entries: 80_000, error: 60_000, ..Sample::default() };
        for sample in [Some(sample), None] {
            let left =
                Remaining { seen: 5, sample, inodes_used: 1_000_000, ..Remaining::default() };
            let looks = looks(left);
            let estimate = Estimate::of(&looks, 100, steady(1000.0));
            assert_eq!(estimate, Estimate::default());
            assert_eq!(estimate.facts(&looks)[0], "how much remains is not known");
        }
    }

    #[test]
    fn nothing_is_claimed_without_a_look_or_without_movement() {
        let none = Looks::default();
        assert_eq!(Estimate::of(&none, 5, steady(1.0)), Estimate::default());
        let counted = Remaining { seen: 10, complete: true, ..Remaining::default() };
        let still = Estimate::of(&looks(counted), 100, steady(0.0));
        assert_eq!((still.remaining, still.eta_s), (Some(10), None));
        assert_eq!(Estimate::default().facts(&none), ["how much remains is not known"]);
    }
}
