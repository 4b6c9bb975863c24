//! What waits for a pod whose node does not report: its owner, which creates no other pod meanwhile, and other pods of
//! its volumes.

use super::case::api;
use crate::{
    model::{
        cluster::{Facts, Key, Kind, Object, Owner},
        path::safe,
    },
    verdict::Draft,
};

/// Waiting pods named for each volume.
const NAMED: usize = 3;
/// Access modes of a volume that one node at a time attaches.
const ONE_NODE: [&str; 2] = ["ReadWriteOnce", "ReadWriteOncePod"];

/// Adds what waits for the pod.
pub(super) fn add(draft: &mut Draft, pod: &Object, facts: &Facts) {
    let Some(namespace) = pod.metadata.namespace.as_deref() else { return };
    for fact in owner(namespace, pod, facts).into_iter().chain(users(namespace, pod, facts)) {
        draft.fact(safe(fact.as_bytes()), api(facts.now));
    }
}

fn owner(namespace: &str, pod: &Object, facts: &Facts) -> Option<String> {
    let controller = pod.controller()?;
    let name = &controller.name;
    if controller.kind == "StatefulSet" {
        let pod = &pod.metadata.name;
        return Some(format!(
            "StatefulSet {namespace}/{name} creates no other pod {pod} before this one is gone"
        ));
    }
    let of = |kind, owner: &Owner| {
        let key = Key::of(kind, namespace, &owner.name);
        let found = facts.object(&key).is().filter(|it| it.metadata.uid == owner.uid)?;
        Some((key, found))
    };
    let (_, set) = of(Kind::REPLICA_SET, controller)?;
    let (key, deployment) =
        of(Kind::DEPLOYMENT, set.controller().filter(|it| it.kind == "Deployment")?)?;
    let spec = &deployment.spec;
    // A ReplicaSet that is not scaled to 0 has replaced the pod already. The Deployment waits only for the pods of
    // those that its rollout has replaced (`rolloutRecreate`).
    let waits = set.spec.replicas == Some(0) && spec.replicas != Some(0);
    (waits && spec.strategy.kind == "Recreate").then(|| {
        format!("{key} has the strategy Recreate: it creates no new pod before this one is gone")
    })
}

/// The volume of a claim, if one node at a time attaches it.
fn volume_of_one_node(namespace: &str, claim: &str, facts: &Facts) -> Option<String> {
    let claim = facts.object(&Key::of(Kind::CLAIM, namespace, claim)).is()?;
    let (volume, modes) = (&claim.spec.volume_name, &claim.spec.access_modes);
    let is_of_one_node =
        !modes.is_empty() && modes.iter().all(|mode| ONE_NODE.contains(&mode.as_str()));
    (is_of_one_node && !volume.is_empty()).then(|| volume.clone())
}

/// The names of the claims of a pod.
fn claims(pod: &Object) -> impl Iterator<Item = &str> {
    let claims = pod.spec.volumes.iter().filter_map(|it| it.persistent_volume_claim.as_ref());
    claims.map(|claim| claim.claim_name.as_str())
}

/// Whether a pod with a node has not started, and is not being deleted.
fn is_new(pod: &Object) -> bool {
    pod.status.phase == "Pending" && pod.metadata.deletion_timestamp.is_none()
}

/// Pods that cannot start on another node, because the volume of a claim is attached to this one.
pub(super) fn of_claim<'a>(
    pods: &'a [Object],
    claim: &'a str,
    node: &'a str,
) -> impl Iterator<Item = &'a Object> {
    let waits =
        move |pod: &&Object| is_new(pod) && pod.spec.node_name != node && pod.uses_claim(claim);
    pods.iter().filter(waits).take(NAMED)
}

/// Pods that cannot start, because a volume of the pod is still attached to its node.
fn users(namespace: &str, pod: &Object, facts: &Facts) -> Vec<String> {
    let node = &pod.spec.node_name;
    let mut found = Vec::new();
    for name in claims(pod) {
        let Some(volume) = volume_of_one_node(namespace, name, facts) else { continue };
        let attachments = facts.all(&Kind::ATTACHMENT, None, None).is();
        let pods = facts.all(&Kind::POD, Some(namespace), None).is();
        let Some((attachments, pods)) = attachments.zip(pods) else { continue };
        let attached = attachments.iter().find(|it| {
            let source = it.spec.source.persistent_volume_name.as_ref();
            it.status.attached && it.spec.node_name == *node && source == Some(&volume)
        });
        let Some(attached) = attached.map(|it| &it.metadata.name) else { continue };
        found.extend(of_claim(&pods, name, node).map(|other| {
            format!(
                "Pod {namespace}/{} on {} waits for the volume {volume} of the claim {name}, which \
                 VolumeAttachment {attached} attaches to {node}",
                other.metadata.name, other.spec.node_name
            )
        }));
    }
    found
}

/// Of a pod that has not started: adds which of its volumes is attached to another node. Returns the pods there that are
/// being deleted and use it.
pub(super) fn elsewhere(draft: &mut Draft, pod: &Object, facts: &Facts) -> Vec<Key> {
    let node = &pod.spec.node_name;
    let mut users = Vec::new();
    let Some(namespace) = pod.metadata.namespace.as_deref() else { return users };
    if node.is_empty() || !is_new(pod) {
        return users;
    }
    for claim in claims(pod) {
        let Some(volume) = volume_of_one_node(namespace, claim, facts) else { continue };
        let attachments = facts.all(&Kind::ATTACHMENT, None, None).is().unwrap_or_default();
        let of_volume = attachments.iter().filter(|it| {
            it.status.attached
                && it.spec.node_name != *node
                && it.spec.source.persistent_volume_name.as_ref() == Some(&volume)
        });
        for attached in of_volume {
            let (name, other) = (&attached.metadata.name, &attached.spec.node_name);
            let fact = format!(
                "VolumeAttachment {name} attaches the volume {volume} of its claim {claim} to {other}: it is not attached to \
                 {node} meanwhile"
            );
            draft.fact(safe(fact.as_bytes()), api(facts.now));
            let pods = facts.all(&Kind::POD, Some(namespace), None).is().unwrap_or_default();
            let of_node = |it: &&Object| {
                it.spec.node_name == *other
                    && it.metadata.deletion_timestamp.is_some()
                    && it.uses_claim(claim)
            };
            users.extend(
                pods.iter()
                    .filter(of_node)
                    .map(|it| Key::of(Kind::POD, namespace, &it.metadata.name)),
            );
        }
    }
    users
}
