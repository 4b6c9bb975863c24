//! Claims, volumes and attachments: a claim stays while a pod uses it, a volume while a claim or attachment does.

use super::{
    attachment,
    case::{Case, api, draft},
    finalizer, remedy,
};
use crate::{
    cause::{Cause, Kind, Origin, TriedWith, like, seen, way},
    ids,
    model::{
        chain::Who,
        cluster::{self, Facts, Key, Known, Object},
        diagnosis::Stage,
        path::safe,
    },
    verdict::Draft,
};

/// Users named in the finding.
const NAMED: usize = 5;
const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
const ATTACHER: &str = "external-attacher/";

/// A pod uses the claim.
pub(crate) static CLAIM_IN_USE: Cause = Cause {
    id: ids::CLAIM_IN_USE,
    title: "the claim stays until the pods that name it, and that have a node, are gone",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "The protection of claims removes its finalizer kubernetes.io/pvc-protection when \
        no pod that has a node names the claim any more. A pod counts whether it runs or has \
        ended. That is not a fault: the pod would lose its data.",
    confirmed_by: &[
        seen("the deleted claim has the finalizer kubernetes.io/pvc-protection", &[Origin::Api]),
        seen("a pod with a spec.nodeName names the claim in its volumes", &[Origin::Api]),
    ],
    log: None,
    look_alikes: &[like(ids::OBJECT_FINALIZER, "a pod that has a node names the claim")],
    ways_out: &[
        way("release what keeps the pod, where it is being deleted", ""),
        way(
            "delete the pod",
            "its containers end; its owner creates another pod, which waits without a claim",
        ),
    ],
    field: &["kubernetes#69697"],
    tried: &[TriedWith::ApiServer, TriedWith::Objects],
    source: &[
        "kubernetes pkg/controller/volume/pvcprotection/pvc_protection_controller.go, podUsesPVC",
    ],
};

/// The volume is bound to a claim.
pub(crate) static BOUND: Cause = Cause {
    id: ids::VOLUME_BOUND,
    title: "the PersistentVolume is bound to a claim, and stays until that is gone",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "The protection of volumes removes its finalizer kubernetes.io/pv-protection when the PersistentVolume is not \
        bound any more. Its claim exists: the volume goes after the claim has gone.",
    confirmed_by: &[
        seen(
            "the deleted PersistentVolume has the finalizer kubernetes.io/pv-protection",
            &[Origin::Api],
        ),
        seen(
            "its status.phase is Bound, and its claim exists with the UID of spec.claimRef",
            &[Origin::Api],
        ),
    ],
    log: None,
    look_alikes: &[],
    ways_out: &[way(
        "delete the claim, if the volume is to go",
        "the claim's data may be deleted with it",
    )],
    field: &["kubernetes#69697"],
    tried: &[TriedWith::ApiServer, TriedWith::Objects],
    source: &[
        "kubernetes pkg/controller/volume/pvprotection/pv_protection_controller.go, isBeingUsed",
    ],
};

/// The volume is attached to a node.
pub(crate) static ATTACHED: Cause = Cause {
    id: ids::VOLUME_ATTACHED,
    title: "a VolumeAttachment of the PersistentVolume exists, and the volume stays until that is gone",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "The attacher of a CSI driver keeps the PersistentVolume by a finalizer as long as a VolumeAttachment names it. \
        What keeps the attachment keeps the volume.",
    confirmed_by: &[
        seen(
            "the deleted PersistentVolume has a finalizer external-attacher/DRIVER",
            &[Origin::Api],
        ),
        seen("a VolumeAttachment names it in spec.source", &[Origin::Api]),
    ],
    log: None,
    look_alikes: &[],
    ways_out: &[way("release what keeps the VolumeAttachment", "")],
    field: &["external-attacher#66"],
    tried: &[TriedWith::ApiServer, TriedWith::Objects],
    source: &["external-attacher pkg/controller/csi_handler.go"],
};

/// The storage refuses to detach the volume.
pub(crate) static DETACH_FAILS: Cause = Cause {
    id: ids::VOLUME_DETACH_FAILS,
    title: "the storage refuses to detach the volume from its node",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "The attacher of the CSI driver asks the storage to detach the volume, and reports \
        its error in the VolumeAttachment. The attacher retries at growing intervals. The volume \
        cannot be attached to another node meanwhile.",
    confirmed_by: &[
        seen("the VolumeAttachment is being deleted", &[Origin::Api]),
        seen("its status.detachError has a message", &[Origin::Api]),
    ],
    log: None,
    look_alikes: &[like(
        ids::ATTACHED_VOLUME_GONE,
        "the PersistentVolume of the attachment exists",
    )],
    ways_out: &[
        way("repair what the message names", ""),
        way(
            "detach the volume in the storage, then remove the attacher's finalizer",
            "a volume that is still attached may be written by two nodes",
        ),
    ],
    field: &["external-attacher#235", "kubernetes-sigs/vsphere-csi-driver#359"],
    tried: &[TriedWith::ApiServer, TriedWith::Objects],
    source: &["external-attacher pkg/controller/csi_handler.go, saveDetachError"],
};

/// The attachment's PersistentVolume is gone.
pub(crate) static ATTACHED_VOLUME_GONE: Cause = Cause {
    id: ids::ATTACHED_VOLUME_GONE,
    title: "the PersistentVolume of the attachment no longer exists, and the attacher cannot detach without it",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "The attacher reads the driver's name for the volume from the PersistentVolume. That was removed before the \
        VolumeAttachment, mostly because its finalizer was removed by hand: each attempt to detach fails.",
    confirmed_by: &[
        seen(
            "the VolumeAttachment is being deleted, and has the attacher's finalizer",
            &[Origin::Api],
        ),
        seen("the PersistentVolume that it names does not exist", &[Origin::Api]),
    ],
    log: None,
    look_alikes: &[like(
        ids::VOLUME_DETACH_FAILS,
        "the PersistentVolume does not exist, without which the attacher asks nothing of the \
        storage",
    )],
    ways_out: &[way(
        "detach the volume in the storage, then remove the attacher's finalizer",
        "a volume that is still attached may be written by two nodes",
    )],
    field: &["external-attacher#235", "external-attacher#215", "aws-ebs-csi-driver#833"],
    tried: &[TriedWith::ApiServer, TriedWith::Objects],
    source: &["external-attacher pkg/controller/csi_handler.go, csiDetach"],
};

pub(super) fn judge_claim(case: &mut Case, claim: &Object, facts: &Facts) {
    finalizer::judge(case, claim, facts, |name, case| {
        (name == CLAIM_PROTECTION).then(|| in_use(case, facts)).flatten()
    });
}

fn in_use(case: &mut Case, facts: &Facts) -> Option<Draft> {
    let namespace = case.key.namespace.clone()?;
    let pods = facts.all(&cluster::Kind::POD, Some(&namespace), None).is()?;
    let mut users: Vec<&Object> =
        pods.iter().filter(|pod| pod.uses_claim(&case.key.name)).collect();
    // A pod that is being deleted comes first: it is followed.
    users.sort_by_key(|pod| (pod.metadata.deletion_timestamp.is_none(), pod.metadata.name.clone()));
    let first = *users.first()?;
    let mut draft = draft(&CLAIM_IN_USE);
    draft.held_by(Who::object(format!("Pod {namespace}/{}", first.metadata.name)));
    draft.fact(format!("the finalizer {CLAIM_PROTECTION} is set"), api(facts.now));
    draft.rule_out(ids::OBJECT_FINALIZER, "a pod that has a node names the claim");
    for pod in users.iter().take(NAMED) {
        let state = match pod.metadata.deletion_timestamp {
            Some(_) => "is being deleted".to_owned(),
            None => format!("is in the phase {}", safe(pod.status.phase.as_bytes())),
        };
        let name = safe(pod.metadata.name.as_bytes()).into_owned();
        let node = safe(pod.spec.node_name.as_bytes()).into_owned();
        draft
            .fact(format!("the pod {name} on {node} names the claim, and {state}"), api(facts.now));
    }
    if users.len() > NAMED {
        draft.fact(format!("{} more pods name it", users.len() - NAMED), api(facts.now));
    }
    let key = |pod: &Object| Key::of(cluster::Kind::POD, &namespace, &pod.metadata.name);
    if first.metadata.deletion_timestamp.is_some() {
        draft.remedies.extend(remedy::ask(&key(first)));
    }
    for pod in users.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).take(NAMED) {
        let name = &pod.metadata.name;
        let owner = pod.controller().map(|owner| {
            format!("; its {} creates another pod, which waits without a claim", owner.kind)
        });
        let risk = format!("its containers end{}", owner.unwrap_or_default());
        let does = format!("delete the pod {name}, which names the claim");
        draft.remedies.extend(remedy::delete(does, &key(pod), &pod.metadata, false, risk));
    }
    case.waits_for.extend(users.into_iter().map(key));
    Some(draft)
}

pub(super) fn judge_volume(case: &mut Case, volume: &Object, facts: &Facts) {
    finalizer::judge(case, volume, facts, |name, case| {
        if name == VOLUME_PROTECTION {
            bound(case, volume, facts)
        } else if name.starts_with(ATTACHER) {
            attached(case, name, facts)
        } else {
            None
        }
    });
}

fn bound(case: &mut Case, volume: &Object, facts: &Facts) -> Option<Draft> {
    let claim = volume.spec.claim_ref.as_ref()?;
    let key = Key::of(cluster::Kind::CLAIM, &claim.namespace, &claim.name);
    let there = facts.object(&key).is().filter(|it| it.metadata.uid == claim.uid)?;
    if volume.status.phase != "Bound" {
        return None;
    }
    let mut draft = draft(&BOUND);
    let name = safe(key.to_string().as_bytes()).into_owned();
    draft.held_by(Who::object(&name));
    draft.fact(format!("the finalizer {VOLUME_PROTECTION} is set"), api(facts.now));
    let state = if there.metadata.deletion_timestamp.is_some() {
        "is being deleted"
    } else {
        "is not being deleted"
    };
    draft.fact(
        format!("status.phase is Bound, and its claim, {name}, exists and {state}"),
        api(facts.now),
    );
    if there.metadata.deletion_timestamp.is_some() {
        draft.remedies.extend(remedy::ask(&key));
    } else {
        draft.advice(
            format!("delete {name}, if the volume is to go"),
            "the claim's data may be deleted with it",
        );
    }
    case.waits_for.push(key);
    Some(draft)
}

fn attached(case: &mut Case, finalizer: &str, facts: &Facts) -> Option<Draft> {
    let attachments = facts.all(&cluster::Kind::ATTACHMENT, None, None).is()?;
    let names =
        |it: &&Object| it.spec.source.persistent_volume_name.as_deref() == Some(&case.key.name);
    let found: Vec<&Object> = attachments.iter().filter(names).collect();
    let first = *found.first()?;
    let key = Key::global(cluster::Kind::ATTACHMENT, &first.metadata.name);
    let mut draft = draft(&ATTACHED);
    draft.held_by(Who::object(key.to_string()));
    draft.fact(format!("the finalizer {} is set", safe(finalizer.as_bytes())), api(facts.now));
    for it in &found {
        let text =
            format!("VolumeAttachment {} attaches it to {}", it.metadata.name, it.spec.node_name);
        draft.fact(safe(text.as_bytes()), api(facts.now));
    }
    draft.remedies.extend(remedy::ask(&key));
    case.waits_for.push(key);
    // One that is being deleted is a part of the chain.
    if first.metadata.deletion_timestamp.is_none() {
        attachment::judge(case, first, facts);
    }
    Some(draft)
}

pub(super) fn judge_attachment(case: &mut Case, attachment: &Object, facts: &Facts) {
    case.node = Some(attachment.spec.node_name.clone()).filter(|node| !node.is_empty());
    attachment::judge(case, attachment, facts);
    finalizer::judge(case, attachment, facts, |name, case| {
        name.starts_with(ATTACHER).then(|| detaching(case, attachment, name, facts)).flatten()
    });
}

fn detaching(case: &Case, attachment: &Object, finalizer: &str, facts: &Facts) -> Option<Draft> {
    let meta = &attachment.metadata;
    let volume = attachment.spec.source.persistent_volume_name.as_deref();
    let there = volume.map(|name| facts.object(&Key::global(cluster::Kind::VOLUME, name)));
    let error = attachment.status.detach_error.as_ref().filter(|error| !error.message.is_empty());
    let driver = safe(attachment.spec.attacher.as_bytes()).into_owned();
    let node = safe(attachment.spec.node_name.as_bytes()).into_owned();
    let is_gone = there.as_ref().is_some_and(Known::is_missing);
    let mut draft = match (is_gone, error) {
        (true, _) => draft(&ATTACHED_VOLUME_GONE),
        (false, Some(_)) => draft(&DETACH_FAILS),
        (false, None) => return None,
    };
    draft.fact(
        format!("it is being deleted, and the finalizer {} is set", safe(finalizer.as_bytes())),
        api(facts.now),
    );
    if let Some(error) = error {
        let at = error.time.map(|at| format!("at {at:.0}: ")).unwrap_or_default();
        draft.fact(
            format!("status.detachError is, {at}{}", safe(error.message.as_bytes())),
            api(facts.now),
        );
    }
    if let Some(name) = volume.filter(|_| is_gone) {
        let name = safe(name.as_bytes()).into_owned();
        let who = Who::object(format!("the PersistentVolume {name}"));
        draft.held_by(who.and(", which does not exist"));
        draft.fact(format!("the PersistentVolume {name} does not exist"), api(facts.now));
        draft.rule_out(
            ids::VOLUME_DETACH_FAILS,
            "without its PersistentVolume the attacher asks nothing of the storage",
        );
    } else {
        let refuses = format!(", which refuses to detach the volume from {node}");
        draft.held_by(Who::object(format!("the storage of {driver}")).and(&refuses));
        if matches!(there, Some(Known::Is(_)) | None) {
            draft.rule_out(ids::ATTACHED_VOLUME_GONE, "its volume exists");
        }
        draft.advice(
            "repair what the message of the driver names; the attacher retries by itself",
            "none",
        );
    }
    if facts.object(&Key::global(cluster::Kind::NODE, &attachment.spec.node_name)).is_missing() {
        draft.fact(format!("the node {node} does not exist"), api(facts.now));
    }
    let risk = format!(
        "the attacher of {driver} no longer detaches the volume from {node}: where the storage still has it attached, two nodes \
         may write it; detach it in the storage first"
    );
    draft.remedies.extend(remedy::remove_finalizer(&case.key, meta, finalizer, risk));
    Some(draft)
}
