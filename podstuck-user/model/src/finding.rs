//! What the tool says is wrong. The shape is the contract `podstuck/v1`.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::{
    call::{Call, Outcome},
    diagnosis::Stage,
    evidence::{Certainty, Evidence, RuledOut},
    identity::{Actor, Pod, Volume},
    path::JsonPath,
    remedy::Remedy,
    time::rfc3339,
};
use crate::cause::{CauseId, Kind};

/// Where a finding stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FindingState {
    /// Reported for the first time.
    New,
    /// More is known than before.
    Update,
    /// It no longer holds: the call has succeeded since, the target is gone, or the state is over.
    /// Also when another verdict of its family about the same target replaces it, which then
    /// follows at once as [`Self::New`].
    Cleared,
}

/// How bad it is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is stuck.
    Info,
    /// Something is held up.
    Warning,
    /// Data is being lost, or nothing will move without help.
    Critical,
}

/// The call that shows the fault, or only the object, where the fault is that nobody calls.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FaultyCall {
    /// What was called; `None` for a finding about a state.
    pub syscall: Option<Call>,
    /// The object, in the caller's mount namespace.
    #[serde(flatten)]
    pub path: JsonPath,
    /// 0 for success; `None` without a call.
    #[serde(serialize_with = "errno_number")]
    #[schemars(with = "Option<u16>")]
    pub errno: Option<Outcome>,
}

fn errno_number<S: Serializer>(outcome: &Option<Outcome>, s: S) -> Result<S::Ok, S::Error> {
    outcome.map(|outcome| outcome.0).serialize(s)
}

/// A named cause with all that supports it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Finding {
    /// Name of the cause.
    pub id: CauseId,
    /// A cause, or the admission that none is known.
    #[serde(skip)]
    pub kind: Kind,
    /// Names this finding through its states. Another one about the same object has another name.
    pub instance: String,
    /// Where it stands.
    pub state: FindingState,
    /// How bad it is.
    pub severity: Severity,
    /// How sure it is.
    pub certainty: Certainty,
    /// 0 to 1: follows from the certainty.
    pub confidence: f64,
    /// The stage of the deletion in which the cause holds a pod.
    pub stage: Stage,
    /// Whether it keeps the pod from going away; `None` when unknown.
    pub blocks_deletion: Option<bool>,
    /// The pod that is held.
    pub pod: Option<Pod>,
    /// The container that is held: its id, or in a pod's own directory its name.
    pub container: Option<String>,
    /// Its name, if it is known by its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// The volume concerned.
    pub volume: Option<Volume>,
    /// Who made the call; `None` without a call.
    pub actor: Option<Actor>,
    /// The call.
    #[serde(serialize_with = "call_with_errno_name")]
    #[schemars(with = "NamedCall<'static>")]
    pub call: FaultyCall,
    /// How many such calls were seen or counted.
    pub count: u64,
    /// First and last time.
    #[serde(serialize_with = "timestamp")]
    pub first: Timestamp,
    /// See `first`.
    #[serde(serialize_with = "timestamp")]
    pub last: Timestamp,
    /// Who or what holds it, in a few words; left out of JSON where the object of the call says it all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// What that one must do where it is more than to let go; in JSON the chain has it.
    #[serde(skip)]
    pub must: Option<&'static str>,
    /// The facts.
    pub evidence: Vec<Evidence>,
    /// What it means, in a few sentences.
    pub explanation: String,
    /// What to do, safest first.
    pub remedies: Vec<Remedy>,
    /// What else it could have been, and the fact against it.
    pub likely_causes_ruled_out: Vec<RuledOut>,
    /// Why it is not firm; empty when it is.
    pub not_known: Vec<String>,
    /// What parts of the tool, by which such a finding is made, could not do when it was, or cannot now; each
    /// a sentence. Left out of JSON where there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<String>,
    /// Whether to watch for longer adds nothing.
    #[serde(skip)]
    pub is_settled: bool,
    /// Whether it holds the pod only when the node has done its part.
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

/// How far a mass deletion has come.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Progress {
    /// The directory that is emptied.
    #[serde(flatten)]
    pub path: JsonPath,
    /// The pod it belongs to.
    pub pod: Option<Pod>,
    /// Entries (files and directories) deleted since the start.
    pub deleted: u64,
    /// Of these, directories.
    pub directories: u64,
    /// Entries per second, over the last seconds.
    pub rate_per_s: f64,
    /// Entries left: the best guess, `None` when nothing supports one.
    pub remaining_estimate: Option<u64>,
    /// Fewest and most entries that can be left.
    pub remaining_range: Option<(u64, u64)>,
    /// Seconds to go at this rate, for the best guess.
    pub eta_s: Option<u64>,
    /// Seconds to go for the fewest and the most.
    pub eta_range_s: Option<(u64, u64)>,
}
