//! A made-up cluster for tests, with objects of the documented form.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Value, json};

use super::super::{Answer as Judged, Case, Found, answer};
use crate::model::{
    cluster::{Answer, Facts, Key, Kind, Kubelet, Last, Object, Question, Survey, Why},
    evidence::Certainty,
};

/// The API server's time in all tests.
pub(super) const NOW: &str = "2026-11-28T10:00:00Z";
/// The time of a deletion that has not finished for ten minutes.
pub(super) const LONG_AGO: &str = "2026-11-28T09:50:00Z";

/// All objects of the cluster.
#[derive(Default)]
pub(super) struct World {
    objects: Vec<(Kind, Object)>,
    /// Types that the caller may not read.
    forbidden: Vec<Kind>,
    /// kubelet's own list in the first read and in the second, if kubelet may be asked.
    kubelet: Option<[Vec<Object>; 2]>,
    /// Whether kubelet reports that it is healthy.
    is_well: bool,
    /// The answer to a dry run of the removal of a finalizer, if it may be made.
    removal: Option<Answer>,
    /// The answers to dry runs of kubelet's last requests, if these may be made.
    last: Option<fn(Last) -> Answer>,
    /// The types that discovery names.
    types: Vec<Kind>,
    /// Types whose list fails, each with the API server's message.
    unreadable: Vec<(Kind, String)>,
}

impl World {
    pub(super) fn with(mut self, kind: Kind, object: Value) -> Self {
        self.objects.push((kind, serde_json::from_value(object).unwrap()));
        self
    }

    /// The same without the objects of a name.
    pub(super) fn without(mut self, name: &str) -> Self {
        self.objects.retain(|(_, object)| object.metadata.name != name);
        self
    }

    pub(super) fn without_right(mut self, kind: Kind) -> Self {
        self.forbidden.push(kind);
        self
    }

    /// A cluster whose API server names these types.
    pub(super) fn with_types(mut self, types: &[Kind]) -> Self {
        self.types.extend_from_slice(types);
        self
    }

    /// A cluster in which the list of a type fails.
    pub(super) fn with_unreadable(mut self, kind: Kind, message: &str) -> Self {
        self.unreadable.push((kind, message.into()));
        self
    }

    /// A cluster whose kubelet may be asked.
    pub(super) fn with_kubelet(mut self, lists: [Value; 2], is_well: bool) -> Self {
        self.kubelet = Some(lists.map(|list| serde_json::from_value(list).unwrap()));
        self.is_well = is_well;
        self
    }

    /// A cluster in which the removal of a finalizer may be tried in a dry run.
    pub(super) fn with_removal(mut self, answer: Answer) -> Self {
        self.removal = Some(answer);
        self
    }

    /// A cluster in which kubelet's last requests may be tried in a dry run.
    pub(super) fn with_last_requests(mut self, answer: fn(Last) -> Answer) -> Self {
        self.last = Some(answer);
        self
    }

    fn all(&self, kind: &Kind, namespace: Option<&str>) -> impl Iterator<Item = &Object> {
        let in_namespace = move |object: &&Object| {
            namespace.is_none() || object.metadata.namespace.as_deref() == namespace
        };
        let of_kind = self.objects.iter().filter(move |(it, _)| it == kind).map(|(_, it)| it);
        of_kind.filter(in_namespace)
    }

    fn read(&self, question: &Question) -> Answer {
        let kind = match question {
            Question::Object(key) => &key.kind,
            Question::Deleted { kind, .. }
            | Question::Owned { kind, .. }
            | Question::All { kind, .. } => kind,
            Question::Types(group) => {
                let types: Vec<Kind> =
                    self.types.iter().filter(|it| it.group == *group).cloned().collect();
                let is_served = !types.is_empty();
                return if is_served { Answer::Types(types.into()) } else { Answer::Missing };
            }
            Question::Groups => {
                let groups: BTreeSet<String> =
                    self.types.iter().map(|kind| kind.group.to_string()).collect();
                return Answer::Groups(groups.into_iter().collect());
            }
            Question::Kubelet { about, .. } => return self.kubelet(*about),
            Question::Removal(_) => {
                return self.removal.clone().unwrap_or(Answer::Unread(Why::Forbidden));
            }
            Question::LastRequest(request) => {
                let answer = self.last.map(|answer| answer(request.what));
                return answer.unwrap_or(Answer::Unread(Why::Forbidden));
            }
        };
        if self.forbidden.contains(kind) {
            return Answer::Unread(Why::Forbidden);
        }
        if let Some((_, message)) = self.unreadable.iter().find(|(it, _)| it == kind) {
            return Answer::Unread(Why::Failed(message.clone()));
        }
        match question {
            Question::Object(key) => {
                let found = self
                    .all(kind, key.namespace.as_deref())
                    .find(|it| it.metadata.name == key.name);
                found.map_or(Answer::Missing, |it| Answer::Object(Arc::new(it.clone())))
            }
            Question::Deleted { namespace, .. } => {
                let all = self.all(kind, namespace.as_deref());
                let deleted = all.filter(|it| it.metadata.deletion_timestamp.is_some());
                let deleted = deleted.map(|it| it.metadata.clone()).collect();
                Answer::Survey(Arc::new(Survey { deleted, ..Survey::default() }))
            }
            Question::Owned { namespace, .. } => {
                Answer::Objects(self.all(kind, namespace.as_deref()).cloned().collect())
            }
            Question::All { namespace, labels, fields, .. } => {
                let is_selected = |it: &&Object| {
                    fields.as_deref().is_none_or(|fields| {
                        let (field, value) = fields.split_once('=').unwrap();
                        assert_eq!(field, "spec.driver");
                        it.spec.driver == value
                    })
                };
                let has = |it: &&Object| {
                    labels.as_deref().is_none_or(|labels| {
                        let (key, value) = labels.split_once('=').unwrap();
                        it.metadata.labels.get(key).is_some_and(|it| it == value)
                    })
                };
                let all = self.all(kind, namespace.as_deref()).filter(has).filter(is_selected);
                Answer::Objects(all.cloned().collect())
            }
            _ => Answer::Missing,
        }
    }

    fn kubelet(&self, about: Kubelet) -> Answer {
        let unread = || Answer::Unread(Why::Forbidden);
        let list = |nth: usize| {
            let lists = self.kubelet.as_ref();
            lists.map_or_else(unread, |lists| Answer::Objects(lists[nth].clone().into()))
        };
        match about {
            Kubelet::Pods => list(0),
            Kubelet::PodsAgain => list(1),
            Kubelet::Health if self.is_well => Answer::Well,
            Kubelet::Health => unread(),
        }
    }

    /// The answer about an object, once no more facts are wanted.
    pub(super) fn judged(&self, key: &Key) -> Judged {
        let mut facts = Facts::new(NOW.parse().unwrap());
        facts.asks_kubelets = self.kubelet.is_some();
        facts.tries_removals = self.removal.is_some() || self.last.is_some();
        for _ in 0..20 {
            let judged = answer(key, &facts);
            let wanted = facts.wanted();
            if wanted.is_empty() {
                return judged;
            }
            for question in wanted {
                let answer = self.read(&question);
                facts.answered(question, answer);
            }
        }
        panic!("it always wants more: {:?}", facts.wanted());
    }

    pub(super) fn case(&self, key: &Key) -> Case {
        self.judged(key).case
    }
}

/// Metadata of an object that is being deleted.
pub(super) fn deleted(namespace: Option<&str>, name: &str, more: Value) -> Value {
    let mut meta = json!({"name": name, "namespace": namespace, "uid": format!("uid-of-{name}"), "resourceVersion": "77",
        "deletionTimestamp": LONG_AGO, "deletionGracePeriodSeconds": 0});
    meta.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    meta
}

/// Metadata of an object that is not being deleted.
pub(super) fn living(namespace: Option<&str>, name: &str) -> Value {
    json!({"name": name, "namespace": namespace, "uid": format!("uid-of-{name}"), "resourceVersion": "78"})
}

pub(super) fn pod(name: &str) -> Key {
    Key::of(Kind::POD, "shop", name)
}

/// A pod on the node n1 whose grace period of 30 s has passed.
pub(super) fn overdue_pod(name: &str, more: Value) -> Value {
    let mut more = more;
    more["deletionGracePeriodSeconds"] = json!(30);
    json!({"metadata": deleted(Some("shop"), name, more), "spec": {"nodeName": "n1"}})
}

pub(super) fn lease(namespace: &str, name: &str, holder: &str, renewed: &str) -> Value {
    json!({"metadata": living(Some(namespace), name),
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 40, "renewTime": renewed}})
}

pub(super) fn ids(case: &Case) -> Vec<&'static str> {
    case.findings.iter().map(|found| found.id.as_str()).collect()
}

/// The one finding of this id, which must have this certainty.
#[track_caller]
pub(super) fn the(case: &Case, id: &str, certainty: Certainty) -> Found {
    let found: Vec<&Found> = case.findings.iter().filter(|found| found.id.as_str() == id).collect();
    let [found] = found[..] else { panic!("{id} is not the one of {:?}", ids(case)) };
    assert_eq!(found.certainty, certainty, "{id}: not known: {:?}", found.not_known);
    found.clone()
}

pub(super) fn facts(found: &Found) -> String {
    found.evidence.iter().map(|it| it.fact.as_str()).collect::<Vec<_>>().join("\n")
}

pub(super) fn commands(found: &Found) -> Vec<&str> {
    found.remedies.iter().filter_map(|it| it.command.as_deref()).collect()
}
