//! What is known of the cluster, and what is wanted.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use serde::Serialize;

use super::{Key, Kind, Meta, Object};

/// A question that one or more requests answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// An object.
    Object(Key),
    /// The objects of a type that are being deleted, by their metadata alone.
    Deleted {
        /// The type.
        kind: Kind,
        /// One namespace; `None` for all.
        namespace: Option<String>,
        /// A label selector.
        labels: Option<String>,
    },
    /// The metadata of all objects of a type in a namespace: whose dependents they are.
    Owned {
        /// The type.
        kind: Kind,
        /// The namespace; `None` for a type that is in none.
        namespace: Option<String>,
    },
    /// All objects of a type, whole.
    All {
        /// The type.
        kind: Kind,
        /// One namespace; `None` for all.
        namespace: Option<String>,
        /// A label selector.
        labels: Option<String>,
    },
    /// The types of an API group in the version that the API server prefers.
    Types(String),
    /// What kubelet on a node says of itself, through the API server.
    Kubelet {
        /// The node.
        node: String,
        /// What is asked.
        about: Kubelet,
    },
}

/// A question to a kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kubelet {
    /// Its own list of its pods, by their metadata alone.
    Pods,
    /// The same, [`AGAIN`] later at least.
    PodsAgain,
    /// Whether it is well: that its loop went round within the last five minutes is a part of that.
    Health,
}

/// How long after the first read of kubelet's list the second one begins.
pub const AGAIN: Duration = Duration::from_secs(2);

impl Question {
    /// What it takes, as `kubectl auth can-i` has it: verb, type, namespace.
    pub fn right(&self) -> Option<(&'static str, String, Option<&str>)> {
        match self {
            Self::Object(key) => Some(("get", key.kind.for_rights(), key.namespace.as_deref())),
            Self::Deleted { kind, namespace, .. }
            | Self::Owned { kind, namespace }
            | Self::All { kind, namespace, .. } => {
                Some(("list", kind.for_rights(), namespace.as_deref()))
            }
            Self::Types(_) => None,
            Self::Kubelet { .. } => Some(("get", "nodes/proxy".into(), None)),
        }
    }
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The caller may not.
    Forbidden,
    /// As many requests were made as are allowed.
    Budget,
    /// It failed otherwise; what the API server or the connection said.
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
    /// Why.
    pub why: Why,
}

/// What is being deleted, among all objects that were listed.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Their metadata.
    pub deleted: Vec<Meta>,
    /// When each client last wrote to any of them.
    pub writers: BTreeMap<String, Timestamp>,
}

/// What a question brought.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The object.
    Object(Arc<Object>),
    /// There is none.
    Missing,
    /// All of them.
    Objects(Arc<[Object]>),
    /// All that are being deleted.
    Survey(Arc<Survey>),
    /// The types.
    Types(Arc<[Kind]>),
    /// A kubelet says that it is well.
    Well,
    /// Nothing.
    Unread(Why),
}

/// What is known of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known<T> {
    /// It is there.
    Is(T),
    /// The API server says that there is none.
    Missing,
    /// It was not read.
    Unread,
}

impl<T> Known<T> {
    /// It, if it is there.
    pub fn is(self) -> Option<T> {
        match self {
            Self::Is(it) => Some(it),
            Self::Missing | Self::Unread => None,
        }
    }

    /// Whether there is none.
    pub const fn is_missing(&self) -> bool {
        matches!(self, Self::Missing)
    }
}

/// What was read, and what is wanted beside that.
#[derive(Debug)]
pub struct Facts {
    /// The API server's time.
    pub now: Timestamp,
    /// Whether kubelets may be asked through the API server: with a right that permits more than reading.
    pub asks_kubelets: bool,
    answers: BTreeMap<Question, Answer>,
    wanted: RefCell<BTreeSet<Question>>,
}

impl Facts {
    /// Nothing yet.
    pub fn new(now: Timestamp) -> Self {
        Self { now, asks_kubelets: false, answers: BTreeMap::new(), wanted: RefCell::default() }
    }

    /// Adds an answer.
    pub fn answered(&mut self, question: Question, answer: Answer) {
        self.wanted.get_mut().remove(&question);
        self.answers.insert(question, answer);
    }

    /// What was asked for and has no answer yet.
    pub fn wanted(&self) -> Vec<Question> {
        self.wanted.borrow().iter().cloned().collect()
    }

    /// What stays without an answer.
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

    /// The metadata of all objects of a type in a namespace.
    pub fn owned(&self, kind: &Kind, namespace: Option<&str>) -> Known<Arc<[Object]>> {
        let (kind, namespace) = (kind.clone(), namespace.map(str::to_owned));
        self.objects(Question::Owned { kind, namespace })
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
        self.objects(Question::All { kind, namespace, labels })
    }

    /// The types of an API group.
    pub fn types(&self, group: &str) -> Known<Arc<[Kind]>> {
        match self.ask(Question::Types(group.to_owned())) {
            Some(Answer::Types(types)) => Known::Is(types.clone()),
            Some(Answer::Missing) => Known::Missing,
            _ => Known::Unread,
        }
    }

    /// The metadata of the pods in a kubelet's own list.
    pub fn kubelets_pods(&self, node: &str, about: Kubelet) -> Known<Arc<[Object]>> {
        self.objects(Question::Kubelet { node: node.to_owned(), about })
    }

    /// Whether a kubelet says that it is well.
    pub fn kubelet_is_well(&self, node: &str) -> bool {
        let question = Question::Kubelet { node: node.to_owned(), about: Kubelet::Health };
        matches!(self.ask(question), Some(Answer::Well))
    }

    /// When a client last wrote to any object that was listed.
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
