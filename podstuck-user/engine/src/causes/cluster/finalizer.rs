//! Finalizers: which client set one, when, and whether the controller that has to remove it is alive. Elapsed time alone
//! never proves that it is gone.

use std::sync::Arc;

use super::{
    case::{Case, Step, api, draft},
    control_plane::{self, Leader},
    foreground, job, pod, refused, remedy, resource_claim, webhook,
};
use crate::{
    cause::{Cause, Kind, Origin, TriedWith, like, seen, way},
    causes::pod_record,
    ids,
    model::{
        chain::Who,
        cluster::{self, Condition, Facts, Key, Known, Object, Removal},
        diagnosis::Stage,
        path::safe,
        shell::is_object_name,
    },
    verdict::Draft,
};

/// A finalizer keeps the object.
pub(crate) static OBJECT_FINALIZER: Cause = Cause {
    id: ids::OBJECT_FINALIZER,
    title: "a finalizer keeps the object, and its controller has not removed it",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "The API server keeps a deleted object until its last finalizer is removed, by the \
        client that set it, mostly a controller. The controller's log says what it waits for. If \
        its Lease or its other writes show that it is alive, it is slow or refuses; otherwise \
        its state is not known.",
    confirmed_by: &[seen(
        "metadata.deletionTimestamp is set, and metadata.finalizers is not empty",
        &[Origin::Api],
    )],
    log: None,
    look_alikes: &[like(
        ids::CLAIM_IN_USE,
        "no pod that has a node names the claim, or the finalizer is another one",
    )],
    ways_out: &[
        way("find out why the controller does not remove it: its log names the object", ""),
        way("remove the finalizer from the object", "skips the clean-up of its controller"),
    ],
    field: &["kueue#1339", "kubernetes#69697"],
    tried: &[TriedWith::ApiServer, TriedWith::Objects],
    source: &[
        "kubernetes staging/src/k8s.io/apiserver/pkg/registry/generic/registry/store.go, ShouldDeleteDuringUpdate",
    ],
};

/// A finalizer keeps the object, and its controller is gone.
pub(crate) static CONTROLLER_GONE: Cause = Cause {
    id: ids::FINALIZER_CONTROLLER_GONE,
    title: "a finalizer keeps the object, and the controller that has to remove it is gone",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "The API server keeps a deleted object until its last finalizer is removed. The \
        controller of that finalizer has a Lease, which its last leader no longer renews; the \
        pod of that leader does not exist, and neither does an available replica of its \
        workload. No controller is left to remove the finalizer.",
    confirmed_by: &[
        seen(
            "metadata.deletionTimestamp is set, and metadata.finalizers has the finalizer",
            &[Origin::Api],
        ),
        seen(
            "the Lease of its controller is not renewed, and the pod of its holder does not exist",
            &[Origin::Api],
        ),
        seen(
            "the workload of that pod does not exist, or has no available replica",
            &[Origin::Api],
        ),
    ],
    log: None,
    look_alikes: &[like(
        ids::WEBHOOK_UNAVAILABLE,
        "no controller is left whose request could be refused",
    )],
    ways_out: &[
        way("start the controller again", ""),
        way("remove the finalizer from the object", "skips the clean-up of its controller"),
    ],
    field: &["kubernetes#60807"],
    tried: &[TriedWith::ApiServer, TriedWith::Objects],
    source: &[
        "kubernetes staging/src/k8s.io/client-go/tools/leaderelection/leaderelection.go",
        "kubebuilder pkg/plugins/golang/v4/scaffolds/internal/templates/cmd/main.go, LeaderElectionID",
    ],
};

/// Finalizers that kube-controller-manager removes.
const OF_CONTROL_PLANE: [(&str, &str); 7] = [
    (job::TRACKING, "the Job controller of kube-controller-manager"),
    ("foregroundDeletion", "the garbage collector of kube-controller-manager"),
    ("orphan", "the garbage collector of kube-controller-manager"),
    ("kubernetes.io/pvc-protection", "the protection of claims of kube-controller-manager"),
    ("kubernetes.io/pv-protection", "the protection of volumes of kube-controller-manager"),
    (resource_claim::PROTECTION, "the ResourceClaim controller of kube-controller-manager"),
    ("kubernetes", "the namespace controller of kube-controller-manager"),
];

/// The part of kube-controller-manager that removes this finalizer, if any.
fn of_control_plane(finalizer: &str) -> Option<&'static str> {
    OF_CONTROL_PLANE.iter().find(|(name, _)| *name == finalizer).map(|(_, who)| *who)
}

/// Judges each finalizer of an object that only finalizers keep; `special` judges some of them more precisely.
pub(super) fn judge(
    case: &mut Case,
    object: &Object,
    facts: &Facts,
    special: impl Fn(&str, &mut Case) -> Option<Draft>,
) {
    case.step = Some(Step::Finalizers);
    let mut requests = vec![("UPDATE", &*case.key.kind.plural)];
    // The ResourceClaim controller clears the status before it removes the finalizer.
    if object.metadata.finalizers.iter().any(|it| it == resource_claim::PROTECTION) {
        requests.push(("UPDATE", "resourceclaims/status"));
    }
    let unanswered = webhook::judge(case, object, facts, &requests);
    let is_answered = unanswered.is_empty();
    for draft in unanswered {
        case.found(draft, facts.now);
    }
    let finalizers = &object.metadata.finalizers;
    if finalizers.iter().any(|it| of_control_plane(it).is_some())
        && let Some(draft) = control_plane::judge(facts)
    {
        case.found(draft, facts.now);
    }
    for finalizer in finalizers {
        let known = match finalizer.as_str() {
            "foregroundDeletion" => foreground::judge(case, object, facts),
            _ => special(finalizer, case),
        };
        if let Some(found) = known {
            case.found(found, facts.now);
            continue;
        }
        let removal = refused::removal(case, &object.metadata, finalizer).filter(|_| is_answered);
        if let Some(refused) = removal.as_ref().and_then(|it| refused::judge(it, facts)) {
            case.found(refused, facts.now);
        }
        let found = of_controller(case, object, finalizer, removal.as_ref(), facts);
        case.found(found, facts.now);
    }
}

/// The finding about a finalizer, by the state of its controller.
fn of_controller(
    case: &Case,
    object: &Object,
    finalizer: &str,
    removal: Option<&Removal>,
    facts: &Facts,
) -> Draft {
    let meta = &object.metadata;
    let name = safe(finalizer.as_bytes()).into_owned();
    let state = of_control_plane(finalizer)
        .map_or_else(|| controller(finalizer, facts), |_| Controller::NotKnown { lease: None });
    let cause = match &state {
        Controller::Gone(_) => &CONTROLLER_GONE,
        _ if case.key.kind == cluster::Kind::POD => &pod_record::FINALIZER,
        _ => &OBJECT_FINALIZER,
    };
    let mut draft = draft(cause);
    draft.held_by(Who::object(format!("the finalizer {name}")));
    draft.fact(format!("the finalizer {name} is set on the deleted object"), api(facts.now));
    if case.key.kind == cluster::Kind::POD {
        draft.fact(
            "metadata.deletionGracePeriodSeconds is 0, after which the API server waits for finalizers alone",
            api(facts.now),
        );
        let disruption = pod::disruption(object);
        let running = pod::running(object);
        if !running.is_empty() {
            // It deletes with a grace period of 0; the others do so only if they are asked to.
            let is_collected = disruption.is_some_and(|it| it.reason == "DeletionByPodGC");
            let who = if is_collected {
                "the pod garbage collector"
            } else {
                "a client, as with --force,"
            };
            draft.fact(
                format!(
                    "kubelet has not reported that {running} has ended: {who} deleted the pod with a grace period of 0, which \
                     does not wait for kubelet; processes of the pod may still run on its node"
                ),
                api(facts.now),
            );
        }
        if let Some(Condition { reason, message, .. }) = disruption {
            let text =
                format!("its condition DisruptionTarget says who deleted it: {reason}, {message}");
            draft.fact(safe(text.as_bytes()), api(facts.now));
        }
    }
    let setter = meta.setter(finalizer);
    if let Some(setter) = setter {
        let at = setter.time.map(|at| format!(" at {at:.0}")).unwrap_or_default();
        draft.fact(
            format!("the field manager {} set it{at}", safe(setter.manager.as_bytes())),
            api(facts.now),
        );
    }
    if finalizer == job::TRACKING
        && let Some(fact) = job::fact(object, facts)
    {
        draft.fact(fact, api(facts.now));
    }
    if let Some(removal) = removal {
        refused::remark(&mut draft, removal, facts);
    }
    if case.key.kind == cluster::Kind::CLAIM {
        draft.rule_out(
            ids::CLAIM_IN_USE,
            "no pod that has a node names it, or it has another finalizer",
        );
    } else {
        draft.suffices_beside(ids::CLAIM_IN_USE);
    }
    draft
        .rule_out(ids::WEBHOOK_UNAVAILABLE, "no controller is left whose request could be refused");
    let who = of_control_plane(finalizer).unwrap_or("its controller");
    match &state {
        Controller::Gone(facts_of) => {
            for fact in facts_of {
                draft.fact(fact.clone(), api(facts.now));
            }
        }
        Controller::Alive { lease, holder, namespace } => {
            draft.fact(format!("its Lease {lease} is renewed by {holder}: the controller is alive, and slow or refuses"), api(facts.now));
            let pod = holder.split('_').next().unwrap_or_default();
            if is_object_name(pod) && is_object_name(namespace) {
                draft.remedies.push(remedy::show(
                    format!("show the log of the controller {pod}"),
                    format!(
                        "kubectl --namespace {namespace} logs {pod} --all-containers --tail=200"
                    ),
                ));
            }
        }
        Controller::NotKnown { lease } => {
            if let Some(fact) = lease {
                draft.fact(fact.clone(), api(facts.now));
            } else if let Some(fact) = webhook::of_domain(finalizer, facts) {
                draft.fact(fact, api(facts.now));
            }
            // The setter may be an administrator's kubectl; a setter that writes after the deletion is a running client.
            let last = setter.and_then(|setter| Some((setter, facts.last_write(&setter.manager)?)));
            let is_new = |at: jiff::Timestamp| {
                facts.now.duration_since(at).as_secs() < 60
                    && meta.requested().is_none_or(|since| since < at)
            };
            if let Some((setter, at)) = last.filter(|(_, at)| is_new(*at)) {
                draft.fact(
                    format!(
                        "{} last wrote to an object at {at:.0}",
                        safe(setter.manager.as_bytes())
                    ),
                    api(facts.now),
                );
            }
        }
    }
    draft.explanation = match &state {
        Controller::Gone(_) => format!(
            "The API server keeps the object until {name} is removed, and the controller that has to do that is gone."
        ),
        Controller::Alive { .. } => format!(
            "The API server keeps the object until {name} is removed. The controller that has to do that is alive: its log \
             says what it waits for."
        ),
        Controller::NotKnown { .. } => format!(
            "The API server keeps the object until {who} removes its finalizer. Whether that controller is alive is not known \
             from the API server: the age of a finalizer does not show it."
        ),
    };
    match state {
        Controller::Gone(_) => {
            draft.advice(format!("start the controller of {name} again"), "none")
        }
        _ => draft.advice(
            format!("find out why {who} does not remove {name}: its log names the object"),
            "none",
        ),
    };
    let risk = format!("skips the clean-up of {who}");
    draft.remedies.extend(remedy::remove_finalizer(&case.key, meta, finalizer, risk));
    draft
}

/// The state of a finalizer's controller.
enum Controller {
    /// Proven to be gone, by these facts.
    Gone(Vec<String>),
    /// It renews its Lease.
    Alive { lease: String, holder: String, namespace: String },
    /// Neither is proven; `lease` is the fact about its Lease, if it has one.
    NotKnown { lease: Option<String> },
}

/// The name of the Lease that the CSI attacher takes, derived from the driver's name.
fn lease_of_attacher(finalizer: &str) -> Option<String> {
    let driver = finalizer.strip_prefix("external-attacher/")?;
    let sanitized: String =
        driver.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    Some(format!("external-attacher-leader-{sanitized}"))
}

/// Whether a Lease belongs to the finalizer's controller. kubebuilder names the Lease by eight hexadecimal digits and
/// the project's domain, which is also the finalizer's; attachers name it by their driver.
fn is_lease_of(finalizer: &str, lease: &str) -> bool {
    if let Some(name) = lease_of_attacher(finalizer) {
        return lease == name;
    }
    if finalizer == "service.kubernetes.io/load-balancer-cleanup" {
        return lease == "cloud-controller-manager";
    }
    let Some((domain, _)) = finalizer.split_once('/') else { return false };
    let Some((digits, of)) = lease.split_once('.') else { return false };
    let is_hash = digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash && of == domain && domain.contains('.')
}

fn controller(finalizer: &str, facts: &Facts) -> Controller {
    let unknown = |lease| Controller::NotKnown { lease };
    let leases = facts.all(&cluster::Kind::LEASE, None, None);
    let Known::Is(leases) = leases else { return unknown(None) };
    let own: Vec<&Object> =
        leases.iter().filter(|lease| is_lease_of(finalizer, &lease.metadata.name)).collect();
    let of = |lease: &Object| {
        let namespace = lease.metadata.namespace.clone().unwrap_or_default();
        let holder = lease.spec.holder_identity.clone().unwrap_or_default();
        (namespace, holder)
    };
    let shown = |lease: &Object| {
        let (namespace, _) = of(lease);
        safe(format!("{namespace}/{}", lease.metadata.name).as_bytes()).into_owned()
    };
    if let Some(fresh) =
        own.iter().find(|lease| control_plane::leader(lease, facts) == Leader::Fresh)
    {
        let (namespace, holder) = of(fresh);
        let holder = safe(holder.as_bytes()).into_owned();
        return Controller::Alive { lease: shown(fresh), holder, namespace };
    }
    let mut proof = Vec::new();
    for lease in &own {
        let (namespace, holder) = of(lease);
        let stale = control_plane::leader(lease, facts) == Leader::Stale;
        let renewed = lease.spec.renew_time.map(|at| format!("{at:.0}")).unwrap_or_default();
        let words = format!(
            "its Lease {} was last renewed at {renewed}, by {}",
            shown(lease),
            safe(holder.as_bytes())
        );
        match stale.then(|| workload_is_gone(&namespace, &holder, facts)).flatten() {
            Some(gone) => proof.extend([words, gone]),
            None => return unknown(Some(words)),
        }
    }
    if proof.is_empty() { unknown(None) } else { Controller::Gone(proof) }
}

/// A sentence if neither the pod that held a Lease nor an available replica of its workload exists; `None` if that is
/// not proven. The workload is derived from the pod's name.
fn workload_is_gone(namespace: &str, holder: &str, facts: &Facts) -> Option<String> {
    let (pod, _) = holder.split_once('_')?;
    if !is_object_name(pod) || !is_object_name(namespace) {
        return None;
    }
    if !facts.object(&Key::of(cluster::Kind::POD, namespace, pod)).is_missing() {
        return None;
    }
    let (rest, last) = pod.rsplit_once('-')?;
    let (kind, name) = if last.bytes().all(|byte| byte.is_ascii_digit()) {
        (cluster::Kind::STATEFUL_SET, rest)
    } else {
        (cluster::Kind::DEPLOYMENT, rest.rsplit_once('-').filter(|_| last.len() == 5)?.0)
    };
    let key = Key::of(kind, namespace, name);
    let why = match facts.object(&key) {
        Known::Missing => format!("{key} does not exist"),
        Known::Is(workload) if has_no_replica(&workload) => {
            let wanted = workload.spec.replicas.unwrap_or(1);
            format!("{key} has no available replica of {wanted}")
        }
        Known::Is(_) | Known::Unread => return None,
    };
    Some(format!("the pod {namespace}/{pod}, which held that Lease, does not exist, and {why}"))
}

fn has_no_replica(workload: &Arc<Object>) -> bool {
    workload.status.available_replicas == 0 && workload.status.ready_replicas == 0
}

#[cfg(test)]
mod tests {
    use super::is_lease_of;

    #[test]
    fn a_lease_is_known_by_the_domain_of_the_finalizer() {
        assert!(is_lease_of("kueue.x-k8s.io/managed", "c1f6bfd2.kueue.x-k8s.io"));
        assert!(is_lease_of(
            "external-attacher/ebs-csi-aws-com",
            "external-attacher-leader-ebs-csi-aws-com"
        ));
        for (finalizer, lease) in [
            ("kueue.x-k8s.io/managed", "c1f6bfd2.x-k8s.io"),
            ("kueue.x-k8s.io/managed", "kueue.x-k8s.io"),
            ("kueue.x-k8s.io/managed", "c1f6bfdz.kueue.x-k8s.io"),
            ("managed", "c1f6bfd2.managed"),
            ("external-attacher/a", "external-attacher-leader-b"),
        ] {
            assert!(!is_lease_of(finalizer, lease), "{finalizer} {lease}");
        }
    }
}
