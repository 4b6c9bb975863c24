//! What is found out about one object.

use std::{path::PathBuf, sync::Arc};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::PATIENCE;
use crate::{
    cause::{Cause, CauseId},
    model::{
        cluster::{Key, Object},
        evidence::{Certainty, Evidence, RuledOut, Source},
        identity::Target,
        remedy::Remedy,
        time::Monotonic,
    },
    tracker::TrackerId,
    verdict::Draft,
};

/// Whether there is something to explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is no such object.
    Gone,
    /// It could not be read.
    Unread,
    /// No deletion of it was requested.
    NotDeleted,
    /// It is being deleted, and may still come to its end by itself.
    InTime,
    /// It is being deleted, and should be gone.
    Overdue,
}

/// Who has to act next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// A pod's grace has not passed.
    Grace,
    /// kubelet, on the pod's node.
    Node,
    /// The clients whose finalizers are set.
    Finalizers,
    /// The namespace controller, which waits for the namespace's content.
    Content,
}

impl Step {
    /// As in JSON, and in a table.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Grace => "grace",
            Self::Node => "node",
            Self::Finalizers => "finalizers",
            Self::Content => "content",
        }
    }

    /// In a sentence.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Grace => "its grace period has not passed",
            Self::Node => "kubelet has not reported that the pod has ended on its node",
            Self::Finalizers => "the API server keeps it until its finalizers are removed",
            Self::Content => "the namespace controller waits until the namespace is empty",
        }
    }
}

/// One object, and what keeps it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name.
    pub key: Key,
    /// Its UID; empty where it was not read.
    pub uid: String,
    /// Whether there is something to explain.
    pub state: State,
    /// When its deletion was requested.
    pub requested: Option<Timestamp>,
    /// Who has to act next.
    pub step: Option<Step>,
    /// The node that it is about.
    pub node: Option<String>,
    /// What keeps it, what must be released first before the others.
    pub findings: Vec<Found>,
    /// The node whose state decides, where the API server's does not.
    pub examine: Option<String>,
    /// What kubelet's own list says of the pod, where that is read and is not what keeps it.
    pub kubelet: Option<String>,
    /// Other objects that it waits for.
    pub waits_for: Vec<Key>,
}

/// A cause with all that supports it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Found {
    /// Name of the cause.
    pub id: CauseId,
    /// The cause.
    #[serde(skip)]
    pub cause: &'static Cause,
    /// How sure it is.
    pub certainty: Certainty,
    /// Follows from that.
    pub confidence: f64,
    /// Who or what keeps the object, in a few words.
    pub held_by: Option<String>,
    /// The facts.
    pub evidence: Vec<Evidence>,
    /// What it means, in a few sentences.
    pub explanation: String,
    /// What to do, the safest first.
    pub remedies: Vec<Remedy>,
    /// What else it could have been, and the fact against it.
    pub likely_causes_ruled_out: Vec<RuledOut>,
    /// Why it is not firm; empty when it is.
    pub not_known: Vec<String>,
    /// Whether it keeps the object only when something else has been done.
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
            draft.doubt(
                "whether it comes to its end by itself: it should be gone for less than 30 s",
            );
        }
        self.findings.push(Found::of(draft, now));
    }

    /// The finding that has to be released first; those that come later only if there is no other.
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

/// A draft to be filled. What is decided here is about a record at the API server, which is what the field of that name
/// says; nothing routes by it.
pub(super) fn draft(cause: &'static Cause) -> Draft {
    let target = Arc::new(Target::unknown());
    let at = Monotonic::default();
    let mut draft = Draft::about_state(TrackerId::PodRecord, cause, 0, target, PathBuf::new(), at);
    draft.blocks_deletion = Some(!cause.is_admission());
    draft
}

/// Where all facts are from.
pub(super) fn api(now: Timestamp) -> Source {
    Source::Api(now)
}
