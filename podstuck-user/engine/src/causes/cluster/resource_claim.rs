//! ResourceClaims (dynamic resource allocation): a claim stays while a consumer in its `status.reservedFor` may use its
//! devices. The ResourceClaim controller of kube-controller-manager then removes its finalizer.

use std::time::Duration;

use super::{
    case::{Case, api, draft},
    control_plane::{self, Leader},
    remedy,
};
use crate::{
    cause::{Cause, Kind, Origin, TriedWith, like, seen, way},
    ids,
    model::{
        chain::Who,
        cluster::{self, Consumer, Facts, Key, Known, Object},
        diagnosis::Stage,
        path::safe,
    },
    verdict::Draft,
};

/// The finalizer that the scheduler sets when it allocates devices.
pub(super) const PROTECTION: &str = "resource.kubernetes.io/delete-protection";
/// Consumers named in the finding.
const NAMED: usize = 5;
/// The controller reacts to the end of a consumer within seconds, and retries within a few more.
const RELEASED: Duration = Duration::from_secs(60);

/// A consumer of the claim exists.
pub(crate) static RESERVED: Cause = Cause {
    id: ids::RESOURCE_CLAIM_RESERVED,
    title: "the ResourceClaim stays until the consumers in its status.reservedFor are gone",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "The devices of an allocated ResourceClaim may be in use by the pods and other objects in its \
        status.reservedFor. The ResourceClaim controller of kube-controller-manager removes such an entry when its pod is \
        gone or has ended, and after the last one the finalizer resource.kubernetes.io/delete-protection. That is not a \
        fault: another pod would get the same devices.",
    confirmed_by: &[
        seen(
            "the deleted ResourceClaim has the finalizer resource.kubernetes.io/delete-protection",
            &[Origin::Api],
        ),
        seen(
            "status.reservedFor names an object that exists with that UID; a pod has not ended",
            &[Origin::Api],
        ),
    ],
    log: None,
    look_alikes: &[like(
        ids::RESOURCE_CLAIM_NOT_RELEASED,
        "a consumer exists that has not ended: the controller waits for it",
    )],
    ways_out: &[
        way("release what keeps the consumer, where it is being deleted", ""),
        way(
            "delete the consumer",
            "its containers end; its owner creates another pod, which waits without a claim",
        ),
    ],
    field: &["dra-driver-nvidia-gpu#725", "kubernetes#129402"],
    tried: &[TriedWith::Objects],
    source: &["kubernetes pkg/controller/resourceclaim/controller.go, syncClaim"],
};

/// No consumer of the claim exists, and the controller has not acted.
pub(crate) static NOT_RELEASED: Cause = Cause {
    id: ids::RESOURCE_CLAIM_NOT_RELEASED,
    title: "no consumer of the ResourceClaim is left, and the ResourceClaim controller has not released it",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "The ResourceClaim controller of kube-controller-manager removes entries of status.reservedFor whose pods are \
        gone or have ended, then the allocation and the finalizer resource.kubernetes.io/delete-protection. No entry is left \
        whose consumer exists, and the finalizer is still set: the controller does not run, has \
        not looked at the claim since its start, or its requests fail. An entry of a type that it does not know it keeps; \
        before Kubernetes 1.36, it then releases nothing of the claim.",
    confirmed_by: &[
        seen(
            "the deleted ResourceClaim has the finalizer resource.kubernetes.io/delete-protection",
            &[Origin::Api],
        ),
        seen(
            "status.reservedFor is empty, or each object that it names does not exist with that UID or is a pod that has ended",
            &[Origin::Api],
        ),
    ],
    log: None,
    look_alikes: &[
        like(
            ids::RESOURCE_CLAIM_RESERVED,
            "each consumer is gone, or is a pod that has ended: the controller has nothing to wait for",
        ),
        like(
            ids::CONTROL_PLANE_WITHOUT_LEADER,
            "kube-controller-manager renews its Lease: its other controllers run",
        ),
    ],
    ways_out: &[
        way(
            "read the log of kube-controller-manager: it names the claim and the request that fails",
            "",
        ),
        way(
            "remove the finalizer from the ResourceClaim",
            "its devices are allocated to other pods, while a container or a driver may still use them",
        ),
    ],
    field: &["kubernetes#132334", "kubernetes#136406"],
    tried: &[TriedWith::Objects],
    source: &["kubernetes pkg/controller/resourceclaim/controller.go, syncClaim and isPodDone"],
};

/// A consumer in `status.reservedFor`, as the API server has it.
struct Reserved {
    /// Its key; `None` if its type is not known.
    key: Option<Key>,
    /// Such as `Pod shop/train-0`. Safe to show.
    shown: String,
    state: State,
}

enum State {
    /// It exists and may use the claim; a word about it.
    Holds(&'static str),
    /// It no longer needs the claim; why.
    Over(&'static str),
    /// It was not read.
    NotKnown,
}

/// The state of a consumer, by the controller's rule.
fn consumer(of: &Consumer, namespace: &str, facts: &Facts) -> Reserved {
    let is_pod = of.api_group.is_empty() && of.resource == "pods";
    let kind = if is_pod {
        Known::Is(cluster::Kind::POD)
    } else {
        match facts.types(&of.api_group) {
            Known::Is(types) => types
                .iter()
                .find(|it| it.plural == of.resource)
                .map_or(Known::Missing, |kind| Known::Is(kind.clone())),
            Known::Missing => Known::Missing,
            Known::Unread => Known::Unread,
        }
    };
    let named = |kind: &str| format!("{kind} {namespace}/{}", of.name);
    let shown = |text: String| safe(text.as_bytes()).into_owned();
    let kind = match kind {
        Known::Is(kind) => kind,
        other => {
            let state = match other {
                Known::Missing => State::Over("is of a type that the API server does not serve"),
                _ => State::NotKnown,
            };
            let plural = format!("{}.{}", of.resource, of.api_group);
            return Reserved { key: None, shown: shown(named(&plural)), state };
        }
    };
    let key = Key::of(kind, namespace, &of.name);
    let state = match facts.object(&key) {
        Known::Unread => State::NotKnown,
        Known::Missing => State::Over("does not exist"),
        Known::Is(object) if object.metadata.uid != of.uid => {
            State::Over("does not exist: another one has its name")
        }
        Known::Is(pod) if is_pod && has_ended(&pod) => State::Over("has ended"),
        Known::Is(object) if object.metadata.deletion_timestamp.is_some() => {
            State::Holds("is being deleted")
        }
        Known::Is(_) => State::Holds("is not being deleted"),
    };
    Reserved { shown: shown(key.to_string()), key: Some(key), state }
}

/// Whether none of the pod's containers runs or will run.
fn has_ended(pod: &Object) -> bool {
    matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")
        || pod.metadata.deletion_timestamp.is_some() && pod.spec.node_name.is_empty()
}

/// The finding about the claim's protection; `None` if the form of the claim is not known.
pub(super) fn judge(case: &mut Case, claim: &Object, facts: &Facts) -> Option<Draft> {
    let namespace = case.key.namespace.clone()?;
    // Of an older version only the metadata is read.
    if !case.key.kind.is_known() {
        return None;
    }
    let entries = &claim.status.reserved_for;
    let consumers: Vec<Reserved> =
        entries.iter().map(|it| consumer(it, &namespace, facts)).collect();
    let holders: Vec<&Reserved> =
        consumers.iter().filter(|it| matches!(it.state, State::Holds(_))).collect();
    if holders.is_empty() {
        not_released(case, claim, &consumers, facts)
    } else {
        Some(reserved(case, claim, &holders, facts))
    }
}

fn describe(draft: &mut Draft, claim: &Object, facts: &Facts) {
    draft.fact(format!("the finalizer {PROTECTION} is set"), api(facts.now));
    let mut drivers: Vec<&str> = drivers(claim);
    drivers.truncate(NAMED);
    if !drivers.is_empty() {
        let drivers = safe(drivers.join(", ").as_bytes()).into_owned();
        draft.fact(format!("status.allocation has devices of {drivers}"), api(facts.now));
    }
}

/// The drivers of the claim's devices, each once.
pub(super) fn drivers(claim: &Object) -> Vec<&str> {
    let all = claim.status.allocation.iter().flat_map(|it| &it.devices.results);
    let mut drivers: Vec<&str> = all.map(|it| it.driver.as_str()).collect();
    drivers.sort_unstable();
    drivers.dedup();
    drivers
}

fn reserved(case: &mut Case, claim: &Object, holders: &[&Reserved], facts: &Facts) -> Draft {
    let mut draft = draft(&RESERVED);
    describe(&mut draft, claim, facts);
    draft.rule_out(ids::RESOURCE_CLAIM_NOT_RELEASED, "a consumer exists that has not ended");
    // A consumer that is being deleted comes first: it is followed.
    let mut holders = holders.to_vec();
    holders.sort_by_key(|it| !matches!(it.state, State::Holds("is being deleted")));
    for holder in holders.iter().take(NAMED) {
        let State::Holds(state) = holder.state else { continue };
        draft.fact(
            format!(
                "status.reservedFor names {}, which exists with that UID and {state}",
                holder.shown
            ),
            api(facts.now),
        );
    }
    if holders.len() > NAMED {
        draft.fact(format!("{} more consumers exist", holders.len() - NAMED), api(facts.now));
    }
    if let Some(first) = holders.first() {
        draft.held_by(Who::object(&first.shown));
        let key = first.key.as_ref();
        if matches!(first.state, State::Holds("is being deleted")) {
            draft.remedies.extend(key.and_then(remedy::ask));
        } else if let Some(key) = key {
            let risk = if key.kind == cluster::Kind::POD {
                "its containers end; its owner creates another pod, which waits without a claim"
            } else {
                "its pods lose their devices when they end"
            };
            let found = facts.object(key).is();
            draft.remedies.extend(found.and_then(|object| {
                let does = format!("delete {}", holder_words(key));
                remedy::delete(does, key, &object.metadata, false, risk)
            }));
        }
    }
    case.waits_for.extend(holders.into_iter().filter_map(|it| it.key.clone()));
    draft
}

fn holder_words(key: &Key) -> String {
    format!("the {} {}", key.kind.name, key.name)
}

fn not_released(
    case: &Case,
    claim: &Object,
    consumers: &[Reserved],
    facts: &Facts,
) -> Option<Draft> {
    let unread = consumers.iter().find(|it| matches!(it.state, State::NotKnown));
    // A control plane without a leader is a finding of its own, and explains this one.
    let lease = control_plane::lease(facts).is();
    let leader = lease.as_ref().map(|lease| control_plane::leader(lease, facts));
    if leader == Some(Leader::Stale) {
        return None;
    }
    let mut draft = draft(&NOT_RELEASED);
    draft.held_by(Who::component("the ResourceClaim controller of kube-controller-manager", None));
    describe(&mut draft, claim, facts);
    match unread {
        Some(unread) => {
            draft.fact(
                format!("status.reservedFor names {}, which was not read", unread.shown),
                api(facts.now),
            );
            draft.lacks("that no consumer in status.reservedFor still uses the claim");
        }
        None => draft.rule_out(
            ids::RESOURCE_CLAIM_RESERVED,
            "no consumer in status.reservedFor exists that has not ended",
        ),
    }
    if consumers.is_empty() {
        draft.fact("status.reservedFor is empty", api(facts.now));
    }
    for it in consumers.iter().take(NAMED) {
        if let State::Over(why) = it.state {
            draft.fact(
                format!("status.reservedFor names {}, which {why}", it.shown),
                api(facts.now),
            );
        }
    }
    if let Some(holder) = lease.filter(|_| leader == Some(Leader::Fresh)) {
        let holder = holder.spec.holder_identity.clone().unwrap_or_default();
        draft.rule_out(
            ids::CONTROL_PLANE_WITHOUT_LEADER,
            format!("{} renews the Lease of kube-controller-manager", safe(holder.as_bytes())),
        );
    }
    // When a pod was removed is not recorded; a status that has had no consumer for a while is.
    let written = claim.metadata.managed_fields.iter().filter_map(|it| it.time).max();
    let age =
        written.map(|at| Duration::try_from(facts.now.duration_since(at)).unwrap_or_default());
    if !consumers.is_empty() {
        draft.doubt(
            "since when no consumer is left: the API server does not record when a pod was removed or has ended",
        );
    } else if age.is_none_or(|age| age < RELEASED) {
        draft.doubt("whether the controller is about to release it: the claim was changed less than 60 s ago");
    }
    if consumers.iter().any(|it| it.key.as_ref().is_none_or(|key| key.kind != cluster::Kind::POD)) {
        draft.advice(
            "remove the entry whose object does not exist from status.reservedFor (`kubectl edit --subresource=status`): \
             kube-controller-manager removes only entries of pods, and of types that its version knows",
            "none",
        );
    }
    draft.advice(
        "read the log of kube-controller-manager: it names the claim and the request that fails",
        "none",
    );
    draft.remedies.push(control_plane::show_pods());
    draft.remedies.extend(remedy::remove_finalizer(
        &case.key,
        &claim.metadata,
        PROTECTION,
        "its devices are allocated to other pods, while a container or a driver may still use them",
    ));
    Some(draft)
}
