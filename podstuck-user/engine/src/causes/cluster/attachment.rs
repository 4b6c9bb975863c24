//! A volume that stays attached because kubelet on its node has not unmounted it.

use super::{
    case::{Case, api, draft},
    kubelet, remedy, waiting,
};
use crate::{
    cause::{Cause, Kind, Origin, TriedWith, seen, way},
    ids,
    model::{
        chain::Who,
        cluster::{self, Facts, Key, Object},
        diagnosis::Stage,
        path::safe,
    },
    verdict::Draft,
};

/// kubelet on the node still uses the attached volume.
pub(crate) static IN_USE_ON_NODE: Cause = Cause {
    id: ids::VOLUME_IN_USE_ON_NODE,
    title: "kubelet on the node still uses the attached volume: it is not detached before",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "kubelet lists in the Node's status.volumesInUse each attachable volume that it has not unmounted. The \
        attach/detach controller deletes the VolumeAttachment after the volume has left that list. It waits six minutes at \
        most; newer releases wait without a limit while the node is Ready. Meanwhile a pod on another node waits with a \
        Multi-Attach error, if one node at a time may attach the volume. What keeps the volume mounted is visible on the \
        node only.",
    confirmed_by: &[
        seen(
            "the Node's status.volumesInUse has the volume of the VolumeAttachment",
            &[Origin::Api],
        ),
        seen("kubelet of that node has renewed its Lease within 40 s", &[Origin::Api]),
    ],
    log: None,
    look_alikes: &[],
    ways_out: &[
        way("release what keeps the pod that uses the volume on that node", ""),
        way("examine that node, where no pod uses the volume any more", ""),
    ],
    field: &["longhorn#5345", "vsphere-csi-driver#125", "longhorn#6804"],
    tried: &[TriedWith::ApiServer, TriedWith::Objects],
    source: &[
        "kubernetes pkg/controller/volume/attachdetach/reconciler/reconciler.go, reconcile",
        "kubernetes pkg/kubelet/nodestatus/setters.go, VolumesInUse",
    ],
};

/// Judges an attachment that is not being deleted. Where a pod runs with the volume, nothing is to be released.
pub(super) fn not_deleted(case: &mut Case, attachment: &Object, facts: &Facts) {
    case.node = Some(attachment.spec.node_name.clone()).filter(|node| !node.is_empty());
    let users = users(attachment, facts);
    if users.as_ref().is_some_and(|users| users.on_node.iter().all(|(_, is_deleted)| *is_deleted)) {
        judge(case, attachment, facts);
    }
}

/// The pods of an attached volume.
struct Users {
    /// Those on its node, each with whether it is being deleted.
    on_node: Vec<(Key, bool)>,
    /// Those on other nodes that wait for it, each with its node.
    waiting: Vec<(Key, String)>,
}

fn volume(attachment: &Object, facts: &Facts) -> Option<std::sync::Arc<Object>> {
    let name = attachment.spec.source.persistent_volume_name.as_deref()?;
    facts.object(&Key::global(cluster::Kind::VOLUME, name)).is()
}

/// The pods, if they are known.
fn users(attachment: &Object, facts: &Facts) -> Option<Users> {
    let volume = volume(attachment, facts)?;
    let claim = volume.spec.claim_ref.as_ref()?;
    let key = Key::of(cluster::Kind::CLAIM, &claim.namespace, &claim.name);
    // Pods may use another claim of that name, which has another volume.
    facts.object(&key).is().filter(|it| it.metadata.uid == claim.uid)?;
    let pods = facts.all(&cluster::Kind::POD, Some(&claim.namespace), None).is()?;
    let node = attachment.spec.node_name.as_str();
    let key = |pod: &Object| Key::of(cluster::Kind::POD, &claim.namespace, &pod.metadata.name);
    let of_node =
        pods.iter().filter(|pod| pod.spec.node_name == node && pod.uses_claim(&claim.name));
    let on_node = of_node.map(|pod| (key(pod), pod.metadata.deletion_timestamp.is_some()));
    let waiting = waiting::of_claim(&pods, &claim.name, node);
    Some(Users {
        on_node: on_node.collect(),
        waiting: waiting.map(|pod| (key(pod), pod.spec.node_name.clone())).collect(),
    })
}

/// Adds the finding, if kubelet still uses the volume of the attachment.
pub(super) fn judge(case: &mut Case, attachment: &Object, facts: &Facts) {
    let Some(csi) = volume(attachment, facts).and_then(|volume| volume.spec.csi.clone()) else {
        return;
    };
    let node = attachment.spec.node_name.as_str();
    let unique = csi.unique_name();
    let of_node = facts.object(&Key::global(cluster::Kind::NODE, node)).is();
    if !of_node.is_some_and(|of_node| of_node.status.volumes_in_use.contains(&unique)) {
        return;
    }
    let shown = safe(node.as_bytes()).into_owned();
    let mut draft = draft(&IN_USE_ON_NODE);
    draft.held_by(Who::component("kubelet", None).and(&format!(" on {shown}")));
    draft.fact(
        format!(
            "status.volumesInUse of Node {shown} has {}: kubelet there has not unmounted it",
            safe(unique.as_bytes())
        ),
        api(facts.now),
    );
    match kubelet::heard(node, facts) {
        Some(renewed) => draft
            .fact(format!("kubelet of {shown} renewed its Lease at {renewed:.0}"), api(facts.now)),
        None => draft.doubt("whether kubelet still uses it: the node does not report"),
    }
    if let Some(users) = users(attachment, facts) {
        case.waits_for.extend(add(&mut draft, users, &shown, facts));
    }
    draft.advice(
        format!(
            "examine {shown}, and leave the VolumeAttachment as it is until its kubelet has unmounted the volume: a volume \
             that is detached while it is mounted loses data"
        ),
        "none",
    );
    case.found(draft, facts.now);
}

/// Adds the pods to the finding; returns those that have to go first.
fn add(draft: &mut Draft, users: Users, node: &str, facts: &Facts) -> Vec<Key> {
    let show = |key: &Key| safe(key.to_string().as_bytes()).into_owned();
    for (pod, is_deleted) in &users.on_node {
        let state = if *is_deleted { "is being deleted" } else { "is not being deleted" };
        let fact = format!("{} on {node} uses it, and {state}", show(pod));
        draft.fact(fact, api(facts.now));
        draft.remedies.extend(is_deleted.then(|| remedy::ask(pod)).flatten());
    }
    if users.on_node.is_empty() {
        let fact = format!(
            "no pod on {node} uses its claim: the record of the pod is gone, and its volume is still mounted"
        );
        draft.fact(fact, api(facts.now));
    }
    for (pod, other) in &users.waiting {
        let other = safe(other.as_bytes()).into_owned();
        draft.fact(format!("{} on {other} waits for it", show(pod)), api(facts.now));
    }
    users.on_node.into_iter().filter(|(_, is_deleted)| *is_deleted).map(|(pod, _)| pod).collect()
}
