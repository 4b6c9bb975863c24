//! A degraded part of podstuck, and the evidence that is missing because of it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::raw_path;

/// A part of podstuck that has stopped working, or still waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Degraded {
    /// The reason, as a sentence, already escaped.
    pub sentence: String,
    /// The feeds that this part supplies; empty if no finding uses it.
    pub feeds: Vec<Feed>,
    /// The path that it cannot inspect, as the process under inspection sees it, if the rest still works.
    #[serde(with = "raw_path::option", skip_serializing_if = "Option::is_none", default)]
    pub place: Option<PathBuf>,
    /// Whether it is about to end: an answer that is not firm waits for that.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_passing: bool,
}

impl Degraded {
    /// Everything that the part supplies is missing.
    pub fn new(sentence: impl Into<String>, feeds: &[Feed]) -> Self {
        Self { sentence: sentence.into(), feeds: feeds.into(), place: None, is_passing: false }
    }

    /// Whether a finding about `object` that uses the feeds `made_of` may lack evidence.
    pub fn concerns(&self, made_of: &[Feed], object: &Path) -> bool {
        let related = |place: &PathBuf| place.starts_with(object) || object.starts_with(place);
        self.feeds.iter().any(|feed| made_of.contains(feed))
            && self.place.as_ref().is_none_or(related)
    }
}

impl Feed {
    /// The data that must be complete for a conclusion from absence.
    pub const fn completeness(self) -> &'static str {
        match self {
            Self::Calls => "the records of calls, from the start on",
            Self::HungCalls => "the scans for calls that hang",
            Self::Node => "the scans of the node's processes, mounts and directories",
            Self::Space => "the checks of file systems",
            Self::Objects => "the checks of the object",
            Self::Holders => "the search of all processes and mount namespaces",
            Self::Logs => "the log over that time",
        }
    }
}

/// The sources of findings, by the part of podstuck that supplies them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feed {
    /// Records and counters of calls.
    Calls,
    /// Scans for hung calls.
    HungCalls,
    /// Scans of the node.
    Node,
    /// Usage of file systems.
    Space,
    /// Checks of objects, by helper processes.
    Objects,
    /// Searches for holders.
    Holders,
    /// The components' logs.
    Logs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_matters_to_what_is_made_of_it_and_lies_there() {
        let volume = Path::new("/k/pods/u/volumes/p/data");
        let all = Degraded::new("x", &[Feed::Objects, Feed::Logs]);
        assert!(all.concerns(&[Feed::Calls, Feed::Objects], volume));
        assert!(!all.concerns(&[Feed::Calls], volume));
        assert!(!Degraded::new("a part that fails", &[]).concerns(&[Feed::Calls], volume));
        let at = |place: &str| Degraded { place: Some(place.into()), ..all.clone() };
        for (place, concerned) in [
            ("/k", true),
            ("/k/pods/u/volumes/p/data/m", true),
            ("/k/pods/u/volumes/p/data2", false),
            ("/k/pods/v", false),
        ] {
            assert_eq!(at(place).concerns(&[Feed::Objects], volume), concerned, "{place}");
        }
    }
}
