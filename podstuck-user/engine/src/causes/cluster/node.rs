//! A pod's node as the control plane sees it: whether its kubelet reports, and whether it has a kubelet at all.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    case::{Case, api, draft},
    control_plane, kubelet, machine, remedy, waiting,
};
use crate::{
    cause::{Cause, Kind, Origin, TriedWith, like, or_seen, seen, way},
    ids,
    model::{
        chain::Who,
        cluster::{self, Facts, Key, Known, Meta, Object},
        diagnosis::Stage,
        path::safe,
    },
    verdict::Draft,
};

/// kubelet renews its Lease every ten seconds, and the node controller waits for four times that
/// (`--node-monitor-grace-period`).
pub(super) const SILENT: Duration = Duration::from_secs(40);
/// The pod garbage collector runs every 20 s, and deletes the pods of a node that has been missing for 40 s.
const COLLECTED: Duration = Duration::from_secs(120);
/// Taint that a cloud provider's controller sets when the machine is off.
const SHUT_DOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// Taint that an administrator sets when the machine is off.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// kubelet does not report.
pub(crate) static NOT_HEARD: Cause = Cause {
    id: ids::NODE_NOT_HEARD,
    title: "the pod's node does not report to the control plane, and kubelet must report that \
        the pod has ended",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "Only kubelet on the pod's node can report that the pod has ended. That node does \
        not report to the control plane: its Lease is not renewed, and the node controller has \
        set the node's Ready condition to Unknown. The machine may be off, its network may be \
        cut, or kubelet may be down: from the API server these look the same, and on a machine \
        that only lost its network the pod still runs.",
    confirmed_by: &[
        seen("the node's Ready condition is Unknown", &[Origin::Api]),
        seen("the renewTime of the node's Lease is older than 40 s", &[Origin::Api]),
    ],
    log: None,
    look_alikes: &[like(
        ids::CONTROL_PLANE_WITHOUT_LEADER,
        "the node controller has written the node's condition, so that controller acts",
    )],
    ways_out: &[
        way("repair the node, or its connection to the API server: kubelet then ends the pod", ""),
        way(
            "if the machine was seen to be off, set the taint node.kubernetes.io/out-of-service",
            "on a machine that runs, a volume is then written by two nodes",
        ),
    ],
    field: &["kubernetes#51835", "kubernetes#67312"],
    tried: &[TriedWith::ApiServer, TriedWith::Objects],
    source: &[
        "kubernetes pkg/controller/nodelifecycle/node_lifecycle_controller.go, tryUpdateNodeHealth",
        "kubernetes pkg/kubelet/status/status_manager.go, canBeDeleted",
    ],
};

/// The machine is known to be off.
pub(crate) static OFF: Cause = Cause {
    id: ids::NODE_OFF,
    title: "the pod's node is off, according to an administrator or what controls its machine",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The node has a taint that is set only where the machine was seen to be off, or what controls its machine \
        reports so: a BareMetalHost, a Machine, or an object that fences the node. No \
        kubelet runs there to report that the pod has ended, and its volumes stay attached to \
        that machine: a StatefulSet, a Deployment with the strategy Recreate, and a pod that \
        needs such a volume wait until the record is deleted.",
    confirmed_by: &[
        seen(
            "the node has the taint node.cloudprovider.kubernetes.io/shutdown or node.kubernetes.io/out-of-service",
            &[Origin::Api],
        ),
        or_seen(
            "since kubelet's last report, the BareMetalHost of its providerID is off, the instance of its Machine has ended or \
             is deleted, or a SelfNodeRemediation or FenceAgentsRemediation of its name has succeeded",
            &[Origin::Api],
        ),
        seen("the node's Ready condition is not True", &[Origin::Api]),
    ],
    log: None,
    look_alikes: &[],
    ways_out: &[
        way("start the machine", ""),
        way(
            "set the taint node.kubernetes.io/out-of-service: the pods are deleted and their volumes detached",
            "on a machine that runs, a volume is then written by two nodes",
        ),
    ],
    field: &[
        "cloud-provider-openstack#2556",
        "machine-api-operator#331",
        "machine-api-operator#347",
        "self-node-remediation#17",
        "fence-agents-remediation#92",
    ],
    tried: &[TriedWith::ApiServer, TriedWith::Objects],
    source: &[
        "kubernetes staging/src/k8s.io/cloud-provider/controllers/nodelifecycle",
        "kubernetes pkg/controller/podgc/gc_controller.go, gcTerminating",
    ],
};

/// The Node object does not exist.
pub(crate) static GONE: Cause = Cause {
    id: ids::NODE_OBJECT_GONE,
    title: "the pod's node no longer exists at the API server, and the pod was not collected",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "spec.nodeName of the pod names no Node object, so that no kubelet reports that the pod has ended. The pod \
        garbage collector of kube-controller-manager deletes such pods within two minutes. It does not run, or its requests \
        are refused.",
    confirmed_by: &[seen(
        "the API server has no Node of the name in spec.nodeName",
        &[Origin::Api],
    )],
    log: None,
    look_alikes: &[],
    ways_out: &[
        way("find out why the pod garbage collector does not delete the pod", ""),
        way(
            "delete the pod's record with a grace period of 0",
            "where only the Node object was deleted, its containers may still run on that machine",
        ),
    ],
    field: &["kubernetes#118261"],
    tried: &[TriedWith::ApiServer, TriedWith::Objects],
    source: &["kubernetes pkg/controller/podgc/gc_controller.go, gcOrphaned"],
};

/// A virtual node: there is no machine to examine.
pub(crate) static VIRTUAL: Cause = Cause {
    id: ids::VIRTUAL_NODE,
    title: "not a cause: the pod runs on a virtual node, and only its provider knows what keeps the pod",
    stage: Stage::Containers,
    kind: Kind::Admission,
    meaning: "The node is not a machine: a provider such as virtual-kubelet, Fargate or KWOK \
        stands in for a kubelet. There is no kernel, no runtime and no directory to examine. The \
        provider's log says what it waits for.",
    confirmed_by: &[seen(
        "a label or an annotation of the node names its provider",
        &[Origin::Api],
    )],
    log: None,
    look_alikes: &[],
    ways_out: &[way("read the log of the node's provider", "")],
    field: &["virtual-kubelet#907"],
    tried: &[TriedWith::Objects],
    source: &["virtual-kubelet node/nodeutil/controller.go"],
};

/// A Windows node, which podstuck cannot examine.
pub(crate) static WINDOWS: Cause = Cause {
    id: ids::WINDOWS_NODE,
    title: "not a cause: the pod runs on a Windows node, which podstuck cannot examine",
    stage: Stage::Containers,
    kind: Kind::Admission,
    meaning: "podstuck examines Linux. On a Windows node the logs of kubelet and of the runtime say what they wait for.",
    confirmed_by: &[seen("the label kubernetes.io/os of the node is windows", &[Origin::Api])],
    log: None,
    look_alikes: &[],
    ways_out: &[way("read the log of kubelet on that node", "")],
    field: &[],
    tried: &[TriedWith::Objects],
    source: &["kubernetes staging/src/k8s.io/api/core/v1/well_known_labels.go"],
};

fn key(name: &str) -> Key {
    Key::global(cluster::Kind::NODE, name)
}

/// A sentence with the label or annotation by which a provider stands in for a kubelet.
fn provider(meta: &Meta) -> Option<String> {
    let label = |name: &str, value: &str| {
        let has = meta.labels.get(name).is_some_and(|it| it == value);
        has.then(|| format!("the node has the label {name}={value}"))
    };
    let annotation = |name: &str| {
        meta.annotations.contains_key(name).then(|| format!("the node has the annotation {name}"))
    };
    label("type", "virtual-kubelet")
        .or_else(|| label("eks.amazonaws.com/compute-type", "fargate"))
        .or_else(|| annotation("kwok.x-k8s.io/node"))
}

/// Adds the finding about a pod's node, or requests its examination.
pub(super) fn judge(case: &mut Case, pod: &Object, facts: &Facts) {
    let name = pod.spec.node_name.as_str();
    let node = match facts.object(&key(name)) {
        Known::Is(node) => node,
        Known::Missing => return gone(case, pod, facts),
        Known::Unread => {
            case.examine = Some(name.to_owned());
            return;
        }
    };
    if let Some(fact) = provider(&node.metadata) {
        let mut draft = draft(&VIRTUAL);
        draft.held_by(Who::object(format!("the provider of {}", safe(name.as_bytes()))));
        draft.fact(fact, api(facts.now));
        draft.advice("read the log of the node's provider", "none");
        case.found(draft, facts.now);
    } else if node.metadata.labels.get("kubernetes.io/os").is_some_and(|os| os == "windows") {
        let mut draft = draft(&WINDOWS);
        draft.held_by(Who::object(format!("the Windows node {}", safe(name.as_bytes()))));
        draft.fact("the node has the label kubernetes.io/os=windows", api(facts.now));
        draft.advice("read the log of kubelet on that node", "none");
        case.found(draft, facts.now);
    } else if let Some(mut draft) = silent(&node, facts) {
        waiting::add(&mut draft, pod, facts);
        by_force(&mut draft, case, pod);
        case.found(draft, facts.now);
    } else if !kubelet::judge(case, pod, &node, facts) {
        case.examine = Some(name.to_owned());
    }
}

/// Judges a node that is itself the object asked about, and is not being deleted.
pub(super) fn not_deleted(case: &mut Case, node: &Object, facts: &Facts) {
    if let Some(draft) = silent(node, facts) {
        case.found(draft, facts.now);
    }
}

/// The finding about a node that is off or does not report.
fn silent(node: &Object, facts: &Facts) -> Option<Draft> {
    off(node, facts).or_else(|| {
        let draft = not_heard(node, facts)?;
        Some(off_by_machine(node, facts).unwrap_or(draft))
    })
}

/// The time of kubelet's last report.
fn heard(node: &Object, facts: &Facts) -> Option<Timestamp> {
    let name = node.metadata.name.as_str();
    let lease = facts.object(&Key::of(cluster::Kind::LEASE, "kube-node-lease", name));
    lease.is().and_then(|lease| lease.spec.renew_time)
}

fn off_by_machine(node: &Object, facts: &Facts) -> Option<Draft> {
    let ready = ready(node).filter(|ready| ready.status != "True")?;
    let proof = machine::off(node, heard(node, facts), facts)?;
    let name = safe(node.metadata.name.as_bytes()).into_owned();
    let mut draft = draft(&OFF);
    draft.held_by(Who::object(format!("the node {name}")).and(", which is off"));
    draft.fact(proof, api(facts.now));
    draft.fact(since("its Ready condition is", ready), api(facts.now));
    draft.remedies.extend(out_of_service(node));
    Some(draft)
}

fn ready(node: &Object) -> Option<&cluster::Condition> {
    node.condition("Ready")
}

fn off(node: &Object, facts: &Facts) -> Option<Draft> {
    let taint = [SHUT_DOWN, OUT_OF_SERVICE]
        .into_iter()
        .find(|key| node.spec.taints.iter().any(|taint| taint.key == *key))?;
    let ready = ready(node).filter(|ready| ready.status != "True")?;
    let name = safe(node.metadata.name.as_bytes()).into_owned();
    let mut draft = draft(&OFF);
    draft.held_by(Who::object(format!("the node {name}")).and(", which is off"));
    draft.fact(format!("the node {name} has the taint {taint}"), api(facts.now));
    draft.fact(since("its Ready condition is", ready), api(facts.now));
    if taint == SHUT_DOWN {
        draft.remedies.extend(out_of_service(node));
    } else {
        draft.advice(
            "find out why the pod garbage collector does not delete the pods of a node with that taint: it does so since \
             Kubernetes 1.26",
            "none",
        );
    }
    Some(draft)
}

fn since(words: &str, condition: &cluster::Condition) -> String {
    let at = condition.last_transition_time;
    let since = at.map(|at: Timestamp| format!(" since {at:.0}")).unwrap_or_default();
    let reason = safe(condition.reason.as_bytes()).into_owned();
    format!("{words} {}{since}, with the reason {reason}", safe(condition.status.as_bytes()))
}

fn not_heard(node: &Object, facts: &Facts) -> Option<Draft> {
    let name = node.metadata.name.as_str();
    let renewed = heard(node, facts);
    let is_silent = renewed.is_some_and(|renewed| {
        Duration::try_from(facts.now.duration_since(renewed)).unwrap_or_default() > SILENT
    });
    let unknown = ready(node).filter(|ready| ready.status == "Unknown");
    // A renewed Lease shows that kubelet reports, whatever the condition still says.
    let may_be_silent = is_silent || renewed.is_none() && unknown.is_some();
    if !may_be_silent {
        return None;
    }
    let name = safe(name.as_bytes()).into_owned();
    let mut draft = draft(&NOT_HEARD);
    draft.held_by(Who::object(format!("the node {name}")).and(", which does not report"));
    match unknown {
        Some(ready) => {
            draft.fact(since("its Ready condition is", ready), api(facts.now));
            draft.rule_out(
                ids::CONTROL_PLANE_WITHOUT_LEADER,
                "the node controller has set the Ready condition of the node to Unknown",
            );
        }
        None => draft.lacks("that the node controller has set the Ready condition to Unknown"),
    }
    match renewed {
        Some(renewed) => draft.fact(
            format!(
                "kubelet of {name} last renewed its Lease at {renewed:.0}, {} s ago",
                facts.now.duration_since(renewed).as_secs()
            ),
            api(facts.now),
        ),
        None => draft.lacks("when kubelet last renewed its Lease"),
    }
    draft.explanation = format!(
        "Only kubelet on {name} can report that the pod has ended, and that node does not report \
        to the control plane. The machine may be off, its network may be cut, or kubelet may be \
        down; the pod may still run there."
    );
    draft.advice(
        format!("repair {name}, its network or its kubelet: kubelet then ends the pod and deletes its record"),
        "none",
    );
    draft.advice(
        format!(
            "only after the machine was seen to be off: set the taint {OUT_OF_SERVICE}=nodeshutdown:NoExecute on {name} \
             (Kubernetes 1.26 or later)"
        ),
        "on a machine that runs, a volume is then written by two nodes, which corrupts its file system",
    );
    Some(draft)
}

fn out_of_service(node: &Object) -> Option<crate::model::remedy::Remedy> {
    let name = &node.metadata.name;
    let taint =
        serde_json::json!({"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"});
    let taint = if node.spec.taints.is_empty() {
        serde_json::json!({"op": "add", "path": "/spec/taints", "value": [taint]})
    } else {
        serde_json::json!({"op": "add", "path": "/spec/taints/-", "value": taint})
    };
    remedy::patch(
        format!(
            "mark {name} as out of service: its pods are deleted, their volumes detached (Kubernetes 1.26 or later)"
        ),
        &key(name),
        &node.metadata,
        &[taint],
        "on a machine that runs, a volume is then written by two nodes, which corrupts its file system; remove the taint when \
         the machine is back",
    )
}

/// The risk that two pods of this owner run at a time.
fn meaning_of_force(pod: &Object) -> String {
    let owner = pod.controller().map_or("", |owner| owner.kind.as_str());
    let what = match owner {
        "StatefulSet" => {
            "a StatefulSet then starts a second pod of the same identity, while the first may still run and write"
        }
        "Job" => "the Job may start another pod, while the first may still run",
        "DaemonSet" => "the DaemonSet starts another pod when the node is back",
        "ReplicaSet" | "ReplicationController" => {
            "a replacement starts if it has not yet, while the first may still run"
        }
        "Node" => "kubelet creates the record of a static pod again",
        _ => "the pod's containers may still run, and nothing shows them any more",
    };
    format!("{what}; its volumes may stay attached")
}

/// Adds the remedy that deletes the record alone, and leaves everything on the node.
fn by_force(draft: &mut Draft, case: &Case, pod: &Object) {
    let does = format!(
        "delete the record of {} alone, after its machine was seen to be off",
        pod.metadata.name
    );
    let forced = remedy::delete(does, &case.key, &pod.metadata, true, meaning_of_force(pod));
    draft.remedies.extend(forced);
}

fn gone(case: &mut Case, pod: &Object, facts: &Facts) {
    if let Some(draft) = control_plane::judge(facts) {
        case.found(draft, facts.now);
    }
    let name = safe(pod.spec.node_name.as_bytes()).into_owned();
    let mut draft = draft(&GONE);
    draft.held_by(Who::object(format!("the node {name}")).and(", which does not exist"));
    draft.fact(
        format!("spec.nodeName is {name}, and the API server has no Node of that name"),
        api(facts.now),
    );
    let age = pod.metadata.deletion_timestamp.map(|end| facts.now.duration_since(end));
    if age.is_none_or(|age| Duration::try_from(age).unwrap_or_default() < COLLECTED) {
        draft.doubt(
            "whether the pod garbage collector is about to delete it: it takes up to two minutes",
        );
    }
    draft.advice(
        "find out why the pod garbage collector does not delete the pod: the log of kube-controller-manager names it",
        "none",
    );
    let does = format!("delete the record of {}, whose node does not exist", pod.metadata.name);
    let risk = "low where the machine is gone; where only the Node object was deleted, the pod's containers may still run on \
        that machine";
    draft.remedies.extend(remedy::delete(does, &case.key, &pod.metadata, true, risk));
    case.found(draft, facts.now);
}
