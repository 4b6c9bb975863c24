//! Foreground deletion: the owner waits for its dependents.

use super::{
    case::{Case, api, draft},
    remedy,
};
use crate::{
    cause::{Cause, Kind, Origin, TriedWith, seen, way},
    ids,
    model::{
        chain::Who,
        cluster::{self, Facts, Key, Known, Object},
        diagnosis::Stage,
        path::safe,
    },
    verdict::Draft,
};

/// Dependents named in the finding.
const NAMED: usize = 5;

/// Dependents still exist.
pub(crate) static DEPENDENTS: Cause = Cause {
    id: ids::FOREGROUND_DEPENDENTS,
    title: "the object is deleted in the foreground, and objects that it owns still exist",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "The object has the finalizer foregroundDeletion: the garbage collector deletes it \
        only after all objects whose ownerReferences name it with blockOwnerDeletion. One of \
        these stays: what keeps that object keeps its owner.",
    confirmed_by: &[
        seen("the deleted object has the finalizer foregroundDeletion", &[Origin::Api]),
        seen(
            "an object exists whose ownerReferences name its UID with blockOwnerDeletion",
            &[Origin::Api],
        ),
    ],
    log: None,
    look_alikes: &[],
    ways_out: &[way("release what keeps the object that it owns", "")],
    field: &["kubernetes#65569"],
    tried: &[TriedWith::ApiServer, TriedWith::Objects],
    source: &[
        "kubernetes pkg/controller/garbagecollector/garbagecollector.go, processDeletingDependentsItem",
    ],
};

/// The types of the dependents of an owner; for an unknown type, the usual ones.
fn owned_by(kind: &cluster::Kind) -> Vec<cluster::Kind> {
    use cluster::Kind;
    match &*kind.name {
        "Deployment" => vec![Kind::REPLICA_SET],
        "CronJob" => vec![Kind::JOB],
        "StatefulSet" => vec![Kind::POD, Kind::CLAIM],
        "ReplicaSet" | "DaemonSet" | "Job" | "ReplicationController" => vec![Kind::POD],
        _ => vec![Kind::POD, Kind::DEPLOYMENT, Kind::STATEFUL_SET, Kind::JOB, Kind::CLAIM],
    }
}

/// The finding; `None` if no dependent was found.
pub(super) fn judge(case: &mut Case, object: &Object, facts: &Facts) -> Option<Draft> {
    let meta = &object.metadata;
    let mut found: Vec<(Key, bool)> = Vec::new();
    for kind in owned_by(&case.key.kind) {
        let Known::Is(all) = facts.owned(&kind, case.key.namespace.as_deref()) else { continue };
        let blocks = |it: &&Object| {
            it.metadata
                .owner_references
                .iter()
                .any(|owner| owner.uid == meta.uid && owner.block_owner_deletion)
        };
        for dependent in all.iter().filter(blocks) {
            let namespace = dependent.metadata.namespace.as_deref().unwrap_or_default();
            let is_deleted = dependent.metadata.deletion_timestamp.is_some();
            found.push((Key::of(kind.clone(), namespace, &dependent.metadata.name), is_deleted));
        }
    }
    // Dependents that are being deleted are followed first.
    found.sort_by_key(|(key, is_deleted)| (!is_deleted, key.clone()));
    let (first, _) = found.first()?;
    let mut draft = draft(&DEPENDENTS);
    draft.held_by(Who::object(first.to_string()));
    draft.fact("the finalizer foregroundDeletion is set", api(facts.now));
    for (key, is_deleted) in found.iter().take(NAMED) {
        let state = if *is_deleted { "is being deleted" } else { "is not being deleted" };
        let key = key.to_string();
        draft.fact(
            format!(
                "{} has an ownerReference to it with blockOwnerDeletion, and {state}",
                safe(key.as_bytes())
            ),
            api(facts.now),
        );
    }
    if found.len() > NAMED {
        draft.fact(format!("{} more objects have one", found.len() - NAMED), api(facts.now));
    }
    draft.remedies.extend(remedy::ask(first));
    case.waits_for.extend(found.into_iter().map(|(key, _)| key));
    Some(draft)
}
