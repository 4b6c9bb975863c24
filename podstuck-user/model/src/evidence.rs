//! What is known, where it was read, since when; what that rules out, and how sure it makes.

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::time::rfc3339;
use crate::cause::{By, Cause, CauseId, Origin};

/// Where a fact was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A probe on the system calls.
    Probe,
    /// The mounts that a process sees: the file, as in `/proc/812/mountinfo`.
    Mountinfo(String),
    /// Another file of `/proc` or of control groups, at one moment: its path, or what was gone
    /// through.
    Proc(String),
    /// A file, or the presence of one.
    File(String),
    /// A look at an object by a system call of our own, as in `statx`.
    Look(&'static str),
    /// Somebody's log.
    Log(String),
    /// The pod's record in the API.
    Record,
    /// The API server, asked at that time.
    Api(Timestamp),
    /// kubelet's own list of its pods.
    Kubelet,
    /// What several looks at the node have in common.
    Samples,
    /// Nobody has read it: it follows from other facts.
    Inference,
}

impl Source {
    /// The mounts that a process sees.
    pub fn mountinfo(file: impl Into<String>) -> Self {
        Self::Mountinfo(file.into())
    }

    /// A file of `/proc`.
    pub fn proc(file: impl Into<String>) -> Self {
        Self::Proc(file.into())
    }

    /// A file elsewhere.
    pub fn file(file: impl Into<String>) -> Self {
        Self::File(file.into())
    }

    /// Of which kind it is; none where nobody has read it.
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

/// One fact, where it was read, and since when it is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Evidence {
    /// A sentence.
    pub fact: String,
    /// `syscall probe`, `/proc/812/mountinfo`, `statx`, ...
    pub source: Source,
    /// From here on it is known to hold.
    #[serde(serialize_with = "timestamp")]
    pub since: Timestamp,
}

/// A cause that it is not, and the fact that says so. In JSON a sentence, as in
/// `stacked-mounts: there is one mount on the path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuledOut {
    /// The cause.
    pub cause: CauseId,
    /// What speaks against it.
    pub fact: String,
    /// From here on that is known.
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

/// How sure a finding is. The rule is the same for all of them:
///
/// - *firm*: all facts that the cause requires were observed, the finding has evidence of each from a source that the
///   catalogue names for it, what is concluded from an absence was looked for by a part of the tool that saw everything,
///   and for every cause that looks alike the fact that tells the two apart is known;
/// - *likely*: one fact that tells it apart from something else is unknown;
/// - *possible*: anything less. What only admits that no cause is known is never more.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// Something required was not observed, or several look-alikes remain.
    Possible,
    /// One look-alike remains.
    Likely,
    /// None remains.
    Firm,
}

impl Certainty {
    /// By what is unknown: required facts, and facts that tell look-alikes apart.
    pub const fn by_unknown(required: usize, telling_apart: usize) -> Self {
        match (required, telling_apart) {
            (0, 0) => Self::Firm,
            (0, 1) => Self::Likely,
            _ => Self::Possible,
        }
    }

    /// The most that a finding of this cause can be: an admission admits something, nothing is proven by absences alone,
    /// and what is hidden is not known.
    pub fn at_most(cause: &Cause) -> Self {
        let is_seen = cause.confirmed_by.iter().any(|it| matches!(it.by, By::Seen([_, ..])));
        match cause.is_admission() {
            true => Self::Possible,
            false => Self::by_unknown(0, cause.hidden().count() + usize::from(!is_seen)),
        }
    }

    /// In text and in tables.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Firm => "certain",
            Self::Likely => "likely",
            Self::Possible => "possible",
        }
    }

    /// As a number between 0 and 1, for programs that sort by one. It says nothing more.
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
