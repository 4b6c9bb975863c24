//! What a part of the tool could not do any more, and which evidence is missing for that.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::raw_path;

/// A part of the tool that could not do its work any more, or still waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Degraded {
    /// A sentence. It is escaped already.
    pub sentence: String,
    /// What came by this part; nothing where no finding is made of it.
    pub feeds: Vec<Feed>,
    /// What it cannot look at, as whoever is asked about sees it, where the rest comes as before.
    #[serde(with = "raw_path::option", skip_serializing_if = "Option::is_none", default)]
    pub place: Option<PathBuf>,
}

impl Degraded {
    /// All of what a part did is missing.
    pub fn new(sentence: impl Into<String>, feeds: &[Feed]) -> Self {
        Self { sentence: sentence.into(), feeds: feeds.into(), place: None }
    }

    /// Whether what was said of an object may lack it, given what that is made of.
    pub fn concerns(&self, made_of: &[Feed], object: &Path) -> bool {
        let related = |place: &PathBuf| place.starts_with(object) || object.starts_with(place);
        self.feeds.iter().any(|feed| made_of.contains(feed))
            && self.place.as_ref().is_none_or(related)
    }
}

impl Feed {
    /// What must have been complete for a conclusion from what is not there.
    pub const fn completeness(self) -> &'static str {
        match self {
            Self::Calls => "the records of calls, from the start on",
            Self::HungCalls => "the scans for calls that hang",
            Self::Node => "the scans of the node's processes, mounts and directories",
            Self::Space => "the looks at file systems",
            Self::Objects => "the looks at the object",
            Self::Holders => "the search of all processes and mount namespaces",
            Self::Logs => "the log over that time",
        }
    }
}

/// What findings are made of, by the part of the tool that it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feed {
    /// Records and counts of calls.
    Calls,
    /// Calls that hang.
    HungCalls,
    /// Looks at the node.
    Node,
    /// How full file systems are.
    Space,
    /// Looks at objects, by helpers.
    Objects,
    /// Searches for holders.
    Holders,
    /// What components log.
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
        assert!(!Degraded::new("nobody reads", &[]).concerns(&[Feed::Calls], volume));
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
