//! The facts about the cluster that were read, and the questions that are still open.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Key, Kind, LastRequest, Meta, Object, Refusal, Removal, removal::CONTROLLERS};

/// A question, answered by one or more requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// An object.
    Object(Key),
    /// The objects of a type that are being deleted, as metadata only.
    Deleted {
        /// The type.
        kind: Kind,
        /// The namespace; `None` for all.
        namespace: Option<String>,
        /// A label selector.
        labels: Option<String>,
    },
    /// The metadata of all objects of a type in a namespace, to find dependents.
    Owned {
        /// The type.
        kind: Kind,
        /// The namespace; `None` for a cluster-scoped type.
        namespace: Option<String>,
    },
    /// All objects of a type, in full.
    All {
        /// The type.
        kind: Kind,
        /// The namespace; `None` for all.
        namespace: Option<String>,
        /// A label selector.
        labels: Option<String>,
        /// A field selector.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fields: Option<String>,
    },
    /// The types of an API group that can be listed, in the API server's preferred version.
    Types(String),
    /// The names of all API groups; the core group's is empty.
    Groups,
    /// A question to the kubelet of a node, through the API server.
    Kubelet {
        /// The node.
        node: String,
        /// The question.
        about: Kubelet,
    },
    /// Whether the API server admits the request that removes a finalizer, by a dry run, which changes nothing.
    Removal(Removal),
    /// Whether the API server admits one of kubelet's last requests about a pod, by a dry run, which changes nothing.
    LastRequest(LastRequest),
}

/// A question to a kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kubelet {
    /// kubelet's list of its pods, as metadata only.
    Pods,
    /// The same list, read at least [`AGAIN`] later.
    PodsAgain,
    /// kubelet's health check. It fails if the sync loop has not completed within the last five minutes.
    Health,
}

/// Minimum time from the first to the second read of kubelet's list.
pub const AGAIN: Duration = Duration::from_secs(2);

impl Question {
    /// The required right, as for `kubectl auth can-i`: verb, type, namespace.
    pub fn right(&self) -> Option<(&'static str, String, Option<&str>)> {
        match self {
            Self::Object(key) => Some(("get", key.kind.for_rights(), key.namespace.as_deref())),
            Self::Deleted { kind, namespace, .. }
            | Self::Owned { kind, namespace }
            | Self::All { kind, namespace, .. } => {
                Some(("list", kind.for_rights(), namespace.as_deref()))
            }
            Self::Types(_) | Self::Groups => None,
            Self::Kubelet { .. } => Some(("get", "nodes/proxy".into(), None)),
            Self::Removal(_) => Some(("impersonate", "serviceaccounts".into(), Some(CONTROLLERS))),
            Self::LastRequest(_) => Some(("impersonate", "users".into(), None)),
        }
    }
}

/// The reason why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The caller lacks the right.
    Forbidden,
    /// The maximum number of requests is reached.
    Budget,
    /// Another failure, with the message of the API server or the connection.
    Failed(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forbidden => "not permitted",
            Self::Budget => "no request is left of --max-requests",
            Self::Failed(why) => why,
        })
    }
}

/// A question without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The question.
    pub question: Question,
    /// The reason.
    pub why: Why,
}

/// The objects that are being deleted, among all listed objects.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Survey {
    /// Their metadata.
    pub deleted: Vec<Meta>,
    /// The last write of each client to any of them.
    pub writers: BTreeMap<String, Timestamp>,
    /// Number of listed objects by namespace, which is empty for cluster-scoped objects.
    #[serde(default)]
    pub totals: BTreeMap<String, usize>,
}

/// The answer to a question.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The object.
    Object(Arc<Object>),
    /// The object does not exist.
    Missing,
    /// All objects.
    Objects(Arc<[Object]>),
    /// All objects that are being deleted.
    Survey(Arc<Survey>),
    /// The types.
    Types(Arc<[Kind]>),
    /// The names of the API groups.
    Groups(Arc<[String]>),
    /// The kubelet reports that it is healthy.
    Well,
    /// The API server admits the request.
    Admitted,
    /// The API server refuses the request.
    Refused(Refusal),
    /// No answer.
    Unread(Why),
}

/// What is known of an object or a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known<T> {
    /// It exists.
    Is(T),
    /// It does not exist, by the API server.
    Missing,
    /// It was not read.
    Unread,
}

impl<T> Known<T> {
    /// The value, if it exists.
    pub fn is(self) -> Option<T> {
        match self {
            Self::Is(it) => Some(it),
            Self::Missing | Self::Unread => None,
        }
    }

    /// Whether it does not exist.
    pub const fn is_missing(&self) -> bool {
        matches!(self, Self::Missing)
    }
}

/// The answers so far, and the open questions.
#[derive(Debug)]
pub struct Facts {
    /// The API server's time.
    pub now: Timestamp,
    /// Whether kubelets may be queried through the API server: that takes a right that permits more than reading.
    pub asks_kubelets: bool,
    /// Whether requests of controllers and kubelets may be tried in a dry run: that takes a right that permits more than
    /// reading.
    pub tries_removals: bool,
    answers: BTreeMap<Question, Answer>,
    wanted: RefCell<BTreeSet<Question>>,
}

impl Facts {
    /// No answers.
    pub fn new(now: Timestamp) -> Self {
        Self {
            now,
            asks_kubelets: false,
            tries_removals: false,
            answers: BTreeMap::new(),
            wanted: RefCell::default(),
        }
    }

    /// Adds an answer.
    pub fn answered(&mut self, question: Question, answer: Answer) {
        self.wanted.get_mut().remove(&question);
        self.answers.insert(question, answer);
    }

    /// The open questions.
    pub fn wanted(&self) -> Vec<Question> {
        self.wanted.borrow().iter().cloned().collect()
    }

    /// All answered questions, each with its answer.
    pub fn answers(&self) -> impl Iterator<Item = (&Question, &Answer)> {
        self.answers.iter()
    }

    /// The questions that could not be answered.
    pub fn unread(&self) -> impl Iterator<Item = Unread> {
        self.answers.iter().filter_map(|(question, answer)| match answer {
            Answer::Unread(why) => Some(Unread { question: question.clone(), why: why.clone() }),
            _ => None,
        })
    }

    fn ask(&self, question: Question) -> Option<&Answer> {
        let answer = self.answers.get(&question);
        if answer.is_none() {
            self.wanted.borrow_mut().insert(question);
        }
        answer
    }

    /// An object.
    pub fn object(&self, key: &Key) -> Known<Arc<Object>> {
        match self.ask(Question::Object(key.clone())) {
            Some(Answer::Object(object)) => Known::Is(object.clone()),
            Some(Answer::Missing) => Known::Missing,
            _ => Known::Unread,
        }
    }

    /// The objects of a type that are being deleted.
    pub fn deleted(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        labels: Option<&str>,
    ) -> Known<Arc<Survey>> {
        let (kind, namespace) = (kind.clone(), namespace.map(str::to_owned));
        let labels = labels.map(str::to_owned);
        self.survey(Question::Deleted { kind, namespace, labels })
    }

    /// The API server's message, if the list of a type fails.
    pub fn failure_of_list(&self, kind: &Kind, namespace: Option<&str>) -> Option<&str> {
        let (kind, namespace) = (kind.clone(), namespace.map(str::to_owned));
        match self.ask(Question::Deleted { kind, namespace, labels: None }) {
            Some(Answer::Unread(Why::Failed(message))) => Some(message),
            _ => None,
        }
    }

    /// The metadata of all objects of a type in a namespace.
    pub fn owned(&self, kind: &Kind, namespace: Option<&str>) -> Known<Arc<[Object]>> {
        let (kind, namespace) = (kind.clone(), namespace.map(str::to_owned));
        self.objects(Question::Owned { kind, namespace })
    }

    /// Number of objects of a type in a namespace, if they were listed.
    pub fn total(&self, kind: &Kind, namespace: Option<&str>) -> Option<usize> {
        self.answers.iter().find_map(|(question, answer)| match (question, answer) {
            (
                Question::Deleted { kind: of, namespace: place, labels: None },
                Answer::Survey(survey),
            ) if of == kind && (place.is_none() || place.as_deref() == namespace) => {
                let namespace = namespace.unwrap_or_default();
                Some(survey.totals.get(namespace).copied().unwrap_or_default())
            }
            _ => None,
        })
    }

    /// All objects of a type.
    pub fn all(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        labels: Option<&str>,
    ) -> Known<Arc<[Object]>> {
        let (kind, namespace) = (kind.clone(), namespace.map(str::to_owned));
        let labels = labels.map(str::to_owned);
        self.objects(Question::All { kind, namespace, labels, fields: None })
    }

    /// All objects of a type whose field has this value.
    pub fn all_with(&self, kind: &Kind, field: &str, value: &str) -> Known<Arc<[Object]>> {
        let fields = Some(format!("{field}={value}"));
        self.objects(Question::All { kind: kind.clone(), namespace: None, labels: None, fields })
    }

    /// The types of an API group.
    pub fn types(&self, group: &str) -> Known<Arc<[Kind]>> {
        match self.ask(Question::Types(group.to_owned())) {
            Some(Answer::Types(types)) => Known::Is(types.clone()),
            Some(Answer::Missing) => Known::Missing,
            _ => Known::Unread,
        }
    }

    /// The names of all API groups.
    pub fn groups(&self) -> Known<Arc<[String]>> {
        match self.ask(Question::Groups) {
            Some(Answer::Groups(groups)) => Known::Is(groups.clone()),
            Some(Answer::Missing) => Known::Missing,
            _ => Known::Unread,
        }
    }

    /// The metadata of the pods in a kubelet's own list.
    pub fn kubelets_pods(&self, node: &str, about: Kubelet) -> Known<Arc<[Object]>> {
        self.objects(Question::Kubelet { node: node.to_owned(), about })
    }

    /// Whether a kubelet reports that it is healthy.
    pub fn kubelet_is_well(&self, node: &str) -> bool {
        let question = Question::Kubelet { node: node.to_owned(), about: Kubelet::Health };
        matches!(self.ask(question), Some(Answer::Well))
    }

    /// Why the API server refuses a request that removes a finalizer; `Missing` if it admits the request.
    pub fn refusal(&self, removal: Removal) -> Known<Refusal> {
        self.tried(Question::Removal(removal))
    }

    /// Why the API server refuses one of kubelet's last requests; `Missing` if it admits the request.
    pub fn refusal_of_last(&self, request: LastRequest) -> Known<Refusal> {
        self.tried(Question::LastRequest(request))
    }

    fn tried(&self, question: Question) -> Known<Refusal> {
        match self.ask(question) {
            Some(Answer::Refused(refusal)) => Known::Is(refusal.clone()),
            Some(Answer::Admitted) => Known::Missing,
            _ => Known::Unread,
        }
    }

    /// The last write of a client to any listed object.
    pub fn last_write(&self, manager: &str) -> Option<Timestamp> {
        let of = |answer: &Answer| match answer {
            Answer::Survey(survey) => survey.writers.get(manager).copied(),
            _ => None,
        };
        self.answers.values().filter_map(of).max()
    }

    fn survey(&self, question: Question) -> Known<Arc<Survey>> {
        match self.ask(question) {
            Some(Answer::Survey(survey)) => Known::Is(survey.clone()),
            Some(Answer::Missing) => Known::Missing,
            _ => Known::Unread,
        }
    }

    fn objects(&self, question: Question) -> Known<Arc<[Object]>> {
        match self.ask(question) {
            Some(Answer::Objects(objects)) => Known::Is(objects.clone()),
            Some(Answer::Missing) => Known::Missing,
            _ => Known::Unread,
        }
    }
}
