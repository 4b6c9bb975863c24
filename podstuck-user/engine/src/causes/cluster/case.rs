//! The result about one object: its state, the next actor and the findings.

use std::{path::PathBuf, sync::Arc};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::PATIENCE;
use crate::{
    cause::{Cause, CauseId},
    model::{
        chain::{Who, as_text},
        cluster::{Key, Object},
        evidence::{Certainty, Evidence, RuledOut, Source},
        identity::Target,
        remedy::Remedy,
        time::Monotonic,
    },
    tracker::TrackerId,
    verdict::Draft,
};

/// How far the deletion of an object has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The object does not exist.
    Gone,
    /// The object could not be read.
    Unread,
    /// No deletion was requested.
    NotDeleted,
    /// It is being deleted, and may still finish by itself.
    InTime,
    /// It is being deleted, and should be gone by now.
    Overdue,
}

/// The component that has to act next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// The pod's grace period has not passed.
    Grace,
    /// kubelet, on the pod's node.
    Node,
    /// The clients whose finalizers are set.
    Finalizers,
    /// The namespace controller, which waits for the namespace's content.
    Content,
}

impl Step {
    /// The word for JSON and tables.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Grace => "grace",
            Self::Node => "node",
            Self::Finalizers => "finalizers",
            Self::Content => "content",
        }
    }

    /// The state as part of a sentence.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Grace => "its grace period has not passed",
            Self::Node => "kubelet has not reported that the pod has ended on its node",
            Self::Finalizers => "the API server keeps it until its finalizers are removed",
            Self::Content => "the namespace controller waits until the namespace is empty",
        }
    }
}

/// One object, and the findings about what keeps it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Kind, namespace and name of the object.
    pub key: Key,
    /// Its UID; empty if the object was not read.
    pub uid: String,
    /// How far its deletion has come.
    pub state: State,
    /// When its deletion was requested.
    pub requested: Option<Timestamp>,
    /// The component that has to act next.
    pub step: Option<Step>,
    /// The node of the pod or attachment.
    pub node: Option<String>,
    /// What keeps the object, in the order in which to release it.
    pub findings: Vec<Found>,
    /// The node to examine, if the data of the API server does not decide.
    pub examine: Option<String>,
    /// The pod's state in kubelet's own list, if that was read and is not the cause.
    pub kubelet: Option<String>,
    /// Other objects that this one waits for.
    pub waits_for: Vec<Key>,
}

/// A cause, with its evidence and remedies.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Found {
    /// Name of the cause.
    pub id: CauseId,
    /// The cause.
    #[serde(skip)]
    pub cause: &'static Cause,
    /// How certain the cause is.
    pub certainty: Certainty,
    /// `certainty` as a number.
    pub confidence: f64,
    /// The component or object that keeps the object, in a few words.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "Option<String>")]
    pub held_by: Option<Who>,
    /// The facts.
    pub evidence: Vec<Evidence>,
    /// The explanation, in a few sentences.
    pub explanation: String,
    /// Remedies, the safest first.
    pub remedies: Vec<Remedy>,
    /// Other causes that were ruled out, each with the fact against it.
    pub likely_causes_ruled_out: Vec<RuledOut>,
    /// What would make the finding firm, and is not known; empty if it is firm.
    pub not_known: Vec<String>,
    /// Whether the cause applies only after another one is released.
    pub later: bool,
}

impl Case {
    pub(super) fn without(key: &Key, state: State) -> Self {
        Self {
            key: key.clone(),
            uid: String::new(),
            state,
            requested: None,
            step: None,
            node: None,
            findings: Vec::new(),
            examine: None,
            kubelet: None,
            waits_for: Vec::new(),
        }
    }

    pub(super) fn new(key: &Key, object: &Object, now: Timestamp) -> Self {
        let meta = &object.metadata;
        let state = match meta.deletion_timestamp {
            None => State::NotDeleted,
            Some(end)
                if now.duration_since(end)
                    < jiff::SignedDuration::try_from(PATIENCE).unwrap_or_default() =>
            {
                State::InTime
            }
            Some(_) => State::Overdue,
        };
        Self { uid: meta.uid.clone(), requested: meta.requested(), ..Self::without(key, state) }
    }

    /// Adds a finding.
    pub(super) fn found(&mut self, mut draft: Draft, now: Timestamp) {
        if self.state == State::InTime
            && !draft.cause.is_admission()
            && self.step != Some(Step::Grace)
        {
            draft
                .doubt("whether its deletion finishes by itself: it is overdue for less than 30 s");
        }
        self.findings.push(Found::of(draft, now));
    }

    /// The finding to release first: one that applies now, else the first that applies later.
    pub fn first(&self) -> Option<&Found> {
        self.findings.iter().find(|found| !found.later).or_else(|| self.findings.first())
    }
}

impl Found {
    fn of(draft: Draft, now: Timestamp) -> Self {
        let (certainty, not_known) = (draft.certainty(), draft.not_known());
        let evidence = draft.evidence.into_iter();
        let ruled_out = draft.ruled_out.into_iter();
        Self {
            id: draft.cause.id,
            cause: draft.cause,
            certainty,
            confidence: certainty.confidence(),
            held_by: draft.held_by,
            evidence: evidence
                .map(|it| Evidence { fact: it.fact, source: it.source, since: now })
                .collect(),
            explanation: if draft.explanation.is_empty() {
                draft.cause.meaning.to_owned()
            } else {
                draft.explanation
            },
            remedies: draft.remedies.into_iter().map(|it| it.given(certainty, false)).collect(),
            likely_causes_ruled_out: ruled_out
                .map(|it| RuledOut { cause: it.cause, fact: it.fact, since: now })
                .collect(),
            not_known,
            later: draft.is_later,
        }
    }
}

/// An empty draft about a record at the API server. Its tracker id only states that; no event is routed by it.
pub(super) fn draft(cause: &'static Cause) -> Draft {
    let target = Arc::new(Target::unknown());
    let at = Monotonic::default();
    let mut draft = Draft::about_state(TrackerId::PodRecord, cause, 0, target, PathBuf::new(), at);
    draft.blocks_deletion = Some(!cause.is_admission());
    draft
}

/// The source of all facts here.
pub(super) fn api(now: Timestamp) -> Source {
    Source::Api(now)
}
