//! Counts that outlive this process: what it takes over, and what it leaves to the next.

use podstuck_common::record::loss;
use podstuck_probe::{kernel::pinned::Inherited, source::losses::Losses};

use crate::model::{summary::Completeness, totals::Totals};

/// What the next process needs beside the totals.
#[derive(Default)]
pub(super) struct Lasting {
    /// Losses of this process.
    pub(super) lost: Completeness,
    /// The kernel's own counters of losses at that time.
    pub(super) raw_losses: Vec<u64>,
    /// Whether the totals have changed since they were left to the next process.
    pub(super) has_changed: bool,
}

impl Lasting {
    /// The totals of the processes before, with the losses between the last of them and this one. This one's are those
    /// beyond the baseline.
    pub(super) fn take_over(inherited: &Inherited, baseline: &Losses) -> (Totals, Self) {
        let Inherited { totals, losses, gap } = inherited;
        let mut gap = gap.clone();
        let read = Totals::of_text(totals);
        if read.is_none() && !totals.is_empty() {
            gap = Some("their totals are in another form".into());
        }
        let (mut totals, raw_losses) = read.unwrap_or_default();
        if let Some(why) = gap {
            tracing::warn!(
                "calls may be missing in the counts of the podstuck before this one: {why}"
            );
            totals.gaps += 1;
        }
        totals.is_kept = Some(true);
        let now = Losses::of_all(losses);
        // Without totals there was no process before.
        let before = if raw_losses.is_empty() { now } else { Losses::of_all(&raw_losses) };
        let lasting = Self { raw_losses: baseline.all().to_vec(), ..Self::default() };
        totals.lost_before.add_losses(&lost(&now.since(&before)));
        (totals, lasting)
    }
}

/// What the probes' own counters of losses say.
pub(super) fn lost(losses: &Losses) -> Completeness {
    Completeness {
        events_lost: losses.of(loss::RING_FULL),
        events_limited: losses.of(loss::RATE_LIMITED),
        unmatched_exits: losses.of(loss::UNMATCHED_EXIT),
        outcome_unknown: losses.of(loss::OVERWRITTEN) + losses.of(loss::NO_SLOT),
        map_full: losses.of(loss::COUNTS_FULL) + losses.of(loss::IN_FLIGHT_FULL),
        io_uring_deletions: losses.of(loss::IO_URING),
        unresolved: losses.of(loss::PATH_CUT) + losses.of(loss::PATH_UNREADABLE),
        look_alikes: losses.of(loss::LOOK_ALIKE),
        ..Completeness::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_between_two_processes_are_taken_over() {
        let lost = Completeness { map_full: 2, ..Completeness::default() };
        let mut raw = vec![0; loss::COUNT as usize];
        raw[loss::COUNTS_FULL as usize] = 9;
        let totals = Totals::default().to_text(&lost, &raw).unwrap();
        raw[loss::COUNTS_FULL as usize] = 12;
        let inherited = Inherited { totals, losses: raw, gap: None };
        let baseline = Losses::of_all(&[7]);
        let (totals, lasting) = Lasting::take_over(&inherited, &baseline);
        assert_eq!((totals.gaps, totals.is_kept, totals.lost_before.map_full), (0, Some(true), 5));
        assert_eq!(lasting.raw_losses, baseline.all());
    }

    #[test]
    fn what_cannot_be_read_is_a_gap() {
        for (text, gap, gaps) in [("", None, 0), ("{}", None, 1), ("", Some("torn".to_owned()), 1)]
        {
            let losses = vec![7; loss::COUNT as usize];
            let inherited = Inherited { totals: text.into(), losses, gap };
            let (totals, _) = Lasting::take_over(&inherited, &Losses::default());
            assert_eq!((totals.gaps, totals.lost_before.map_full), (gaps, 0), "{text}");
        }
    }
}
