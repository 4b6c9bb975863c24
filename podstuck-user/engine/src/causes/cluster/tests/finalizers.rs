use serde_json::{Value, json};

use super::world::{World, commands, deleted, facts, ids, lease, living, pod, the};
use crate::model::{
    cluster::{Answer, Key, Kind, Last, Refusal},
    evidence::Certainty::{Firm, Likely},
};
use crate::testing::holder_of;

const NAME: &str = "kueue.x-k8s.io/managed";

fn kept(finalizer: &str) -> Value {
    let more = json!({"finalizers": [finalizer], "labels": {"app": "cart"}});
    json!({"metadata": deleted(Some("shop"), "cart-0", more), "spec": {"nodeName": "n1"}})
}

fn held_by(holder: &str, renewed: &str) -> World {
    World::default()
        .with(Kind::POD, kept(NAME))
        .with(Kind::LEASE, lease("kueue-system", "c1f6bfd2.kueue.x-k8s.io", holder, renewed))
}

const HOLDER: &str = "kueue-controller-manager-6d9f8b7c5-x2x7z_5b1e";
const OLD: &str = "2026-11-27T10:00:00Z";

fn deployment(available: u32, replicas: u32) -> Value {
    json!({"metadata": living(Some("kueue-system"), "kueue-controller-manager"),
        "spec": {"replicas": replicas}, "status": {"availableReplicas": available, "readyReplicas": available}})
}

#[test]
fn a_controller_is_gone_by_its_lease_its_pod_and_its_workload() {
    let case = held_by(HOLDER, OLD).case(&pod("cart-0"));
    let found = the(&case, "finalizer-controller-gone", Firm);
    assert!(
        facts(&found).contains("Deployment kueue-system/kueue-controller-manager does not exist"),
        "{}",
        facts(&found)
    );
    assert_eq!(commands(&found).len(), 1);
    let none = held_by(HOLDER, OLD).with(Kind::DEPLOYMENT, deployment(0, 0));
    let found = the(&none.case(&pod("cart-0")), "finalizer-controller-gone", Firm);
    assert!(facts(&found).contains("has no available replica of 0"), "{}", facts(&found));
}

/// None of these proves that the controller is gone.
#[test]
fn a_controller_is_not_gone_for_less() {
    let its_pod = json!({"metadata": living(Some("kueue-system"), "kueue-controller-manager-6d9f8b7c5-x2x7z")});
    let other = lease("elsewhere", "0123abcd.kueue.x-k8s.io", "a_b", "2026-11-28T09:59:50Z");
    for (why, world) in [
        ("it renews its Lease", held_by(HOLDER, "2026-11-28T09:59:50Z")),
        ("the pod that holds it exists", held_by(HOLDER, OLD).with(Kind::POD, its_pod)),
        (
            "another replica is available",
            held_by(HOLDER, OLD).with(Kind::DEPLOYMENT, deployment(1, 1)),
        ),
        ("another Lease of the domain is renewed", held_by(HOLDER, OLD).with(Kind::LEASE, other)),
        ("the workload may not be read", held_by(HOLDER, OLD).without_right(Kind::DEPLOYMENT)),
        ("the name of the holder is not that of a workload's pod", held_by("external_5b1e", OLD)),
        ("the holder is no pod", held_by("laptop", OLD)),
        ("the Lease was given back", held_by("", OLD)),
        ("there is no Lease", World::default().with(Kind::POD, kept(NAME))),
        ("Leases may not be read", held_by(HOLDER, OLD).without_right(Kind::LEASE)),
    ] {
        let case = world.case(&pod("cart-0"));
        assert_eq!(ids(&case), ["pod-finalizer"], "{why}");
        the(&case, "pod-finalizer", Firm);
    }
}

#[test]
fn a_controller_that_is_alive_is_examined_by_its_log() {
    let found =
        the(&held_by(HOLDER, "2026-11-28T09:59:50Z").case(&pod("cart-0")), "pod-finalizer", Firm);
    assert!(facts(&found).contains("the controller is alive"), "{}", facts(&found));
    assert_eq!(
        commands(&found)[0],
        "kubectl --namespace kueue-system logs kueue-controller-manager-6d9f8b7c5-x2x7z --all-containers --tail=200"
    );
}

#[test]
fn a_finalizer_that_was_just_to_be_removed_is_not_firm() {
    let mut young = kept(NAME);
    young["metadata"]["deletionTimestamp"] = json!("2026-11-28T09:59:58Z");
    let case = World::default().with(Kind::POD, young).case(&pod("cart-0"));
    the(&case, "pod-finalizer", Likely);
}

#[test]
fn the_control_plane_explains_its_own_finalizers() {
    let claim = |finalizer: &str| {
        let meta = deleted(Some("shop"), "data", json!({"finalizers": [finalizer]}));
        World::default().with(Kind::CLAIM, json!({"metadata": meta})).with(
            Kind::LEASE,
            lease("kube-system", "kube-controller-manager", "cp_1", "2026-11-28T09:30:00Z"),
        )
    };
    let key = Key::of(Kind::CLAIM, "shop", "data");
    let case = claim("kubernetes.io/pvc-protection").case(&key);
    assert_eq!(ids(&case), ["control-plane-without-leader", "object-finalizer"]);
    assert_eq!(ids(&claim("example.com/other").case(&key)), ["object-finalizer"]);
    // With a leader, the protection controller acts.
    let fresh = World::default()
        .with(Kind::CLAIM, json!({"metadata": deleted(Some("shop"), "data", json!({"finalizers": ["kubernetes.io/pvc-protection"]}))}))
        .with(Kind::LEASE, lease("kube-system", "kube-controller-manager", "cp_1", "2026-11-28T09:59:50Z"));
    assert_eq!(ids(&fresh.case(&key)), ["object-finalizer"]);
}

fn webhook(rules: Value, more: Value) -> Value {
    let mut hook = json!({"name": "v.example.com", "failurePolicy": "Fail", "rules": [rules],
        "clientConfig": {"service": {"namespace": "guard", "name": "webhook"}}});
    hook.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"metadata": living(None, "guard"), "webhooks": [hook]})
}

fn pods(operation: &str) -> Value {
    json!({"operations": [operation], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "scope": "*"})
}

fn service(kind: &str) -> Value {
    json!({"metadata": living(Some("guard"), "webhook"), "spec": {"type": kind}})
}

fn slice(ready: Value) -> Value {
    let mut meta = living(Some("guard"), "webhook-x");
    meta["labels"] = json!({"kubernetes.io/service-name": "webhook"});
    json!({"metadata": meta, "endpoints": [{"conditions": {"ready": ready}}]})
}

#[test]
fn a_webhook_that_nothing_answers_comes_first() {
    let guarded = |hook: Value| {
        World::default()
            .with(Kind::POD, kept("example.com/x"))
            .with(Kind::NAMESPACE, json!({"metadata": {"name": "shop", "labels": {"team": "a"}}}))
            .with(Kind::VALIDATING, hook)
    };
    let case = guarded(webhook(pods("UPDATE"), json!({}))).case(&pod("cart-0"));
    assert_eq!(ids(&case), ["webhook-unavailable", "pod-finalizer"]);
    let found = the(&case, "webhook-unavailable", Firm);
    let last = *commands(&found).last().unwrap();
    assert!(
        last.contains("patch validatingwebhookconfigurations.admissionregistration.k8s.io guard"),
        "{last}"
    );
    assert!(
        last.contains("\"path\":\"/webhooks/0/failurePolicy\"") && last.contains("uid-of-guard"),
        "{last}"
    );
    // An endpoint that is not ready does not count.
    let empty =
        guarded(webhook(pods("UPDATE"), json!({}))).with(Kind::SERVICE, service("ClusterIP"));
    the(&empty.case(&pod("cart-0")), "webhook-unavailable", Firm);
    let down =
        guarded(webhook(pods("*"), json!({}))).with(Kind::ENDPOINT_SLICE, slice(json!(false)));
    the(&down.case(&pod("cart-0")), "webhook-unavailable", Firm);
    // Unevaluated matchConditions leave a doubt.
    let matched =
        webhook(pods("UPDATE"), json!({"matchConditions": [{"name": "a", "expression": "true"}]}));
    the(&guarded(matched).case(&pod("cart-0")), "webhook-unavailable", Likely);
    let unread = guarded(webhook(pods("UPDATE"), json!({}))).without_right(Kind::NAMESPACE);
    the(&unread.case(&pod("cart-0")), "webhook-unavailable", Likely);
}

/// A program that serves webhooks of a domain mostly removes its finalizers, too.
#[test]
fn the_webhooks_of_a_domain_are_a_sign_of_its_controller_and_no_proof() {
    let said = |finalizer: &str, name: &str, groups: Value, ready: bool| {
        let rule = json!({"operations": ["CREATE"], "apiGroups": groups, "apiVersions": ["v1"], "resources": ["jobs"]});
        let world = World::default()
            .with(Kind::POD, kept(finalizer))
            .with(Kind::VALIDATING, webhook(rule, json!({"name": name})))
            .with(Kind::SERVICE, service("ClusterIP"))
            .with(Kind::ENDPOINT_SLICE, slice(json!(ready)));
        let case = world.case(&pod("cart-0"));
        assert_eq!(ids(&case), ["pod-finalizer"], "a sign is no proof");
        facts(&the(&case, "pod-finalizer", Firm))
    };
    let of_all = || json!(["*"]);
    let up = said("queue.example.com/held", "vjob.queue.example.com", of_all(), true);
    assert!(up.contains("served by guard/webhook, which has a ready endpoint"), "{up}");
    let down = said("queue.example.com/held", "vjob.kb.io", json!(["queue.example.com"]), false);
    assert!(down.contains("served by guard/webhook, which has no ready endpoint"), "{down}");
    for (why, facts) in [
        (
            "the webhook is of another domain",
            said("queue.example.com/held", "v.other.com", of_all(), false),
        ),
        (
            "the webhook is of the domain above",
            said("queue.example.com/held", "v.example.com", of_all(), false),
        ),
        (
            "a part of a word is no domain",
            said("queue.example.com/held", "my-queue.example.com", of_all(), false),
        ),
        ("the finalizer has no domain", said("held", "held", of_all(), false)),
        (
            "it is Kubernetes' own",
            said("batch.kubernetes.io/x", "v.batch.kubernetes.io", of_all(), false),
        ),
    ] {
        assert!(!facts.contains("the webhooks of"), "{why}: {facts}");
    }
}

#[test]
fn a_webhook_that_is_not_called_or_is_answered_keeps_nothing() {
    let guarded = |hook: Value| {
        World::default()
            .with(Kind::POD, kept("example.com/x"))
            .with(Kind::NAMESPACE, json!({"metadata": {"name": "shop", "labels": {"team": "a"}}}))
            .with(Kind::MUTATING, hook)
            .with(Kind::SERVICE, service("ClusterIP"))
    };
    let named = World::default()
        .with(Kind::POD, kept("example.com/x"))
        .with(Kind::NAMESPACE, json!({"metadata": {"name": "shop"}}))
        .with(Kind::SERVICE, service("ExternalName"));
    let exact = json!({"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1beta1"], "resources": ["pods"]});
    let plain = || webhook(pods("UPDATE"), json!({}));
    let of = |group: &str, resource: &str| json!({"operations": ["*"], "apiGroups": [group], "resources": [resource]});
    for (why, world) in [
        (
            "it is answered under another name",
            named.with(Kind::MUTATING, webhook(pods("UPDATE"), json!({}))),
        ),
        ("its service may not be read", guarded(plain()).without_right(Kind::SERVICE)),
        ("it is for another version", guarded(webhook(exact, json!({"matchPolicy": "Exact"})))),
        ("it is answered", guarded(plain()).with(Kind::ENDPOINT_SLICE, slice(json!(true)))),
        ("ready is left out", guarded(plain()).with(Kind::ENDPOINT_SLICE, slice(Value::Null))),
        ("endpoints may not be read", guarded(plain()).without_right(Kind::ENDPOINT_SLICE)),
        ("it is for deletions", guarded(webhook(pods("DELETE"), json!({})))),
        ("it is for another type", guarded(webhook(of("", "services"), json!({})))),
        ("it is for another group", guarded(webhook(of("apps", "*"), json!({})))),
        ("it is for a part", guarded(webhook(of("", "pods/status"), json!({})))),
        ("it may fail", guarded(webhook(pods("*"), json!({"failurePolicy": "Ignore"})))),
        (
            "it is for another namespace",
            guarded(webhook(
                pods("*"),
                json!({"namespaceSelector": {"matchLabels": {"team": "b"}}}),
            )),
        ),
        (
            "it is for other objects",
            guarded(webhook(pods("*"), json!({"objectSelector": {"matchLabels": {"app": "b"}}}))),
        ),
        (
            "it is elsewhere",
            guarded(webhook(pods("*"), json!({"clientConfig": {"url": "https://example.com"}}))),
        ),
    ] {
        assert_eq!(ids(&world.case(&pod("cart-0"))), ["pod-finalizer"], "{why}");
    }
}

#[test]
fn a_dead_webhook_keeps_kubelet_from_deleting_what_has_ended() {
    let node = json!({"metadata": living(None, "n1"), "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let world = |state: Value| {
        let meta = deleted(Some("shop"), "cart-0", json!({"deletionGracePeriodSeconds": 30}));
        World::default()
            .with(
                Kind::POD,
                json!({"metadata": meta, "spec": {"nodeName": "n1"},
                "status": {"containerStatuses": [{"name": "a", "state": state}]}}),
            )
            .with(Kind::NODE, node.clone())
            .with(Kind::LEASE, lease("kube-node-lease", "n1", "n1", "2026-11-28T09:59:55Z"))
            .with(Kind::NAMESPACE, json!({"metadata": {"name": "shop"}}))
            .with(Kind::VALIDATING, webhook(pods("DELETE"), json!({})))
    };
    let case = world(json!({"terminated": {"exitCode": 0}})).case(&pod("cart-0"));
    the(&case, "webhook-unavailable", Likely);
    assert_eq!(case.examine.as_deref(), Some("n1"));
    assert_eq!(ids(&world(json!({"running": {}})).case(&pod("cart-0"))), [""; 0]);
}

/// kyverno#16281
#[test]
fn a_last_request_that_admission_denies_is_shown_by_a_dry_run() {
    let denied = |_: Last| {
        let message = "admission webhook \"v.example.com\" denied the request: not by nodes";
        Answer::Refused(Refusal::of(400, message).unwrap())
    };
    let world = |state: &str| {
        let meta = deleted(Some("shop"), "cart-0", json!({"deletionGracePeriodSeconds": 30}));
        let status = json!({"containerStatuses": [{"name": "a", "state": {state: {}}}]});
        let condition = json!({"type": "Ready", "status": "True"});
        World::default()
            .with(
                Kind::NODE,
                json!({"metadata": living(None, "n1"), "status": {"conditions": [condition]}}),
            )
            .with(Kind::LEASE, lease("kube-node-lease", "n1", "n1", "2026-11-28T09:59:55Z"))
            .with(
                Kind::POD,
                json!({"metadata": meta, "spec": {"nodeName": "n1"}, "status": status}),
            )
            .with(Kind::NAMESPACE, json!({"metadata": {"name": "shop"}}))
            .with(Kind::SERVICE, service("ClusterIP"))
            .with(Kind::ENDPOINT_SLICE, slice(json!(true)))
            .with(Kind::VALIDATING, webhook(pods("*"), json!({})))
    };
    // Without the option nothing is tried.
    assert_eq!(ids(&world("terminated").case(&pod("cart-0"))), [""; 0]);
    let case = world("terminated").with_last_requests(denied).case(&pod("cart-0"));
    assert_eq!(ids(&case), ["status-update-refused", "status-update-refused"]);
    // Whether kubelet has come so far is for the node to say.
    assert_eq!(case.examine.as_deref(), Some("n1"));
    let [deletion, status] = &case.findings[..] else { panic!("{:?}", ids(&case)) };
    assert_eq!((deletion.certainty, deletion.later), (Likely, false));
    let fact = facts(deletion);
    assert!(
        fact.contains("refuses the deletion of the pod's record by system:node:n1, in a dry run"),
        "{fact}"
    );
    let [show, exempt] = commands(deletion)[..] else { panic!("{:?}", commands(deletion)) };
    assert!(show.starts_with("kubectl get validatingwebhookconfigurations"), "{show}");
    assert!(exempt.contains(r#""value":["CREATE","UPDATE","CONNECT"]"#), "{exempt}");
    assert!(
        facts(status).contains("refuses the update of the pod's status by system:node:n1"),
        "{}",
        facts(status)
    );
    // The webhook is not called for the subresource.
    assert_eq!(commands(status).len(), 2, "{:?}", commands(status));
    // Containers run: the deletion comes later, while the status matters now.
    let case = world("running").with_last_requests(denied).case(&pod("cart-0"));
    let later: Vec<bool> = case.findings.iter().map(|found| found.later).collect();
    assert_eq!(later, [true, false]);
    assert!(case.findings[0].certainty < Likely, "{:?}", case.findings[0].certainty);
    let admitted =
        world("terminated").with_last_requests(|_| Answer::Admitted).case(&pod("cart-0"));
    assert_eq!(ids(&admitted), [""; 0]);
    // A webhook without endpoints explains both without a dry run.
    let dead = World::default()
        .with(Kind::NAMESPACE, json!({"metadata": {"name": "shop"}}))
        .with(Kind::NODE, json!({"metadata": living(None, "n1"), "status": {"conditions": [{"type": "Ready", "status": "True"}]}}))
        .with(Kind::LEASE, lease("kube-node-lease", "n1", "n1", "2026-11-28T09:59:55Z"))
        .with(Kind::POD, json!({"metadata": deleted(Some("shop"), "cart-0", json!({"deletionGracePeriodSeconds": 30})),
            "spec": {"nodeName": "n1"}, "status": {"containerStatuses": [{"name": "a", "state": {"terminated": {}}}]}}))
        .with(Kind::VALIDATING, webhook(pods("*"), json!({})))
        .with_last_requests(denied);
    assert_eq!(ids(&dead.case(&pod("cart-0"))), ["webhook-unavailable"]);
}

#[test]
fn foreground_deletion_is_followed_to_the_leaf() {
    let owner = |kind: &str, name: &str| json!({"kind": kind, "name": name, "uid": format!("uid-of-{name}"), "controller": true, "blockOwnerDeletion": true});
    let kept_by = |name: &str, finalizer: &str, owners: Value| json!({"metadata": deleted(Some("shop"), name, json!({"finalizers": [finalizer], "ownerReferences": owners}))});
    let world = World::default()
        .with(Kind::DEPLOYMENT, kept_by("cart", "foregroundDeletion", json!([])))
        .with(
            Kind::REPLICA_SET,
            kept_by("cart-1", "foregroundDeletion", json!([owner("Deployment", "cart")])),
        )
        .with(
            Kind::POD,
            kept_by("cart-1-a", "example.com/x", json!([owner("ReplicaSet", "cart-1")])),
        );
    let judged = world.judged(&Key::of(Kind::DEPLOYMENT, "shop", "cart"));
    the(&judged.case, "foreground-dependents", Firm);
    let names: Vec<_> = judged.below.iter().map(|case| case.key.name.as_str()).collect();
    assert_eq!(names, ["cart-1", "cart-1-a"]);
    the(judged.leaf(), "pod-finalizer", Firm);
    let links = judged.links();
    assert_eq!(links.len(), 3);
    assert_eq!(links[0].waits_for.as_deref(), Some("ReplicaSet shop/cart-1"));
    assert_eq!(links[2].waits_for.as_deref(), Some("the finalizer example.com/x"));
    // A non-blocking dependent, and one of another owner with that name, keep nothing.
    let mut other = owner("Deployment", "cart");
    other["uid"] = json!("another");
    let mut free = owner("Deployment", "cart");
    free["blockOwnerDeletion"] = json!(false);
    for owners in [json!([other]), json!([free])] {
        let world = World::default()
            .with(Kind::DEPLOYMENT, kept_by("cart", "foregroundDeletion", json!([])))
            .with(Kind::REPLICA_SET, kept_by("cart-1", "example.com/x", owners));
        let judged = world.judged(&Key::of(Kind::DEPLOYMENT, "shop", "cart"));
        assert_eq!((ids(&judged.case), judged.below.len()), (vec!["object-finalizer"], 0));
    }
}

/// A pod of the Job `once` with its tracking finalizer.
fn of_job(phase: &str) -> World {
    let more = json!({"finalizers": ["batch.kubernetes.io/job-tracking"],
        "ownerReferences": [{"kind": "Job", "name": "once", "uid": "uid-of-once", "controller": true}]});
    let object = json!({"metadata": deleted(Some("shop"), "cart-0", more), "spec": {"nodeName": "n1"},
        "status": {"phase": phase}});
    World::default().with(Kind::POD, object)
}

/// kubernetes#121828
#[test]
fn the_job_of_a_tracked_pod_shows_when_its_finalizer_is_removed() {
    let fact = |world: World| facts(&the(&world.case(&pod("cart-0")), "pod-finalizer", Firm));
    let job = |policy: &str| json!({"metadata": living(Some("shop"), "once"), "spec": {"podReplacementPolicy": policy}});
    let waits = "Job shop/once has the podReplacementPolicy Failed";
    let is_waiting =
        |phase, policy| fact(of_job(phase).with(Kind::JOB, job(policy))).contains(waits);
    assert!(is_waiting("Running", "Failed"));
    assert!(!is_waiting("Failed", "Failed"));
    assert!(!is_waiting("Running", "TerminatingOrFailed"));
    assert!(fact(of_job("Running")).contains("the pod's Job shop/once does not exist"));
    let mut other = job("Failed");
    other["metadata"]["uid"] = json!("another");
    let replaced = fact(of_job("Running").with(Kind::JOB, other));
    assert!(replaced.contains("Job shop/once was replaced"), "{replaced}");
    let unread = fact(of_job("Running").without_right(Kind::JOB));
    assert!(!unread.contains("Job shop/once"), "{unread}");
}

#[test]
fn a_pod_that_was_deleted_by_force_may_still_run() {
    let of = |state: &str, conditions: Value| {
        let mut object = kept("example.com/x");
        object["status"] = json!({"conditions": conditions,
            "containerStatuses": [{"name": "web", "state": {state: {}}}]});
        facts(&the(
            &World::default().with(Kind::POD, object).case(&pod("cart-0")),
            "pod-finalizer",
            Firm,
        ))
    };
    let unreported = "kubelet has not reported that web has ended: ";
    assert!(of("running", json!([])).contains(&format!("{unreported}a client, as with --force,")));
    assert!(!of("terminated", json!([])).contains(unreported));
    let collected = of(
        "running",
        json!([{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists"}]),
    );
    assert!(
        collected.contains(&format!("{unreported}the pod garbage collector deleted")),
        "{collected}"
    );
    let why = "who deleted it: DeletionByPodGC, PodGC: node no longer exists";
    assert!(collected.contains(why), "{collected}");
}

/// The pod of a Job, with a webhook that is answered, and the answer to the Job controller's request.
fn refused(status: u16, message: &str) -> World {
    let answer = Refusal::of(status, message).map_or(Answer::Admitted, Answer::Refused);
    let world = of_job("Succeeded")
        .with(Kind::NAMESPACE, json!({"metadata": {"name": "shop"}}))
        .with(Kind::SERVICE, service("ClusterIP"))
        .with(Kind::ENDPOINT_SLICE, slice(json!(true)))
        .with(Kind::VALIDATING, webhook(pods("*"), json!({})));
    world.with_removal(answer)
}

fn with_account(world: World) -> World {
    let kind = Kind::named("", "v1", "serviceaccounts", "ServiceAccount", true);
    world.with(kind, json!({"metadata": living(Some("kube-system"), "job-controller")}))
}

/// kyverno#8815
#[test]
fn a_denied_removal_is_firm_by_a_dry_run() {
    let denied =
        || refused(400, "admission webhook \"v.example.com\" denied the request: no label");
    let case = with_account(denied()).case(&pod("cart-0"));
    assert_eq!(ids(&case), ["finalizer-removal-refused", "pod-finalizer"]);
    let found = the(&case, "finalizer-removal-refused", Firm);
    assert!(facts(&found).contains("denied the request: no label"), "{}", facts(&found));
    let [show, exempt] = commands(&found)[..] else { panic!("{:?}", commands(&found)) };
    assert!(show.starts_with("kubectl get validatingwebhookconfigurations"), "{show}");
    assert!(exempt.contains(r#""value":["CREATE","DELETE","CONNECT"]"#), "{exempt}");
    assert!(exempt.contains("/webhooks/0/rules/0/operations"), "{exempt}");
    // Without its service account, the controller has another user name.
    the(&denied().case(&pod("cart-0")), "finalizer-removal-refused", Likely);
    // A webhook of that name in two configurations: the message does not say which one denies.
    let two = with_account(denied()).with(Kind::MUTATING, webhook(pods("*"), json!({})));
    let found = the(&two.case(&pod("cart-0")), "finalizer-removal-refused", Firm);
    assert_eq!(commands(&found).len(), 0);
}

#[test]
fn what_refuses_a_removal_is_named() {
    for (status, message, certainty, held_by) in [
        (
            500,
            "Internal error occurred: failed calling webhook \"v.example.com\": Post \"https://x\": EOF",
            Likely,
            "the webhook v.example.com, whose call fails",
        ),
        (
            422,
            "pods \"cart-0\" is forbidden: ValidatingAdmissionPolicy 'lock' with binding 'b' denied request: no",
            Firm,
            "the ValidatingAdmissionPolicy lock",
        ),
        (
            422,
            "Pod \"cart-0\" is invalid: spec: Forbidden: pod updates may not change fields",
            Firm,
            "admission, after which the object is not valid",
        ),
    ] {
        let case = with_account(refused(status, message)).case(&pod("cart-0"));
        let found = the(&case, "finalizer-removal-refused", certainty);
        assert_eq!(holder_of(&found.held_by), held_by);
    }
}

#[test]
fn a_removal_is_tried_only_if_that_is_asked_for_and_matters() {
    let command = "kubectl podstuck pod/cart-0 --namespace shop --via-dry-run";
    let asks = |world: World| {
        let case = world.case(&pod("cart-0"));
        assert_eq!(case.findings.last().unwrap().id.as_str(), "pod-finalizer");
        commands(case.findings.last().unwrap()).contains(&command)
    };
    assert!(asks(of_job("Succeeded")));
    let admitted = refused(200, "").case(&pod("cart-0"));
    let fact = facts(&the(&admitted, "pod-finalizer", Firm));
    assert!(fact.contains("in a dry run, the API server admits the removal"), "{fact}");
    let denied = || {
        let message = "admission webhook \"v.example.com\" denied the request: no label";
        Answer::Refused(Refusal::of(400, message).unwrap())
    };
    // The missing endpoint explains the refusal.
    let dead = of_job("Succeeded")
        .with(Kind::NAMESPACE, json!({"metadata": {"name": "shop"}}))
        .with(Kind::VALIDATING, webhook(pods("UPDATE"), json!({})));
    assert!(!asks(dead));
    // The controller of another finalizer has a user name that is not known.
    let other = World::default().with(Kind::POD, kept("example.com/x")).with_removal(denied());
    assert_eq!(ids(&other.case(&pod("cart-0"))), ["pod-finalizer"]);
}
