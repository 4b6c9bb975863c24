//! A finding. The shape is the contract `podstuck/v1`.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::{
    call::{Call, Outcome},
    chain::{Link, Who, as_text},
    diagnosis::Stage,
    evidence::{Certainty, Evidence, RuledOut},
    identity::{Actor, Pod, Volume},
    path::JsonPath,
    remedy::Remedy,
    time::rfc3339,
};
use crate::cause::{CauseId, Kind};

/// The state of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FindingState {
    /// Reported for the first time.
    New,
    /// New facts are known.
    Update,
    /// It no longer holds: the call has succeeded, the target is gone, or the state has ended. Also when another
    /// verdict of the same family about the same target replaces it; that one follows immediately as [`Self::New`].
    Cleared,
}

/// The severity.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Informational; nothing is stuck.
    Info,
    /// Something is delayed.
    Warning,
    /// Data is being lost, or the deletion cannot continue without intervention.
    Critical,
}

/// Whether a finding is reported unasked, as an Event or a problem of the node: it is at least likely, not only
/// informational, and not known to leave the deletion alone.
pub fn is_alarming(
    certainty: Certainty,
    severity: Severity,
    blocks_deletion: Option<bool>,
) -> bool {
    certainty != Certainty::Possible && severity != Severity::Info && blocks_deletion != Some(false)
}

/// The call that shows the fault; only the object if the fault is that no call is made.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FaultyCall {
    /// The call; `None` for a finding about a state.
    pub syscall: Option<Call>,
    /// The object, in the caller's mount namespace.
    #[serde(flatten)]
    pub path: JsonPath,
    /// The outcome, 0 for success; `None` without a call.
    #[serde(serialize_with = "errno_number")]
    #[schemars(with = "Option<u16>")]
    pub errno: Option<Outcome>,
}

fn errno_number<S: Serializer>(outcome: &Option<Outcome>, s: S) -> Result<S::Ok, S::Error> {
    outcome.map(|outcome| outcome.0).serialize(s)
}

/// A cause with all its evidence.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Finding {
    /// Name of the cause.
    pub id: CauseId,
    /// A cause, or the admission that none is known.
    #[serde(skip)]
    pub kind: Kind,
    /// Identifies this finding through its states. A later finding about the same object has another id.
    pub instance: String,
    /// Its state.
    pub state: FindingState,
    /// Its severity.
    pub severity: Severity,
    /// Its certainty.
    pub certainty: Certainty,
    /// A number from 0 to 1 that follows from the certainty.
    pub confidence: f64,
    /// The stage of the deletion in which the cause blocks a pod.
    pub stage: Stage,
    /// Whether it blocks the deletion of the pod; `None` if unknown.
    pub blocks_deletion: Option<bool>,
    /// The pod that is blocked.
    pub pod: Option<Pod>,
    /// The container that is blocked: its id, or its name for a directory of the pod itself.
    pub container: Option<String>,
    /// The container's name, if `container` is an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// The volume concerned.
    pub volume: Option<Volume>,
    /// The caller; `None` without a call.
    pub actor: Option<Actor>,
    /// The call.
    #[serde(serialize_with = "call_with_errno_name")]
    #[schemars(with = "NamedCall<'static>")]
    pub call: FaultyCall,
    /// Number of such calls, seen or counted.
    pub count: u64,
    /// First and last time.
    #[serde(serialize_with = "timestamp")]
    pub first: Timestamp,
    /// See `first`.
    #[serde(serialize_with = "timestamp")]
    pub last: Timestamp,
    /// The holder, in a few words; absent from JSON if the call's object already says it.
    #[serde(serialize_with = "as_text", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub held_by: Option<Who>,
    /// What the holder must do other than release the object; JSON has it in the chain.
    #[serde(skip)]
    pub must: Option<&'static str>,
    /// What the holder waits for, where that is known; JSON has it in the chain.
    #[serde(skip)]
    pub waits_for: Option<String>,
    /// The chain of waits of its pod that ends with this finding; an answer (`diagnosis`) has it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<Link>,
    /// The evidence.
    pub evidence: Vec<Evidence>,
    /// The meaning, in a few sentences.
    pub explanation: String,
    /// Remedies, the safest first.
    pub remedies: Vec<Remedy>,
    /// Look-alikes that are ruled out, each with the fact that does so.
    pub likely_causes_ruled_out: Vec<RuledOut>,
    /// Why it is not firm; empty if it is.
    pub not_known: Vec<String>,
    /// The degraded parts of podstuck that such a finding depends on, at the time of the finding or now; each a
    /// sentence. Absent from JSON if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<String>,
    /// Whether watching longer would add nothing.
    #[serde(skip)]
    pub is_settled: bool,
    /// Whether it blocks the pod only after the node has done its part.
    #[serde(skip)]
    pub is_later: bool,
}

fn timestamp<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&rfc3339(*time))
}

#[derive(Serialize, JsonSchema)]
struct NamedCall<'a> {
    #[serde(flatten)]
    call: &'a FaultyCall,
    errno_name: Option<String>,
}

fn call_with_errno_name<S: Serializer>(call: &FaultyCall, s: S) -> Result<S::Ok, S::Error> {
    NamedCall { call, errno_name: call.errno.map(|errno| errno.name()) }.serialize(s)
}

/// The progress of a mass deletion.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Progress {
    /// The directory that is being emptied.
    #[serde(flatten)]
    pub path: JsonPath,
    /// The pod it belongs to.
    pub pod: Option<Pod>,
    /// Entries (files and directories) deleted since the start.
    pub deleted: u64,
    /// Directories among them.
    pub directories: u64,
    /// Entries per second, over the last seconds.
    pub rate_per_s: f64,
    /// The best estimate of the entries left; `None` if unknown.
    pub remaining_estimate: Option<u64>,
    /// Lower and upper bound of the entries left.
    pub remaining_range: Option<(u64, u64)>,
    /// Seconds left at this rate, for the best estimate.
    pub eta_s: Option<u64>,
    /// Seconds left for the lower and the upper bound.
    pub eta_range_s: Option<(u64, u64)>,
}
