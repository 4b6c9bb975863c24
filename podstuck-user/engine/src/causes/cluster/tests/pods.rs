use serde_json::{Value, json};

use super::world::{World, commands, deleted, facts, ids, lease, living, overdue_pod, pod, the};
use crate::model::{
    cluster::{Key, Kind},
    evidence::Certainty::{Firm, Likely, Possible},
    remedy::Place,
};
use crate::testing::holder_of;

fn node(ready: &str, more: Value) -> Value {
    let mut node = json!({"metadata": living(None, "n1"),
        "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "NodeStatusUnknown",
            "lastTransitionTime": "2026-11-28T09:40:00Z"}]}});
    node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    node
}

fn heard() -> World {
    World::default()
        .with(Kind::NODE, node("True", json!({})))
        .with(Kind::LEASE, lease("kube-node-lease", "n1", "n1", "2026-11-28T09:59:55.000000Z"))
}

fn silent(ready: &str) -> World {
    World::default()
        .with(Kind::NODE, node(ready, json!({})))
        .with(Kind::LEASE, lease("kube-node-lease", "n1", "n1", "2026-11-28T09:39:00.000000Z"))
}

#[test]
fn a_node_is_not_heard_by_its_lease_and_its_condition() {
    let case =
        silent("Unknown").with(Kind::POD, overdue_pod("cart-0", json!({}))).case(&pod("cart-0"));
    let found = the(&case, "node-not-heard", Firm);
    assert!(
        facts(&found).contains("Ready condition is Unknown since 2026-11-28T09:40:00Z"),
        "{found:#?}"
    );
    assert_eq!(
        (case.examine, holder_of(&found.held_by)),
        (None, "the node n1, which does not report".to_owned())
    );
    // The first remedy is to repair the node.
    assert_eq!(found.remedies[0].command, None);
    let [force] = commands(&found)[..] else { panic!("{:?}", commands(&found)) };
    assert_eq!(
        force,
        "echo '{\"kind\":\"DeleteOptions\",\"apiVersion\":\"v1\",\"gracePeriodSeconds\":0,\"preconditions\":\
         {\"uid\":\"uid-of-cart-0\",\"resourceVersion\":\"77\"}}' | kubectl delete --raw \
         /api/v1/namespaces/shop/pods/cart-0 -f -"
    );
    let forced = found.remedies.iter().find(|it| it.command.is_some()).unwrap();
    assert_eq!(forced.place, Some(Place::Kubectl));
}

#[test]
fn a_node_whose_lease_is_renewed_is_examined() {
    for condition in ["True", "Unknown", "False"] {
        let world = World::default()
            .with(Kind::NODE, node(condition, json!({})))
            .with(Kind::LEASE, lease("kube-node-lease", "n1", "n1", "2026-11-28T09:59:55.000000Z"))
            .with(Kind::POD, overdue_pod("cart-0", json!({})));
        let case = world.case(&pod("cart-0"));
        assert_eq!((ids(&case), case.examine.as_deref()), (vec![], Some("n1")), "{condition}");
    }
}

#[test]
fn a_silent_node_without_a_node_controller_is_not_proven_to_be_silent() {
    let world = silent("True").with(Kind::POD, overdue_pod("cart-0", json!({}))).with(
        Kind::LEASE,
        lease("kube-system", "kube-controller-manager", "cp_1", "2026-11-28T09:30:00Z"),
    );
    the(&world.case(&pod("cart-0")), "node-not-heard", Possible);
    // The same without the right to read Leases.
    let world = World::default()
        .with(Kind::NODE, node("Unknown", json!({})))
        .without_right(Kind::LEASE)
        .with(Kind::POD, overdue_pod("cart-0", json!({})));
    the(&world.case(&pod("cart-0")), "node-not-heard", Possible);
}

#[test]
fn a_node_is_off_only_by_a_taint_that_says_so() {
    let taint = |key: &str| json!({"spec": {"taints": [{"key": key, "effect": "NoExecute"}]}});
    let of = |key: &str| {
        World::default()
            .with(Kind::NODE, node("Unknown", taint(key)))
            .with(Kind::LEASE, lease("kube-node-lease", "n1", "n1", "2026-11-28T09:39:00Z"))
            .with(Kind::POD, overdue_pod("cart-0", json!({})))
            .case(&pod("cart-0"))
    };
    let found = the(&of("node.cloudprovider.kubernetes.io/shutdown"), "node-off", Firm);
    assert!(commands(&found)[0].contains("\"path\":\"/spec/taints/-\""), "{:?}", commands(&found));
    the(&of("node.kubernetes.io/unreachable"), "node-not-heard", Firm);
}

/// A silent node with this `providerID`, last heard at 09:39, and the types of these groups.
fn of_provider(provider: &str, types: &[Kind]) -> World {
    World::default()
        .with_types(types)
        .with(Kind::NODE, node("Unknown", json!({"spec": {"providerID": provider}})))
        .with(Kind::LEASE, lease("kube-node-lease", "n1", "n1", "2026-11-28T09:39:00Z"))
        .with(Kind::POD, overdue_pod("cart-0", json!({})))
}

#[test]
fn a_host_without_power_proves_that_its_node_is_off() {
    let host = |powered: bool, updated: &str, consumer: &str| {
        json!({"metadata": living(Some("m3"), "host-1"), "spec": {"consumerRef": {"kind": "Metal3Machine", "name": consumer}},
            "status": {"poweredOn": powered, "lastUpdated": updated}})
    };
    let at = |host: Value| {
        of_provider("metal3://m3/host-1/machine-1", &[Kind::BARE_METAL_HOST])
            .with(Kind::BARE_METAL_HOST, host)
    };
    let found = the(
        &at(host(false, "2026-11-28T09:41:00Z", "machine-1")).case(&pod("cart-0")),
        "node-off",
        Firm,
    );
    assert!(
        facts(&found).contains("names BareMetalHost m3/host-1, whose status.poweredOn is false"),
        "{}",
        facts(&found)
    );
    // A node without taints has no list of them.
    assert!(
        commands(&found)[0].contains("\"path\":\"/spec/taints\",\"value\":[{"),
        "{:?}",
        commands(&found)
    );
    for (why, world) in [
        ("its power is on", at(host(true, "2026-11-28T09:41:00Z", "machine-1"))),
        (
            "it was seen before kubelet's last report",
            at(host(false, "2026-11-28T09:38:00Z", "machine-1")),
        ),
        ("another machine uses it", at(host(false, "2026-11-28T09:41:00Z", "machine-2"))),
        (
            "it may not be read",
            at(host(false, "2026-11-28T09:41:00Z", "machine-1"))
                .without_right(Kind::BARE_METAL_HOST),
        ),
        (
            "it does not exist",
            at(host(false, "2026-11-28T09:41:00Z", "machine-1")).without("host-1"),
        ),
        (
            "its UID is another one",
            of_provider("baremetalhost:///m3/host-1/other", &[Kind::BARE_METAL_HOST])
                .with(Kind::BARE_METAL_HOST, host(false, "2026-11-28T09:41:00Z", "x")),
        ),
    ] {
        assert_eq!(ids(&world.case(&pod("cart-0"))), ["node-not-heard"], "{why}");
    }
    let openshift =
        of_provider("baremetalhost:///m3/host-1/uid-of-host-1", &[Kind::BARE_METAL_HOST])
            .with(Kind::BARE_METAL_HOST, host(false, "2026-11-28T09:41:00Z", "x"));
    the(&openshift.case(&pod("cart-0")), "node-off", Firm);
}

#[test]
fn a_fenced_node_is_off() {
    for (group, plural, kind) in [
        ("self-node-remediation.medik8s.io", "selfnoderemediations", "SelfNodeRemediation"),
        (
            "fence-agents-remediation.medik8s.io",
            "fenceagentsremediations",
            "FenceAgentsRemediation",
        ),
    ] {
        let fencing = Kind::named(group, "v1alpha1", plural, kind, true);
        let at = |name: &str, status: &str, time: &str| {
            let object = json!({"metadata": living(Some("nhc"), name), "status": {"conditions": [
                {"type": "Processing", "status": "False"},
                {"type": "Succeeded", "status": status, "lastTransitionTime": time}]}});
            of_provider("", std::slice::from_ref(&fencing))
                .with(fencing.clone(), object)
                .case(&pod("cart-0"))
        };
        let found = the(&at("n1", "True", "2026-11-28T09:45:00Z"), "node-off", Firm);
        assert!(facts(&found).contains("the condition Succeeded of"), "{}", facts(&found));
        for (why, case) in [
            ("it has not succeeded", at("n1", "False", "2026-11-28T09:45:00Z")),
            ("it is of another node", at("n2", "True", "2026-11-28T09:45:00Z")),
            ("kubelet has reported since", at("n1", "True", "2026-11-28T09:30:00Z")),
        ] {
            assert_eq!(ids(&case), ["node-not-heard"], "{why}");
        }
    }
}

#[test]
fn a_machine_whose_instance_has_ended_proves_that_its_node_is_off() {
    let openshift = || Kind::named("machine.openshift.io", "v1beta1", "machines", "Machine", true);
    let cluster = || Kind::named("cluster.x-k8s.io", "v1beta1", "machines", "Machine", true);
    let at = |kind: Kind, provider: &str, status: Value| {
        let machine = json!({"metadata": living(Some("machines"), "worker-1"), "spec": {"providerID": provider}, "status": status});
        of_provider("aws:///eu-1a/i-01", std::slice::from_ref(&kind))
            .with(kind, machine)
            .case(&pod("cart-0"))
    };
    let ended = |state: &str| json!({"phase": "Failed", "lastUpdated": "2026-11-28T09:42:00Z", "providerStatus": {"instanceState": state}});
    let found = the(&at(openshift(), "aws:///eu-1a/i-01", ended("terminated")), "node-off", Firm);
    assert!(facts(&found).contains("instanceState is terminated"), "{}", facts(&found));
    the(&at(cluster(), "aws:///eu-1a/i-01", json!({"phase": "Deleted"})), "node-off", Firm);
    for (why, case) in [
        ("it runs", at(openshift(), "aws:///eu-1a/i-01", ended("running"))),
        (
            "it is the machine of another node",
            at(openshift(), "aws:///eu-1a/i-02", ended("terminated")),
        ),
        (
            "its phase alone says nothing",
            at(cluster(), "aws:///eu-1a/i-01", json!({"phase": "Failed"})),
        ),
        ("it is being deleted", at(cluster(), "aws:///eu-1a/i-01", json!({"phase": "Deleting"}))),
    ] {
        assert_eq!(ids(&case), ["node-not-heard"], "{why}");
    }
}

/// A pod of this owner on a node that is off.
fn of_owner(kind: &str, more: Value) -> World {
    let owner = json!({"kind": kind, "name": "cart", "uid": "uid-of-cart", "controller": true});
    let mut pod = overdue_pod("cart-0", json!({"ownerReferences": [owner]}));
    pod["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let taint = json!({"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"});
    World::default()
        .with(Kind::NODE, node("Unknown", json!({"spec": {"taints": [taint]}})))
        .with(Kind::LEASE, lease("kube-node-lease", "n1", "n1", "2026-11-28T09:39:00Z"))
        .with(Kind::POD, pod)
}

fn off(world: World) -> String {
    facts(&the(&world.case(&pod("cart-0")), "node-off", Firm))
}

#[test]
fn what_creates_no_pod_before_this_one_is_gone_is_named() {
    let stateful = off(of_owner("StatefulSet", json!({})));
    assert!(stateful.contains("StatefulSet shop/cart creates no other pod cart-0"), "{stateful}");
    let replaced = |strategy: &str, of_set: u32, of_deployment: u32| {
        let mut set = living(Some("shop"), "cart");
        set["ownerReferences"] =
            json!([{"kind": "Deployment", "name": "web", "uid": "uid-of-web", "controller": true}]);
        let deployment = json!({"metadata": living(Some("shop"), "web"),
            "spec": {"replicas": of_deployment, "strategy": {"type": strategy}}});
        let world = of_owner("ReplicaSet", json!({}))
            .with(Kind::REPLICA_SET, json!({"metadata": set, "spec": {"replicas": of_set}}))
            .with(Kind::DEPLOYMENT, deployment);
        off(world).contains("Deployment shop/web has the strategy Recreate")
    };
    assert!(replaced("Recreate", 0, 1));
    // These pods are replaced already, or not at all.
    assert!(!replaced("RollingUpdate", 0, 1));
    assert!(!replaced("Recreate", 1, 1));
    assert!(!replaced("Recreate", 0, 0));
}

#[test]
fn a_pod_that_waits_for_the_volume_of_a_node_that_is_off_is_named() {
    let volumes =
        json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    let waits = |mode: &str, node: &str, attached: bool| {
        let claim = json!({"metadata": living(Some("shop"), "data"),
            "spec": {"volumeName": "pv-1", "accessModes": [mode]}});
        let attachment = json!({"metadata": living(None, "csi-1"), "status": {"attached": attached},
            "spec": {"nodeName": "n1", "source": {"persistentVolumeName": "pv-1"}}});
        let mut next = json!({"metadata": living(Some("shop"), "cart-1"), "status": {"phase": "Pending"},
            "spec": {"nodeName": node}});
        next["spec"].as_object_mut().unwrap().extend(volumes.as_object().unwrap().clone());
        let world = of_owner("ReplicaSet", volumes.clone())
            .with(Kind::CLAIM, claim)
            .with(Kind::ATTACHMENT, attachment)
            .with(Kind::POD, next);
        off(world).contains(
            "Pod shop/cart-1 on n2 waits for the volume pv-1 of the claim data, which VolumeAttachment csi-1 attaches to n1",
        )
    };
    assert!(waits("ReadWriteOnce", "n2", true));
    assert!(!waits("ReadWriteMany", "n2", true));
    assert!(!waits("ReadWriteOnce", "n1", true));
    assert!(!waits("ReadWriteOnce", "n2", false));
}

#[test]
fn the_risk_of_force_depends_on_the_owner() {
    let of = |kind: &str| {
        let owner = json!({"ownerReferences": [{"kind": kind, "name": "cart", "uid": "u", "controller": true}]});
        let case =
            silent("Unknown").with(Kind::POD, overdue_pod("cart-0", owner)).case(&pod("cart-0"));
        let found = the(&case, "node-not-heard", Firm);
        found.remedies.iter().find(|it| it.command.is_some()).unwrap().risk.clone()
    };
    assert!(of("StatefulSet").contains("second pod of the same identity"), "{}", of("StatefulSet"));
    assert!(of("ReplicaSet").contains("replacement"), "{}", of("ReplicaSet"));
}

#[test]
fn a_pod_whose_node_does_not_exist_was_not_collected() {
    let world = World::default().with(Kind::POD, overdue_pod("cart-0", json!({})));
    let found = the(&world.case(&pod("cart-0")), "node-object-gone", Firm);
    assert!(commands(&found)[0].contains("\"gracePeriodSeconds\":0"), "{found:#?}");
    // The collector takes up to two minutes.
    let young = json!({"deletionTimestamp": "2026-11-28T09:59:00Z"});
    let world = World::default().with(Kind::POD, overdue_pod("cart-0", young));
    the(&world.case(&pod("cart-0")), "node-object-gone", Likely);
    // Without a leader the collector is inactive; that is the first finding.
    let stale = lease("kube-system", "kube-controller-manager", "cp_1", "2026-11-28T09:30:00Z");
    let world =
        World::default().with(Kind::POD, overdue_pod("cart-0", json!({}))).with(Kind::LEASE, stale);
    let case = world.case(&pod("cart-0"));
    assert_eq!(ids(&case), ["control-plane-without-leader", "node-object-gone"]);
    the(&case, "control-plane-without-leader", Firm);
}

#[test]
fn a_node_that_may_not_be_read_is_not_gone() {
    let world = World::default()
        .with(Kind::POD, overdue_pod("cart-0", json!({})))
        .without_right(Kind::NODE);
    let case = world.case(&pod("cart-0"));
    assert_eq!((ids(&case), case.examine.as_deref()), (vec![], Some("n1")));
}

#[test]
fn there_is_nothing_to_examine_on_a_virtual_node_or_on_windows() {
    let of = |labels: Value, annotations: Value| {
        let node =
            json!({"metadata": {"name": "n1", "labels": labels, "annotations": annotations}});
        let world = World::default()
            .with(Kind::NODE, node)
            .with(Kind::POD, overdue_pod("cart-0", json!({})));
        world.case(&pod("cart-0"))
    };
    for case in [
        of(json!({"type": "virtual-kubelet"}), json!({})),
        of(json!({"eks.amazonaws.com/compute-type": "fargate"}), json!({})),
        of(json!({}), json!({"kwok.x-k8s.io/node": "fake"})),
    ] {
        the(&case, "virtual-node", Possible);
        assert_eq!(case.examine, None);
    }
    the(&of(json!({"kubernetes.io/os": "windows"}), json!({})), "windows-node", Possible);
    let linux = of(json!({"kubernetes.io/os": "linux"}), json!({}));
    assert_eq!((ids(&linux), linux.examine.as_deref()), (vec![], Some("n1")));
}

#[test]
fn a_pod_in_its_grace_is_not_stuck() {
    let more = json!({"deletionTimestamp": "2026-11-28T10:00:20Z"});
    let case = heard().with(Kind::POD, overdue_pod("cart-0", more)).case(&pod("cart-0"));
    let found = the(&case, "grace-period-or-prestop", Firm);
    assert!(facts(&found).contains("its grace period of 30 s ends in 20 s"), "{found:#?}");
    assert!(commands(&found).is_empty());
}

#[test]
fn a_pod_that_is_not_deleted_is_said_not_to_be() {
    let world =
        World::default().with(Kind::POD, json!({"metadata": living(Some("shop"), "cart-0")}));
    the(&world.case(&pod("cart-0")), "pod-not-deleted", Firm);
}

#[test]
fn the_record_of_a_static_pod_is_likely_kept_by_its_manifest() {
    let more = json!({"annotations": {"kubernetes.io/config.mirror": "x"}});
    let case = heard().with(Kind::POD, overdue_pod("etcd-n1", more)).case(&pod("etcd-n1"));
    // Whether its processes run is known only on the node.
    the(&case, "mirror-pod-deleted", Likely);
    assert_eq!(case.examine.as_deref(), Some("n1"));
}

#[test]
fn a_finalizer_comes_after_the_node() {
    let more = json!({"finalizers": ["example.com/x"]});
    let case = heard().with(Kind::POD, overdue_pod("cart-0", more.clone())).case(&pod("cart-0"));
    let found = the(&case, "pod-finalizer", Possible);
    assert!(found.later && commands(&found).is_empty());
    // A silent node comes first, too.
    let case = silent("Unknown").with(Kind::POD, overdue_pod("cart-0", more)).case(&pod("cart-0"));
    assert_eq!(case.first().unwrap().id.as_str(), "node-not-heard");
}

#[test]
fn a_finalizer_is_alone_once_the_grace_is_zero() {
    let more = json!({"finalizers": ["a.example.com/x", "b.example.com/y"],
        "managedFields": [
            {"manager": "kubectl-create", "operation": "Update", "time": "2026-11-28T08:00:00Z",
             "fieldsV1": {"f:metadata": {"f:finalizers": {".": {}, "v:\"a.example.com/x\"": {}}}}},
            {"manager": "operator-b", "operation": "Update", "time": "2026-11-28T08:10:00Z",
             "fieldsV1": {"f:metadata": {"f:finalizers": {"v:\"b.example.com/y\"": {}}}}}]});
    let object =
        json!({"metadata": deleted(Some("shop"), "cart-0", more), "spec": {"nodeName": "n1"}});
    // Regardless of the node's state.
    let case = silent("Unknown").with(Kind::POD, object).case(&pod("cart-0"));
    assert_eq!(ids(&case), ["pod-finalizer", "pod-finalizer"]);
    let [first, second] = &case.findings[..] else { panic!() };
    assert_eq!((first.certainty, second.certainty), (Firm, Firm));
    assert!(
        facts(second).contains("operator-b set it at 2026-11-28T08:10:00Z"),
        "{}",
        facts(second)
    );
    assert_eq!(
        commands(second),
        [
            "kubectl --namespace shop patch pod cart-0 --type=json -p '[{\"op\":\"test\",\"path\":\"/metadata/uid\",\
          \"value\":\"uid-of-cart-0\"},{\"op\":\"test\",\"path\":\"/metadata/resourceVersion\",\"value\":\"77\"},\
          {\"op\":\"test\",\"path\":\"/metadata/finalizers/1\",\"value\":\"b.example.com/y\"},\
          {\"op\":\"remove\",\"path\":\"/metadata/finalizers/1\"}]'"
        ]
    );
}

#[test]
fn a_node_that_is_asked_about_is_said_not_to_be_heard() {
    let key = Key::global(Kind::NODE, "n1");
    the(&silent("Unknown").case(&key), "node-not-heard", Firm);
    assert_eq!(ids(&heard().case(&key)), [""; 0]);
}

#[test]
fn what_a_tenant_can_write_is_quoted_or_left_out() {
    let more = json!({"finalizers": ["a'; rm -rf ~ #/x"], "deletionGracePeriodSeconds": 0});
    let object =
        json!({"metadata": deleted(Some("shop"), "cart-0", more), "spec": {"nodeName": "n1"}});
    let case = heard().with(Kind::POD, object).case(&pod("cart-0"));
    assert!(commands(&the(&case, "pod-finalizer", Firm)).is_empty());
    let hostile = Key::of(Kind::POD, "shop", "$(reboot)");
    let object = json!({"metadata": deleted(Some("shop"), "$(reboot)", json!({"finalizers": ["example.com/x"]}))});
    let case = heard().with(Kind::POD, object).case(&hostile);
    assert!(commands(&the(&case, "pod-finalizer", Firm)).is_empty());
}
