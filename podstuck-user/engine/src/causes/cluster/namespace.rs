//! Namespaces: the namespace controller empties them first, and reports obstacles in their conditions.

use super::{
    case::{Case, Step, api, draft},
    control_plane, finalizer, remedy, unreadable,
};
use crate::{
    cause::{Cause, Kind, Origin, TriedWith, like, seen, way},
    ids,
    model::{
        chain::Who,
        cluster::{self, Condition, Facts, Key, Known, Object},
        diagnosis::Stage,
        path::safe,
    },
    verdict::Draft,
};

/// Objects of a type named in the finding.
const NAMED: usize = 5;

/// Objects remain in the namespace.
pub(crate) static CONTENT_REMAINS: Cause = Cause {
    id: ids::NAMESPACE_CONTENT_REMAINS,
    title: "objects in the namespace are being deleted, but remain",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "The namespace controller has requested the deletion of all objects in the \
        namespace, and some remain, mostly because of their finalizers or their node. What keeps \
        these objects keeps the namespace. Removing the namespace's own finalizer instead leaves \
        them in the store, where no request reaches them.",
    confirmed_by: &[seen(
        "the namespace's condition NamespaceContentRemaining or NamespaceFinalizersRemaining is True",
        &[Origin::Api],
    )],
    log: None,
    look_alikes: &[like(
        ids::NAMESPACE_API_UNAVAILABLE,
        "the controller could list all types, and has counted what remains",
    )],
    ways_out: &[way("release what keeps the objects in the namespace", "")],
    field: &["kubernetes#60807", "kubernetes#119662"],
    tried: &[TriedWith::ApiServer, TriedWith::Objects],
    source: &["kubernetes pkg/controller/namespace/deletion/namespaced_resources_deleter.go"],
};

/// The types in the namespace cannot all be listed.
pub(crate) static API_UNAVAILABLE: Cause = Cause {
    id: ids::NAMESPACE_API_UNAVAILABLE,
    title: "the namespace controller cannot list all types, because an aggregated API is not available",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "The namespace controller lists the objects of each type before it removes a \
        namespace. The discovery of a group fails, because its APIService is served by a service \
        that does not answer: every deleted namespace stays.",
    confirmed_by: &[
        seen("the namespace's condition NamespaceDeletionDiscoveryFailure is True", &[Origin::Api]),
        seen("an APIService has the condition Available with the status False", &[Origin::Api]),
    ],
    log: None,
    look_alikes: &[like(
        ids::NAMESPACE_CONTENT_REMAINS,
        "the discovery of types fails, before anything could be counted",
    )],
    ways_out: &[
        way("start the service of the APIService", ""),
        way(
            "delete the APIService, if its service was removed for good",
            "its types are no longer served",
        ),
    ],
    field: &["kubernetes#60807", "kubernetes#83332"],
    tried: &[TriedWith::Objects],
    source: &["kubernetes pkg/controller/namespace/deletion/namespaced_resources_deleter.go"],
};

/// Objects in the namespace cannot be converted.
pub(crate) static CONVERSION_FAILS: Cause = Cause {
    id: ids::NAMESPACE_CONVERSION_FAILS,
    title: "the namespace controller cannot delete custom objects, because the conversion webhook of their type fails",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "Custom objects in the namespace are stored in another version than is served, and the conversion webhook of \
        their CustomResourceDefinition does not answer. They can be neither listed nor deleted.",
    confirmed_by: &[seen(
        "the namespace's condition NamespaceDeletionContentFailure is True and names a conversion webhook",
        &[Origin::Api],
    )],
    log: None,
    look_alikes: &[like(
        ids::STORED_OBJECT_UNREADABLE,
        "the message of the condition names a conversion webhook",
    )],
    ways_out: &[way("start the conversion webhook of the type", "")],
    field: &["kubernetes#119662"],
    tried: &[TriedWith::Objects],
    source: &[
        "kubernetes staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go",
    ],
};

fn holds<'a>(namespace: &'a Object, kind: &str) -> Option<&'a Condition> {
    namespace.condition(kind).filter(|condition| condition.status == "True")
}

pub(super) fn judge(case: &mut Case, namespace: &Object, facts: &Facts) {
    case.step = Some(Step::Content);
    if let Some(draft) = control_plane::judge(facts) {
        case.found(draft, facts.now);
    }
    let discovery = holds(namespace, "NamespaceDeletionDiscoveryFailure");
    if let Some(condition) = discovery {
        let draft = unavailable(condition, facts);
        case.found(draft, facts.now);
    }
    let content = holds(namespace, "NamespaceDeletionContentFailure");
    if let Some(condition) = content.filter(|it| it.message.contains("conversion webhook")) {
        let mut draft = draft(&CONVERSION_FAILS);
        draft.held_by(Who::object("a conversion webhook").and(" that does not answer"));
        draft.rule_out(
            ids::STORED_OBJECT_UNREADABLE,
            "the message of the condition names a conversion webhook",
        );
        draft.fact(words(condition), api(facts.now));
        draft.advice("start the conversion webhook that the message names", "none");
        case.found(draft, facts.now);
    }
    if let Some(condition) = content {
        unreadable::judge(case, condition, facts);
    }
    let remaining = holds(namespace, "NamespaceContentRemaining");
    let finalizers = holds(namespace, "NamespaceFinalizersRemaining");
    if remaining.is_some() || finalizers.is_some() {
        let draft = remains(case, remaining, finalizers, discovery, facts);
        case.found(draft, facts.now);
    }
    if !namespace.metadata.finalizers.is_empty() {
        let empty = case.findings.is_empty();
        finalizer::judge(case, namespace, facts, |_, _| None);
        if !empty {
            case.step = Some(Step::Content);
        }
    }
}

pub(super) fn words(condition: &Condition) -> String {
    let at = condition.last_transition_time;
    let since = at.map(|at| format!(" since {at:.0}")).unwrap_or_default();
    let message = safe(condition.message.as_bytes()).into_owned();
    format!("its condition {} is True{since}: {message}", safe(condition.kind.as_bytes()))
}

fn unavailable(condition: &Condition, facts: &Facts) -> Draft {
    let mut draft = draft(&API_UNAVAILABLE);
    draft.fact(words(condition), api(facts.now));
    draft.rule_out(
        ids::NAMESPACE_CONTENT_REMAINS,
        "the discovery of types fails, before anything is counted",
    );
    let services = facts.all(&cluster::Kind::API_SERVICE, None, None);
    let down = |it: &&Object| it.condition("Available").is_some_and(|it| it.status == "False");
    let Known::Is(services) = services else {
        draft.lacks("which APIService is not available");
        draft
            .advice("find the APIService that is not available: `kubectl get apiservices`", "none");
        return draft;
    };
    for service in services.iter().filter(down) {
        let Some(available) = service.condition("Available") else { continue };
        let name = safe(service.metadata.name.as_bytes()).into_owned();
        let who = Who::object(format!("the APIService {name}"));
        draft.held_by(who.and(", which is not available"));
        let why = format!("{}: {}", available.reason, available.message);
        draft.fact(
            format!("the APIService {name} is not available: {}", safe(why.as_bytes())),
            api(facts.now),
        );
        if let Some(served) = &service.spec.service {
            let place = format!("{}/{}", served.namespace, served.name);
            draft.advice(
                format!("start the pods of the service {}", safe(place.as_bytes())),
                "none",
            );
        }
        let does = format!("delete the APIService {name}, if its service was removed for good");
        let key = Key::global(cluster::Kind::API_SERVICE, &service.metadata.name);
        let risk = "its types are no longer served; the component that installed it may create \
            it again";
        draft.remedies.extend(remedy::delete(does, &key, &service.metadata, false, risk));
    }
    if draft.held_by.is_none() {
        draft.lacks("which APIService is not available");
    }
    draft
}

/// Plural and group of each type in a message such as `Some resources are remaining: pods. has 1 resource instances,
/// widgets.example.com has 2 resource instances`.
fn types(message: &str) -> Vec<(String, String)> {
    let (_, list) = message.split_once(": ").unwrap_or_default();
    let each = list.split(", ").filter_map(|part| {
        let (name, _) = part.split_once(" has ")?;
        let (plural, group) = name.split_once('.')?;
        Some((plural.to_owned(), group.to_owned()))
    });
    each.collect()
}

fn remains(
    case: &mut Case,
    remaining: Option<&Condition>,
    finalizers: Option<&Condition>,
    discovery: Option<&Condition>,
    facts: &Facts,
) -> Draft {
    let mut draft = draft(&CONTENT_REMAINS);
    for condition in [remaining, finalizers].into_iter().flatten() {
        draft.fact(words(condition), api(facts.now));
    }
    match discovery {
        None => draft.rule_out(
            ids::NAMESPACE_API_UNAVAILABLE,
            "the namespace's condition NamespaceDeletionDiscoveryFailure is not True",
        ),
        Some(_) => draft.suffices_beside(ids::NAMESPACE_API_UNAVAILABLE),
    }
    let mut left: Vec<Key> = Vec::new();
    for (plural, group) in remaining.map(|it| types(&it.message)).unwrap_or_default() {
        let mut known =
            cluster::Kind::ALL.iter().filter(|it| it.plural == plural && it.group == group);
        // Of several versions, the API server may serve another one.
        let kind = match (known.next(), known.next()) {
            (Some(kind), None) => Some(kind.clone()),
            _ => facts
                .types(&group)
                .is()
                .and_then(|types| types.iter().find(|it| it.plural == plural).cloned()),
        };
        let Some(kind) = kind else { continue };
        let Known::Is(survey) = facts.deleted(&kind, Some(&case.key.name), None) else { continue };
        for meta in survey.deleted.iter().take(NAMED) {
            left.push(Key::of(kind.clone(), &case.key.name, &meta.name));
        }
        let more = survey.deleted.len().saturating_sub(NAMED);
        if more > 0 {
            draft.fact(format!("{more} more of {plural} are being deleted"), api(facts.now));
        }
    }
    for key in &left {
        draft
            .fact(format!("{} is being deleted", safe(key.to_string().as_bytes())), api(facts.now));
    }
    if let Some(first) = left.first() {
        draft.held_by(Who::object(first.to_string()));
        draft.remedies.extend(remedy::ask(first));
    } else {
        draft.held_by(Who::object("the objects in the namespace"));
        draft.doubt(
            "whether anything is left: no object of the types that the condition names was found",
        );
        draft.advice(
            "list the remaining objects of the types that the condition names, and find what \
            keeps them",
            "none",
        );
    }
    case.waits_for.extend(left);
    draft
}

#[cfg(test)]
mod tests {
    use super::types;

    #[test]
    fn a_condition_names_types_by_resource_and_group() {
        let message = "Some resources are remaining: pods. has 1 resource instances, widgets.example.com has 2 resource instances";
        let of = |plural: &str, group: &str| (plural.to_owned(), group.to_owned());
        assert_eq!(types(message), [of("pods", ""), of("widgets", "example.com")]);
        assert!(types("All content successfully removed").is_empty());
    }
}
