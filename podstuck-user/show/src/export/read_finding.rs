//! Reads a finding in the format of `findings.jsonl`.

use jiff::Timestamp;
use podstuck_engine::catalogue;
use serde::{Deserialize, Deserializer};

use podstuck_model::{
    call::{Call, Outcome},
    chain::Who,
    diagnosis::Stage,
    evidence::{Certainty, Evidence, RuledOut},
    finding::{FaultyCall, Finding, FindingState, Severity},
    identity::{Actor, Pod, Volume},
    path::JsonPath,
    remedy::Remedy,
};

/// A line of the file.
#[derive(Deserialize)]
pub(super) struct Line {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) time: Timestamp,
    #[serde(flatten)]
    finding: Parts,
}

#[derive(Deserialize)]
struct Parts {
    id: String,
    instance: String,
    state: FindingState,
    severity: Severity,
    certainty: Certainty,
    stage: Stage,
    blocks_deletion: Option<bool>,
    pod: Option<Pod>,
    container: Option<String>,
    container_name: Option<String>,
    volume: Option<Volume>,
    actor: Option<Actor>,
    call: CallParts,
    count: u64,
    first: Timestamp,
    last: Timestamp,
    held_by: Option<String>,
    evidence: Vec<Evidence>,
    explanation: String,
    remedies: Vec<Remedy>,
    #[serde(deserialize_with = "ruled_out")]
    likely_causes_ruled_out: Vec<RuledOut>,
    not_known: Vec<String>,
    #[serde(default)]
    degraded: Vec<String>,
}

#[derive(Deserialize)]
struct CallParts {
    syscall: Option<Call>,
    #[serde(flatten)]
    path: JsonPath,
    errno: Option<u16>,
}

/// Each is `cause: fact`. Its time is not written; one about a cause that this version does not know is left out.
fn ruled_out<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<RuledOut>, D::Error> {
    let all = Vec::<String>::deserialize(d)?;
    let one = |text: String| {
        let (name, fact) = text.split_once(": ")?;
        let cause = catalogue::id(name)?;
        Some(RuledOut { cause, fact: fact.into(), since: Timestamp::UNIX_EPOCH })
    };
    Ok(all.into_iter().filter_map(one).collect())
}

impl Line {
    /// The finding, or the name of a cause that this version does not know.
    pub(super) fn finding(self) -> Result<Finding, String> {
        let Parts { id, .. } = &self.finding;
        let Some(cause) = catalogue::find(id) else { return Err(self.finding.id) };
        let parts = self.finding;
        Ok(Finding {
            id: cause.id,
            kind: cause.kind,
            instance: parts.instance,
            state: parts.state,
            severity: parts.severity,
            certainty: parts.certainty,
            confidence: parts.certainty.confidence(),
            stage: parts.stage,
            blocks_deletion: parts.blocks_deletion,
            pod: parts.pod,
            container: parts.container,
            container_name: parts.container_name,
            volume: parts.volume,
            actor: parts.actor,
            call: FaultyCall {
                syscall: parts.call.syscall,
                path: parts.call.path,
                errno: parts.call.errno.map(Outcome),
            },
            count: parts.count,
            first: parts.first,
            last: parts.last,
            held_by: parts.held_by.map(Who::object),
            chain: Vec::new(),
            must: None,
            waits_for: None,
            evidence: parts.evidence,
            explanation: parts.explanation,
            remedies: parts.remedies,
            likely_causes_ruled_out: parts.likely_causes_ruled_out,
            not_known: parts.not_known,
            degraded: parts.degraded,
            is_settled: false,
            is_later: false,
        })
    }
}
