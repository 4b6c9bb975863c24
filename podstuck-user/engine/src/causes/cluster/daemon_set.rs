//! A DaemonSet whose controller does not act: it neither replaces deleted pods nor deletes old ones. The DaemonSet itself
//! is not being deleted.

use std::{collections::BTreeSet, time::Duration};

use super::{
    case::{Case, State, api, draft},
    control_plane::{self, Leader},
    remedy, webhook,
};
use crate::{
    cause::{Cause, Kind, Origin, TriedWith, like, seen, way},
    ids,
    model::{
        chain::Who,
        cluster::{self, Facts, Key, Known, Meta, Object},
        diagnosis::Stage,
        path::safe,
        shell::is_object_name,
    },
    verdict::Draft,
};

/// The controller processes a change within seconds, also where it creates hundreds of pods.
const PROCESSED: Duration = Duration::from_secs(60);

/// The DaemonSet controller does not process the DaemonSet.
pub(crate) static NOT_SYNCED: Cause = Cause {
    id: ids::DAEMONSET_NOT_SYNCED,
    title: "the DaemonSet controller has not processed the DaemonSet: it replaces no pod",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "The DaemonSet controller of kube-controller-manager deletes pods of an old template, and creates a pod on \
        each node that has to run one and has none. It records in status.observedGeneration which change of the DaemonSet it \
        has processed. That lags: the controller does not run, waits for its cache, or its requests fail. Pods that were \
        deleted are not replaced, and old pods stay.",
    confirmed_by: &[seen(
        "status.observedGeneration is less than metadata.generation, 60 s or longer after the last change; or the status \
         counts pods on more nodes than have one",
        &[Origin::Api],
    )],
    log: None,
    look_alikes: &[
        like(
            ids::CONTROL_PLANE_WITHOUT_LEADER,
            "kube-controller-manager renews its Lease: its other controllers run",
        ),
        like(
            ids::WEBHOOK_UNAVAILABLE,
            "no webhook without a ready endpoint is called for the creation of its pods",
        ),
    ],
    ways_out: &[
        way(
            "find the request that is refused: the DaemonSet controller writes an event about it",
            "",
        ),
        way(
            "restart kube-controller-manager",
            "its controllers pause until a replica holds the Lease",
        ),
    ],
    field: &["kubernetes#62928", "kubernetes#63465", "kubernetes#95432", "origin#17943"],
    tried: &[TriedWith::ApiServer, TriedWith::Objects],
    source: &[
        "kubernetes pkg/controller/daemon/daemon_controller.go, syncDaemonSet",
        "kubernetes pkg/controller/controller_utils.go, SatisfiedExpectations",
    ],
};

/// Judges a DaemonSet that is not being deleted.
pub(super) fn not_deleted(case: &mut Case, set: &Object, facts: &Facts) {
    let (meta, status) = (&set.metadata, &set.status);
    let lags = status.observed_generation < meta.generation;
    let missing = if lags { None } else { missing(case, set, facts) };
    let lacks_pods = status.current_number_scheduled < status.desired_number_scheduled;
    if !lags && missing.is_none() && !lacks_pods {
        return;
    }
    let refused = refused(case, set, facts);
    if !refused.is_empty() || (!lags && missing.is_none()) {
        for draft in refused {
            case.found(draft, facts.now);
        }
        return;
    }
    if let Some(mut draft) = control_plane::judge(facts) {
        draft.fact(counted(set), api(facts.now));
        case.found(draft, facts.now);
        return;
    }
    let mut draft = draft(&NOT_SYNCED);
    draft.held_by(Who::component("the DaemonSet controller of kube-controller-manager", None));
    if lags {
        lag(&mut draft, meta, status.observed_generation, facts);
    }
    draft.fact(counted(set), api(facts.now));
    if let Some(nodes) = missing {
        draft.fact(format!("the API server has pods of it on {nodes} nodes"), api(facts.now));
        draft.doubt(
            "since when a pod is missing: the API server does not record when a pod was removed",
        );
    }
    rule_out(&mut draft, facts);
    if is_object_name(&case.key.name) && case.key.namespace.as_deref().is_some_and(is_object_name) {
        let namespace = case.key.namespace.as_deref().unwrap_or_default();
        draft.remedies.push(remedy::show(
            "show the events of the DaemonSet: FailedCreate and FailedDelete name a request that is refused".into(),
            format!("kubectl --namespace {namespace} describe daemonset {}", case.key.name),
        ));
    }
    draft.remedies.push(control_plane::show_pods());
    draft.advice(
        "restart kube-controller-manager on a control plane node; if the cluster is managed, ask its provider",
        "its controllers pause until a replica holds the Lease",
    );
    case.found(draft, facts.now);
}

/// The counts of the status.
fn counted(set: &Object) -> String {
    let status = &set.status;
    format!(
        "its status counts {} nodes that have to run its pod, {} of them with one, and {} other nodes with one",
        status.desired_number_scheduled,
        status.current_number_scheduled,
        status.number_misscheduled
    )
}

fn lag(draft: &mut Draft, meta: &Meta, observed: i64, facts: &Facts) {
    draft.fact(
        format!(
            "metadata.generation is {}, and status.observedGeneration {observed}: the controller has not processed the last \
             change",
            meta.generation
        ),
        api(facts.now),
    );
    let last = meta.last_change();
    let Some((by, at)) = last.and_then(|last| Some((&last.manager, last.time?))) else {
        return draft.doubt("when the DaemonSet was last changed");
    };
    let age = Duration::try_from(facts.now.duration_since(at)).unwrap_or_default();
    draft.fact(
        format!(
            "the field manager {} last changed the DaemonSet at {at:.0}, {} s ago",
            safe(by.as_bytes()),
            age.as_secs()
        ),
        api(facts.now),
    );
    if age < PROCESSED {
        draft.doubt(
            "whether the controller is about to process it: it was changed less than 60 s ago",
        );
    }
}

/// The number of nodes with pods, if the status counts more.
fn missing(case: &Case, set: &Object, facts: &Facts) -> Option<usize> {
    let pods = facts.all(&cluster::Kind::POD, case.key.namespace.as_deref(), None).is()?;
    let is_of_set =
        |pod: &&Object| pod.controller().is_some_and(|owner| owner.uid == set.metadata.uid);
    // A pod that waits for the scheduler counts, too: its node is in its affinity.
    let mut waiting = 0;
    let mut nodes = BTreeSet::new();
    for pod in pods.iter().filter(is_of_set) {
        if pod.spec.node_name.is_empty() {
            waiting += 1;
        } else {
            nodes.insert(&pod.spec.node_name);
        }
    }
    let counted = set.status.current_number_scheduled + set.status.number_misscheduled;
    let found = nodes.len() + waiting;
    (i64::try_from(found).is_ok_and(|found| found < counted)).then_some(found)
}

/// The webhooks that make the creation of its pods fail.
fn refused(case: &Case, set: &Object, facts: &Facts) -> Vec<Draft> {
    let namespace = case.key.namespace.as_deref().unwrap_or_default();
    let key = Key::of(cluster::Kind::POD, namespace, &case.key.name);
    let labels = set.spec.template.metadata.labels.clone();
    let pod = Object { metadata: Meta { labels, ..Meta::default() }, ..Object::default() };
    let pods = Case::without(&key, State::NotDeleted);
    let mut drafts = webhook::judge(&pods, &pod, facts, &[("CREATE", "pods")]);
    for draft in &mut drafts {
        draft.fact(counted(set), api(facts.now));
        draft.explanation = "The API server must call this webhook before it admits a pod of the DaemonSet, and the \
            webhook's service has no ready endpoint: no pod is created."
            .into();
    }
    drafts
}

fn rule_out(draft: &mut Draft, facts: &Facts) {
    let lease = control_plane::lease(facts).is();
    match lease.filter(|lease| control_plane::leader(lease, facts) == Leader::Fresh) {
        Some(lease) => {
            let holder = lease.spec.holder_identity.as_deref().unwrap_or_default();
            let holder = safe(holder.as_bytes()).into_owned();
            draft.rule_out(
                ids::CONTROL_PLANE_WITHOUT_LEADER,
                format!("{holder} renews the Lease of kube-controller-manager"),
            );
        }
        // The controller has not processed the DaemonSet in either case.
        None => draft.suffices_beside(ids::CONTROL_PLANE_WITHOUT_LEADER),
    }
    let kinds = [cluster::Kind::MUTATING, cluster::Kind::VALIDATING];
    if kinds.iter().all(|kind| matches!(facts.all(kind, None, None), Known::Is(_))) {
        draft.rule_out(
            ids::WEBHOOK_UNAVAILABLE,
            "no webhook without a ready endpoint is called for the creation of its pods",
        );
    }
}
