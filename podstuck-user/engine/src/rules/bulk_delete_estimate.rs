//! What remains of a mass deletion, and how sure that is.

use crate::model::object::Remaining;

/// A look at the directory, and how far the deletion was then.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    left: Remaining,
    /// Entries deleted before it.
    deleted_before: u64,
}

impl Look {
    pub(crate) fn new(left: Remaining, deleted: u64) -> Self {
        Self { left, deleted_before: deleted }
    }
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
    /// From a look and what was deleted since.
    pub(crate) fn of(look: Option<&Look>, deleted: u64, rate: f64) -> Self {
        let Some(look) = look else { return Self::default() };
        let since = deleted.saturating_sub(look.deleted_before);
        // Counts come once a second and entries went while they were counted: both ends of the
        // range keep that second apart.
        let slack = if rate >= 1.0 { rate as u64 } else { 0 };
        let middle = look.left.seen.saturating_sub(since);
        let low = middle.saturating_sub(slack);
        // What the look did not reach cannot be more than all inodes in use on the file system.
        let high = if look.left.complete || look.left.inodes_used == 0 {
            middle + slack
        } else {
            look.left.inodes_used.saturating_sub(since).max(middle)
        };
        let known = look.left.complete || look.left.inodes_used > 0;
        let remaining =
            known.then(|| if look.left.complete { middle } else { between(middle, high) });
        let seconds = |entries: u64| (entries as f64 / rate).ceil() as u64;
        let moving = rate >= 1.0;
        Self {
            remaining,
            remaining_range: known.then_some((low, high)),
            eta_s: remaining.filter(|_| moving).map(seconds),
            eta_range_s: (known && moving).then(|| (seconds(low), seconds(high))),
        }
    }

    /// The estimate and its tells as sentences.
    pub(crate) fn facts(&self, look: Option<&Look>) -> Vec<String> {
        let mut facts = Vec::new();
        let complete = look.is_some_and(|look| look.left.complete);
        match (self.remaining_range, self.eta_range_s) {
            (Some((low, high)), Some((soon, late))) if complete => {
                facts.push(format!(
                    "{low} to {high} entries remain, which takes {soon} to {late} s at this rate"
                ));
            }
            (Some((low, high)), Some((soon, late))) => facts.push(format!(
                "between {low} and {high} entries remain, so between {soon} and {late} s at this \
                 rate: the directory was too large to be counted, and the upper figure is every \
                 inode of the file system"
            )),
            _ => facts.push("how much remains is not known".into()),
        }
        if let Some(look) = look.filter(|look| look.left.is_ext) {
            if look.left.nlink == 1 {
                facts.push(
                    "the directory's link count is 1: on ext4 it has held more than 64,998 \
                     subdirectories"
                        .into(),
                );
            }
            if look.left.size >= 1 << 20 {
                facts.push(format!("the directory itself is {} MiB large", look.left.size >> 20));
            }
        }
        facts
    }
}

/// A guess between two bounds that may be orders of magnitude apart.
fn between(low: u64, high: u64) -> u64 {
    ((low.max(1) as f64) * (high.max(1) as f64)).sqrt() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(seen: u64, complete: bool, inodes_used: u64) -> Look {
        let left = Remaining { seen, complete, inodes_used, ..Remaining::default() };
        Look { left, deleted_before: 100 }
    }

    #[test]
    fn a_complete_count_gives_one_number() {
        let estimate = Estimate::of(Some(&look(1000, true, 5000)), 300, 100.0);
        assert_eq!(estimate.remaining_range, Some((700, 900)));
        assert_eq!((estimate.remaining, estimate.eta_s), (Some(800), Some(8)));
    }

    #[test]
    fn an_incomplete_one_says_so_by_its_range() {
        let estimate = Estimate::of(Some(&look(1000, false, 1_000_000)), 100, 1000.0);
        assert_eq!(estimate.remaining_range, Some((0, 1_000_000)));
        assert_eq!(estimate.eta_range_s, Some((0, 1000)));
        let guess = estimate.remaining.unwrap();
        assert!((1000..=1_000_000).contains(&guess));
    }

    #[test]
    fn nothing_is_claimed_without_a_look_or_without_movement() {
        assert_eq!(Estimate::of(None, 5, 1.0), Estimate::default());
        let still = Estimate::of(Some(&look(10, true, 0)), 100, 0.0);
        assert_eq!((still.remaining, still.eta_s), (Some(10), None));
        assert_eq!(Estimate::default().facts(None), ["how much remains is not known"]);
    }
}
