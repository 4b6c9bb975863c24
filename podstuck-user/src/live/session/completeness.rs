//! Data that a run could not see, count, resolve or read.

use std::{collections::BTreeSet, time::Instant};

use super::Session;
use crate::{
    event::What,
    live::{lasting::lost, probing::Missed},
    model::{
        degraded::{Degraded, Feed},
        summary::Completeness,
    },
};
use podstuck_confine::{alive, clock, helper};
use podstuck_node::state::{clients, logs, sample};
use podstuck_show::recording::Recorder;

/// Limit of processes named.
const NAMED: usize = 4;

impl Session {
    /// Takes what may be missing, from the probes' own counters.
    pub(in crate::live) fn completeness(&mut self, missed: &Missed) {
        let Missed { losses, raw_losses, abandoned, skipped, drains_failed, probes, .. } = missed;
        let of_losses = lost(losses);
        let completeness = Completeness {
            events_lost: of_losses.events_lost + self.undecodable,
            // A call whose return is missed, too, is known only from the kernel's count.
            unmatched_exits: of_losses
                .unmatched_exits
                .max(skipped.map_or(0, |skipped| skipped.entries)),
            outcome_unknown: of_losses.outcome_unknown + *abandoned,
            probes_skipped: skipped.map(|skipped| skipped.returns),
            drains_failed: *drains_failed,
            looks_late_s: self.looks.late_s(self.ended.unwrap_or_else(Instant::now)),
            // The engine adds its own.
            objects_dropped: self.names.dropped()
                + self.names.roots().dropped()
                + self.hung.dropped()
                + self.asker.dropped()
                + self.records.dropped(),
            look_alike: self.look_alike.clone(),
            not_looked_at: self.unknown_roots.not_looked_at(),
            // The engine adds them.
            not_returned: Vec::new(),
            probes_missing: probes.clone(),
            // The engine adds those of its input.
            degraded: Vec::new(),
            ..of_losses
        };
        if let Some(lasting) = &mut self.lasting {
            lasting.lost = completeness.clone();
            lasting.raw_losses.clone_from(raw_losses);
            lasting.has_changed = true;
        }
        self.learn(clock::now(), What::Completeness(completeness));
    }

    /// Takes the degraded parts of the rest of the tool, and checks the session's own parts.
    pub(in crate::live) fn check(&mut self, of_others: Vec<Degraded>) {
        let now = self.ended.unwrap_or_else(Instant::now);
        let ended = |has_ended: bool, what: &str, feeds: &[Feed]| {
            has_ended.then(|| Degraded::new(format!("the thread that {what} has ended"), feeds))
        };
        let hung = ended(self.hung.has_ended(), "follows calls that hang", &[Feed::HungCalls]);
        let follower = ended(self.log_news.has_ended(), "follows the node's logs", &[Feed::Logs]);
        // The API server's data from the start stays valid for its time.
        let records = ended(self.records.has_ended(), "asks the API server again", &[]);
        let silent = (!self.silent.is_empty()).then(|| silent(&self.silent));
        let looks = self
            .looks
            .is_late(now)
            .then(|| Degraded::new("a scan of the node has not ended for a minute", &[Feed::Node]));
        let recorder = self.recorder.as_ref().and_then(Recorder::ended);
        let recorder = recorder.map(|why| Degraded::new(why, &[]));
        let logs = self.log_news.degraded();
        let of_self = [hung, silent, looks, logs, follower, records, recorder]
            .into_iter()
            .chain([self.asker.degraded()])
            .flatten();
        let mut all: Vec<Degraded> = of_others.into_iter().chain(of_self).collect();
        all.extend(helper::degraded());
        all.extend(alive::degraded());
        all.extend(logs::degraded());
        all.extend(sample::collisions());
        all.extend(clients::degraded());
        if all != self.degraded {
            self.degraded.clone_from(&all);
            self.learn(clock::now(), What::Degraded(all));
        }
    }
}

/// Hung calls in these processes since before the start are unknown. Findings about others do not depend on them.
fn silent(pids: &BTreeSet<u32>) -> Degraded {
    let first: Vec<String> = pids.iter().take(NAMED).map(ToString::to_string).collect();
    let (first, more) = (first.join(", "), pids.len().saturating_sub(NAMED));
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let what = format!(
        "the kernel does not report what these processes do (pid {first}{more}): a call that hung in them \
         before the start is not visible"
    );
    Degraded::new(what, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_processes_are_named() {
        let named = |pids: &[u32]| silent(&pids.iter().copied().collect()).sentence;
        assert!(named(&[7]).contains("(pid 7)"));
        assert!(named(&[5, 4, 3, 2, 1, 6]).contains("(pid 1, 2, 3, 4 and 2 more)"));
    }
}
