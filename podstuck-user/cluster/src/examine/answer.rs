//! podstuck's answer on a node, read back from its JSON lines. Unknown fields are ignored: the image may have another
//! version than this program.

use jiff::Timestamp;
use podstuck_engine::{catalogue, cluster::Found};
use podstuck_model::{
    chain::{Link, Who},
    diagnosis::Stage,
    evidence::{Certainty, Evidence, RuledOut, Source},
    remedy::Remedy,
    summary::Completeness,
};
use serde::Deserialize;
use serde_json::Value;

/// What podstuck on a node found out about a pod.
#[derive(Clone, Debug, Default)]
pub struct NodesAnswer {
    /// The causes there, in the order of the node's answer.
    pub causes: Vec<Cause>,
    /// Whether something of the pod is left there: causes that apply after the node's part are then later ones.
    pub is_left: bool,
    /// Causes that this program does not know, by name.
    pub unknown: Vec<String>,
    /// The chain of waits on the node; the first link is the API server's.
    pub chain: Vec<Link>,
    /// Why the wait of the last link is not visible.
    pub not_visible: Option<String>,
    /// The pod was gone from the node after this number of seconds.
    pub gone_after_s: Option<f64>,
    /// Facts that matter whatever the cause is.
    pub notes: Vec<String>,
    /// What components have logged about the pod, each with its source.
    pub said: Vec<String>,
    /// What may release the pod if no cause was recognised.
    pub remedies: Vec<Remedy>,
    /// Further checks.
    pub next: Vec<String>,
    /// What podstuck lost there, each in a sentence.
    pub missed: Vec<String>,
}

/// A cause on the node.
#[derive(Clone, Debug)]
pub struct Cause {
    /// The finding.
    pub found: Found,
    /// Whether it blocks the deletion.
    pub blocks: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Diagnosis {
    causes: Vec<Finding>,
    stages: Vec<OnePod>,
    gone: Option<Gone>,
    notes: Vec<String>,
    said: Vec<Said>,
    remedies: Vec<Remedy>,
    next: Vec<String>,
}

#[derive(Deserialize)]
struct Finding {
    id: String,
    certainty: Certainty,
    blocks_deletion: Option<bool>,
    held_by: Option<String>,
    call: Call,
    evidence: Vec<Evidence>,
    explanation: String,
    remedies: Vec<Remedy>,
    likely_causes_ruled_out: Vec<String>,
    not_known: Vec<String>,
}

#[derive(Deserialize)]
struct Call {
    path: String,
}

#[derive(Deserialize)]
struct OnePod {
    stage: Stage,
    #[serde(default)]
    chain: Vec<Link>,
    not_visible: Option<String>,
}

#[derive(Deserialize)]
struct Said {
    at: Timestamp,
    text: String,
    source: String,
}

#[derive(Deserialize)]
struct Gone {
    after_s: f64,
}

#[derive(Deserialize)]
struct Summary {
    completeness: Completeness,
}

impl NodesAnswer {
    /// From all that podstuck wrote there: the lines of an answer and of its end. Other lines and text between them
    /// are ignored. `None` without an answer.
    ///
    /// # Errors
    ///
    /// Fails if the answer lacks what is needed.
    pub fn of(lines: &[Value]) -> serde_json::Result<Option<Self>> {
        let last = |kind| lines.iter().rfind(|line| line["type"] == kind);
        let Some(diagnosis) = last("diagnosis") else { return Ok(None) };
        let diagnosis = Diagnosis::deserialize(diagnosis)?;
        let summary = last("summary").and_then(|line| Summary::deserialize(line).ok());
        let mut answer = Self {
            gone_after_s: diagnosis.gone.map(|it| it.after_s),
            notes: diagnosis.notes,
            said: diagnosis.said.into_iter().map(Said::text).collect(),
            remedies: diagnosis.remedies,
            next: diagnosis.next,
            missed: summary.map(|it| it.completeness.losses()).unwrap_or_default(),
            ..Self::default()
        };
        // One pod was asked about.
        if let Some(pod) = diagnosis.stages.into_iter().next() {
            answer.is_left = !matches!(pod.stage, Stage::Gone | Stage::Api);
            (answer.chain, answer.not_visible) = (pod.chain, pod.not_visible);
        }
        for link in answer.chain.iter_mut().flat_map(|link| &mut link.facts) {
            link.source = source(&link.source).to_string();
        }
        for finding in diagnosis.causes {
            match finding.cause() {
                Ok(cause) => answer.causes.push(cause),
                Err(name) => answer.unknown.push(name),
            }
        }
        Ok(Some(answer))
    }
}

impl Said {
    fn text(self) -> String {
        format!("{:.0}: {} [node: {}]", self.at, self.text, self.source)
    }
}

impl Finding {
    /// The finding, or the name of an unknown cause.
    fn cause(self) -> Result<Cause, String> {
        let Some(cause) = catalogue::find(&self.id) else { return Err(self.id) };
        let evidence = self.evidence.into_iter().map(|it| {
            let source = source(&it.source.to_string());
            Evidence { source, ..it }
        });
        let path = Some(self.call.path).filter(|path| !path.is_empty());
        let found = Found {
            id: cause.id,
            cause,
            certainty: self.certainty,
            confidence: self.certainty.confidence(),
            held_by: self.held_by.or(path).map(Who::object),
            evidence: evidence.collect(),
            explanation: self.explanation,
            remedies: self.remedies,
            likely_causes_ruled_out: self
                .likely_causes_ruled_out
                .iter()
                .filter_map(|text| ruled_out(text))
                .collect(),
            not_known: self.not_known,
            later: false,
        };
        Ok(Cause { found, blocks: self.blocks_deletion })
    }
}

/// `cause: fact`; `None` for a cause that this program does not know.
fn ruled_out(text: &str) -> Option<RuledOut> {
    let (name, fact) = text.split_once(": ")?;
    let cause = catalogue::id(name)?;
    Some(RuledOut { cause, fact: fact.into(), since: Timestamp::UNIX_EPOCH })
}

/// The source of a fact, by its text. What the node did not see itself keeps its source.
fn source(text: &str) -> Source {
    let api = Source::Api(Timestamp::UNIX_EPOCH).to_string();
    let is_of_api = api.split(',').next().is_some_and(|start| text.starts_with(start));
    // A link of the chain has it in fewer words.
    if is_of_api || text == "its record" || text == Source::Record.to_string() {
        Source::Record
    } else if text == Source::Kubelet.to_string() {
        Source::Kubelet
    } else {
        Source::File(format!("node: {text}"))
    }
}
