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

/// Pods that cannot start, because a volume of the pod is still attached to its node.
fn users(namespace: &str, pod: &Object, facts: &Facts) -> Vec<String> {
    let node = &pod.spec.node_name;
    let mut found = Vec::new();
    let claims = pod.spec.volumes.iter().filter_map(|it| it.persistent_volume_claim.as_ref());
    for name in claims.map(|claim| &claim.claim_name) {
        let Some(claim) = facts.object(&Key::of(Kind::CLAIM, namespace, name)).is() else {
            continue;
        };
        let (volume, modes) = (&claim.spec.volume_name, &claim.spec.access_modes);
        let is_of_one_node =
            !modes.is_empty() && modes.iter().all(|mode| ONE_NODE.contains(&mode.as_str()));
        if volume.is_empty() || !is_of_one_node {
            continue;
        }
        let attachments = facts.all(&Kind::ATTACHMENT, None, None).is();
        let pods = facts.all(&Kind::POD, Some(namespace), None).is();
        let Some((attachments, pods)) = attachments.zip(pods) else { continue };
        let attached = attachments.iter().find(|it| {
            let source = it.spec.source.persistent_volume_name.as_ref();
            it.status.attached && it.spec.node_name == *node && source == Some(volume)
        });
        let Some(attached) = attached.map(|it| &it.metadata.name) else { continue };
        let waits = |other: &&Object| {
            let is_new =
                other.status.phase == "Pending" && other.metadata.deletion_timestamp.is_none();
            is_new && other.spec.node_name != *node && other.uses_claim(name)
        };
        found.extend(pods.iter().filter(waits).take(NAMED).map(|other| {
            format!(
                "Pod {namespace}/{} on {} waits for the volume {volume} of the claim {name}, which \
                 VolumeAttachment {attached} attaches to {node}",
                other.metadata.name, other.spec.node_name
            )
        }));
    }
    found
}
