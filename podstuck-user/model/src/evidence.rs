//! Facts with source and time, what they rule out, and the certainty that follows.

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::time::rfc3339;
use crate::cause::{By, Cause, CauseId, Origin};

/// The source of a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A probe on the system calls.
    Probe,
    /// The mount table of a process: the file, such as `/proc/812/mountinfo`.
    Mountinfo(String),
    /// Another file of `/proc` or of control groups at one time: its path, or a description of the files that were
    /// scanned.
    Proc(String),
    /// A file, or the presence of one.
    File(String),
    /// A system call of podstuck itself on the object, such as `statx`.
    Look(&'static str),
    /// A component's log.
    Log(String),
    /// The pod's record in the API.
    Record,
    /// The API server, at that time.
    Api(Timestamp),
    /// kubelet's own list of its pods.
    Kubelet,
    /// A comparison of several scans of the node.
    Samples,
    /// None: it follows from other facts.
    Inference,
}

impl Source {
    /// The mount table of a process.
    pub fn mountinfo(file: impl Into<String>) -> Self {
        Self::Mountinfo(file.into())
    }

    /// A file of `/proc`.
    pub fn proc(file: impl Into<String>) -> Self {
        Self::Proc(file.into())
    }

    /// Another file.
    pub fn file(file: impl Into<String>) -> Self {
        Self::File(file.into())
    }

    /// Its kind; `None` for an inference.
    pub const fn origin(&self) -> Option<Origin> {
        Some(match self {
            Self::Probe => Origin::Calls,
            Self::Mountinfo(_) => Origin::Mounts,
            Self::Proc(_) => Origin::Proc,
            Self::File(_) => Origin::Files,
            Self::Look(_) => Origin::Look,
            Self::Log(_) => Origin::Log,
            Self::Record | Self::Api(_) => Origin::Api,
            Self::Kubelet => Origin::Kubelet,
            Self::Samples => Origin::Scans,
            Self::Inference => return None,
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Probe => "syscall probe",
            Self::Mountinfo(file) | Self::Proc(file) | Self::File(file) | Self::Log(file) => file,
            Self::Look(call) => call,
            Self::Record => "the pod's record",
            Self::Api(time) => return write!(f, "the API server, at {time:.0}"),
            Self::Kubelet => "kubelet /pods",
            Self::Samples => "samples of the node",
            Self::Inference => "inference",
        })
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Only rules use the kind of source, and no rule is applied to what is read back.
impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::File)
    }
}

/// A fact with its source and time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// The fact, as a sentence.
    pub fact: String,
    /// `syscall probe`, `/proc/812/mountinfo`, `statx`, ...
    pub source: Source,
    /// The time since which it is known to be true.
    #[serde(serialize_with = "timestamp")]
    pub since: Timestamp,
}

/// A cause that is ruled out, and the fact that does so. In JSON a sentence, such as `stacked-mounts: there is one
/// mount on the path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuledOut {
    /// The cause.
    pub cause: CauseId,
    /// The fact.
    pub fact: String,
    /// The time since which it is known.
    pub since: Timestamp,
}

impl fmt::Display for RuledOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cause, self.fact)
    }
}

impl Serialize for RuledOut {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The certainty of a finding. One rule applies to all of them:
///
/// - *firm*: all required facts were observed, each has evidence from an origin that the catalogue lists for it,
///   every feed from which an absence is concluded is complete, and for every look-alike the distinguishing fact is
///   known;
/// - *likely*: one distinguishing fact is unknown;
/// - *possible*: anything less. An admission that no cause is known is never more.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// A required fact was not observed, or several look-alikes remain.
    Possible,
    /// One look-alike remains.
    Likely,
    /// No look-alike remains.
    Firm,
}

impl Certainty {
    /// From the number of unknown required facts and of unknown distinguishing facts.
    pub const fn by_unknown(required: usize, telling_apart: usize) -> Self {
        match (required, telling_apart) {
            (0, 0) => Self::Firm,
            (0, 1) => Self::Likely,
            _ => Self::Possible,
        }
    }

    /// The highest certainty for this cause: an admission is possible at most, absences alone prove nothing, and
    /// hidden facts count as unknown.
    pub fn at_most(cause: &Cause) -> Self {
        let is_seen = cause.confirmed_by.iter().any(|it| matches!(it.by, By::Seen([_, ..])));
        match cause.is_admission() {
            true => Self::Possible,
            false => Self::by_unknown(0, cause.hidden().count() + usize::from(!is_seen)),
        }
    }

    /// The word in text and tables.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Firm => "certain",
            Self::Likely => "likely",
            Self::Possible => "possible",
        }
    }

    /// A number between 0 and 1 for sorting; it carries no other information.
    pub const fn confidence(self) -> f64 {
        match self {
            Self::Firm => 0.95,
            Self::Likely => 0.7,
            Self::Possible => 0.3,
        }
    }
}

fn timestamp<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&rfc3339(*time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unknown_takes_some_certainty_away() {
        use Certainty::{Firm, Likely, Possible};
        let by = Certainty::by_unknown;
        assert_eq!([by(0, 0), by(0, 1), by(0, 2), by(1, 0)], [Firm, Likely, Possible, Possible]);
        assert!(Firm > Likely && Likely > Possible);
        assert!(Firm.confidence() > Likely.confidence());
        assert!(Likely.confidence() > Possible.confidence());
    }

    #[test]
    fn a_program_reads_sentences() {
        let (fact, since) = ("nothing is mounted on it".into(), Timestamp::UNIX_EPOCH);
        let out = RuledOut { cause: CauseId::new("nested-mount-under-volume"), fact, since };
        let text = "nested-mount-under-volume: nothing is mounted on it";
        assert_eq!(serde_json::to_value(&out).unwrap(), text);
        let fact = Evidence { fact: "a".into(), source: Source::Look("statx"), since };
        let json = r#"{"fact":"a","source":"statx","since":"1970-01-01T00:00:00.000000000Z"}"#;
        assert_eq!(serde_json::to_string(&fact).unwrap(), json);
    }
}
