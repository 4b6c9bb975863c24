//! How much of each log is in a known format. A log without one understood line proves nothing: neither that an error
//! occurred, nor that none did.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

use podstuck_model::degraded::{Degraded, Feed};

/// Counts of a log's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lines {
    /// Lines that were read and are not empty.
    pub seen: u64,
    /// Lines that are entries in a known format, or continue one.
    pub understood: u64,
}

impl Lines {
    pub(super) fn note(&mut self, is_understood: bool) {
        self.seen += 1;
        self.understood += u64::from(is_understood);
    }

    /// The sum with the lines of another log, or of another read.
    pub(super) fn and(self, other: Self) -> Self {
        let seen = self.seen.saturating_add(other.seen);
        Self { seen, understood: self.understood.saturating_add(other.understood) }
    }

    /// The lines of the log that is not understood, of two.
    pub(super) fn foreign(self, other: Self) -> Self {
        if self.are_foreign() { self } else { other }
    }

    /// Whether there are lines, and none is understood.
    pub fn are_foreign(self) -> bool {
        self.seen > 0 && self.understood == 0
    }

    /// Whether an entry that is not in the log was not written. A tenth of the lines may be unknown, as those that the Go
    /// runtime writes.
    pub(super) fn prove_silence(self) -> bool {
        self.understood.saturating_mul(10) >= self.seen.saturating_mul(9)
    }
}

/// Prefix of the name of a driver's log ([`super::source`]).
const OF_DRIVER: &str = "log of csi-driver ";

/// Lines of each log, by process id and name of the log.
static LINES: Mutex<BTreeMap<(u32, String), Lines>> = Mutex::new(BTreeMap::new());

/// Adds the lines that were read of a process's log; returns all lines read of it so far.
pub(super) fn read(pid: u32, log: &str, lines: Lines) -> Lines {
    let mut all = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|(pid, _), _| Path::new("/proc").join(pid.to_string()).exists());
    let known = all.entry((pid, log.to_owned())).or_default();
    *known = known.and(lines);
    *known
}

/// What is not known because no line of a log is understood.
pub(super) fn degraded() -> Vec<Degraded> {
    let all = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let degraded = |((_, log), lines): (&(u32, String), &Lines)| {
        let sentence = format!(
            "no line of the {log}, has a format that podstuck parses: what its component logs about the pod \
             is not known"
        );
        // A driver's log adds to kubelet's, and nothing depends on it.
        let feeds: &[Feed] = if log.starts_with(OF_DRIVER) { &[] } else { &[Feed::Logs] };
        lines.are_foreign().then(|| Degraded::new(sentence, feeds))
    };
    all.iter().filter_map(degraded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use podstuck_model::identity::Component;

    #[test]
    fn the_share_of_understood_lines_decides_what_silence_proves() {
        let lines = |seen, understood| Lines { seen, understood };
        assert!(!lines(0, 0).are_foreign() && lines(0, 0).prove_silence());
        assert!(lines(7, 0).are_foreign() && !lines(7, 0).prove_silence());
        assert!(!lines(10, 8).prove_silence() && lines(10, 9).prove_silence());
    }

    #[test]
    fn a_log_that_is_not_understood_is_missing_until_it_is() {
        let pid = std::process::id();
        let missing = || degraded().iter().any(|it| it.sentence.contains("log of a foreign test"));
        read(pid, "log of a foreign test", Lines { seen: 3, understood: 0 });
        assert!(missing());
        read(pid, "log of a foreign test", Lines { seen: 1, understood: 1 });
        assert!(!missing());
        let driver = super::super::source(Component::CsiDriver, pid, "x");
        assert!(driver.starts_with(OF_DRIVER), "{driver}");
    }
}
