//! Stored objects that the API server cannot read: it can neither list nor delete the objects of their type.

use super::case::{Case, api, draft};
use crate::{
    cause::{Cause, Kind, Origin, TriedWith, like, seen, way},
    ids,
    model::{
        chain::Who,
        cluster::{self, Condition, Facts},
        diagnosis::Stage,
        path::safe,
    },
};

/// Length of an API server's message in an answer, in characters.
const SHOWN: usize = 300;

/// A type in the namespace cannot be listed.
pub(crate) static UNREADABLE: Cause = Cause {
    id: ids::STORED_OBJECT_UNREADABLE,
    title: "the API server cannot read a stored object, and so can neither list nor delete the objects of its type",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "The API server reads an object from its store before it lists or deletes it. One object of the type is \
        encrypted with a key that the API server does not have, damaged, or of a version that it no longer knows. Every list \
        that includes this object fails: controllers miss the whole type, and a namespace that contains the object stays.",
    confirmed_by: &[
        seen(
            "the namespace's condition NamespaceDeletionContentFailure is True, and has the message of a failed list",
            &[Origin::Api],
        ),
        seen("the list of a type in the namespace fails with the same message", &[Origin::Api]),
    ],
    log: None,
    look_alikes: &[like(
        ids::NAMESPACE_CONVERSION_FAILS,
        "the list fails with another message than that of a conversion webhook",
    )],
    ways_out: &[
        way("give kube-apiserver the encryption key again that the object was written with", ""),
        way(
            "restore the object in etcd from a backup, or delete its key there",
            "its finalizers are skipped: what its controller made outside the cluster stays",
        ),
        way(
            "since Kubernetes 1.32, with the feature gate AllowUnsafeMalformedObjectDeletion, delete the object with \
             ignoreStoreReadErrorWithClusterBreakingPotential",
            "its finalizers are skipped: what its controller made outside the cluster stays",
        ),
    ],
    field: &["kubernetes#66844", "kubernetes#76010", "trousseau#91", "k3s#10058"],
    tried: &[TriedWith::ApiServer, TriedWith::Objects],
    source: &[
        "kubernetes staging/src/k8s.io/apiserver/pkg/storage/etcd3/store.go, List",
        "kubernetes pkg/controller/namespace/deletion/namespaced_resources_deleter.go",
    ],
};

/// Whether the message is known to come from elsewhere than the store.
fn is_of_admission(message: &str) -> bool {
    ["conversion webhook", "failed calling webhook", "denied the request", "is forbidden"]
        .iter()
        .any(|words| message.contains(words))
}

/// The namespaced types that the API server serves.
fn types(facts: &Facts) -> Vec<cluster::Kind> {
    let groups = facts.groups().is().unwrap_or_default();
    // Each is asked for before the first is used, so that they are read at a time.
    let known: Vec<_> = groups.iter().map(|group| facts.types(group)).collect();
    let all = known.into_iter().filter_map(cluster::Known::is);
    all.flat_map(|types| types.to_vec())
        .filter(|kind| kind.namespaced && kind.name != "Event")
        .collect()
}

/// Adds a finding for each type whose list fails with the message of the namespace's condition.
pub(super) fn judge(case: &mut Case, condition: &Condition, facts: &Facts) {
    if is_of_admission(&condition.message) {
        return;
    }
    let namespace = case.key.name.clone();
    let types = types(facts);
    let failures = types.iter().map(|kind| (kind, facts.failure_of_list(kind, Some(&namespace))));
    let failures: Vec<_> = failures.collect();
    for (kind, message) in failures {
        let Some(message) = message.filter(|it| !it.is_empty() && condition.message.contains(*it))
        else {
            continue;
        };
        let plural = safe(kind.for_rights().as_bytes()).into_owned();
        let short: String = message.chars().take(SHOWN).collect();
        let short = safe(short.as_bytes()).into_owned();
        let mut draft = draft(&UNREADABLE);
        let object = Who::object(format!("an object of the type {plural}"));
        draft.held_by(object.and(" that the API server cannot read"));
        draft.fact(super::namespace::words(condition), api(facts.now));
        draft.fact(
            format!("the list of {plural} in {namespace} fails with the same message: {short}"),
            api(facts.now),
        );
        draft.rule_out(
            ids::NAMESPACE_CONVERSION_FAILS,
            "the message is not that of a conversion webhook",
        );
        if message.contains("unable to transform key") {
            draft.advice(
                "give kube-apiserver the key again that the object was encrypted with (--encryption-provider-config): the \
                 message names the object",
                "none",
            );
        } else {
            draft.advice(
                format!(
                    "find the object on a control plane node: `etcdctl get --prefix --keys-only /registry/ | grep /{}/{}/` lists \
                     the stored ones, and `kubectl get` fails for it alone",
                    safe(kind.plural.as_bytes()),
                    safe(namespace.as_bytes())
                ),
                "none",
            );
        }
        draft.advice(
            "restore the object in etcd from a backup, or delete its key there; since Kubernetes 1.32, with the feature gate \
             AllowUnsafeMalformedObjectDeletion, a deletion with ignoreStoreReadErrorWithClusterBreakingPotential does that",
            "its finalizers are skipped: what its controller made outside the cluster stays",
        );
        case.found(draft, facts.now);
    }
}
