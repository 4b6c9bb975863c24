use serde_json::{Value, json};

use super::world::{World, commands, deleted, facts, ids, lease, living, overdue_pod, the};
use crate::model::{
    cluster::{Key, Kind},
    evidence::Certainty::{Firm, Likely},
};

fn claim(finalizer: &str) -> Value {
    json!({"metadata": deleted(Some("shop"), "data", json!({"finalizers": [finalizer]}))})
}

fn key() -> Key {
    Key::of(Kind::CLAIM, "shop", "data")
}

fn user(name: &str, node: &str, claim: &str) -> Value {
    json!({"metadata": living(Some("shop"), name), "status": {"phase": "Running"},
        "spec": {"nodeName": node, "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}})
}

#[test]
fn a_claim_is_in_use_by_pods_that_have_a_node() {
    let world = World::default()
        .with(Kind::CLAIM, claim("kubernetes.io/pvc-protection"))
        .with(Kind::POD, user("cart-0", "n1", "data"));
    let judged = world.judged(&key());
    let found = the(&judged.case, "claim-in-use", Firm);
    assert!(
        facts(&found).contains("the pod cart-0 on n1 names the claim, and is in the phase Running")
    );
    assert_eq!(
        commands(&found),
        [
            "echo '{\"kind\":\"DeleteOptions\",\"apiVersion\":\"v1\",\"preconditions\":{\"uid\":\"uid-of-cart-0\"}}' | \
          kubectl delete --raw /api/v1/namespaces/shop/pods/cart-0 -f -"
        ]
    );
    // The claim of an ephemeral volume is named after pod and volume.
    let mut ephemeral = user("cart", "n1", "");
    ephemeral["spec"]["volumes"] =
        json!([{"name": "data", "ephemeral": {"volumeClaimTemplate": {}}}]);
    let own = json!({"metadata": deleted(Some("shop"), "cart-data", json!({"finalizers": ["kubernetes.io/pvc-protection"]}))});
    let world = World::default().with(Kind::CLAIM, own).with(Kind::POD, ephemeral);
    the(&world.case(&Key::of(Kind::CLAIM, "shop", "cart-data")), "claim-in-use", Firm);
}

#[test]
fn a_claim_is_not_in_use_by_others() {
    for (why, finalizer, pod) in [
        ("the pod has no node", "kubernetes.io/pvc-protection", user("cart-0", "", "data")),
        (
            "the pod names another claim",
            "kubernetes.io/pvc-protection",
            user("cart-0", "n1", "other"),
        ),
        (
            "the finalizer is another one",
            "snapshot.storage.kubernetes.io/pvc-as-source-protection",
            user("cart-0", "n1", "data"),
        ),
    ] {
        let world = World::default().with(Kind::CLAIM, claim(finalizer)).with(Kind::POD, pod);
        let case = world.case(&key());
        assert_eq!(ids(&case), ["object-finalizer"], "{why}");
    }
}

#[test]
fn a_pod_that_does_not_go_is_the_leaf_of_its_claim() {
    let mut pod = overdue_pod("cart-1", json!({}));
    pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    let world = World::default()
        .with(Kind::CLAIM, claim("kubernetes.io/pvc-protection"))
        .with(Kind::POD, user("cart-0", "n1", "data"))
        .with(Kind::POD, pod);
    let judged = world.judged(&key());
    assert_eq!(judged.leaf().key.name, "cart-1");
    the(judged.leaf(), "node-object-gone", Firm);
    assert_eq!(
        commands(&judged.case.findings[0])[0],
        "kubectl podstuck pod/cart-1 --namespace shop"
    );
}

fn volume(finalizer: &str, phase: &str) -> Value {
    json!({"metadata": deleted(None, "pv-1", json!({"finalizers": [finalizer]})), "status": {"phase": phase},
        "spec": {"claimRef": {"namespace": "shop", "name": "data", "uid": "uid-of-data"}}})
}

#[test]
fn a_volume_is_kept_by_its_claim() {
    let key = Key::global(Kind::VOLUME, "pv-1");
    let living_claim = || json!({"metadata": living(Some("shop"), "data")});
    let world = |phase: &str| {
        World::default()
            .with(Kind::VOLUME, volume("kubernetes.io/pv-protection", phase))
            .with(Kind::CLAIM, living_claim())
    };
    the(&world("Bound").case(&key), "volume-bound", Firm);
    assert_eq!(ids(&world("Released").case(&key)), ["object-finalizer"]);
    let mut other = living_claim();
    other["metadata"]["uid"] = json!("made again");
    let world = World::default()
        .with(Kind::VOLUME, volume("kubernetes.io/pv-protection", "Bound"))
        .with(Kind::CLAIM, other);
    assert_eq!(ids(&world.case(&key)), ["object-finalizer"]);
}

fn attachment(volume: &str, status: Value) -> Value {
    json!({"metadata": deleted(None, "csi-1", json!({"finalizers": ["external-attacher/disk-example-com"]})),
        "spec": {"attacher": "disk.example.com", "nodeName": "n1", "source": {"persistentVolumeName": volume}},
        "status": status})
}

#[test]
fn a_volume_is_kept_by_its_attachment_and_that_by_the_storage() {
    let error = json!({"attached": true, "detachError": {"time": "2026-11-28T09:58:00Z", "message": "disk is busy"}});
    let key = Key::global(Kind::VOLUME, "pv-1");
    let world = World::default()
        .with(Kind::VOLUME, volume("external-attacher/disk-example-com", "Released"))
        .with(Kind::ATTACHMENT, attachment("pv-1", error.clone()));
    let judged = world.judged(&key);
    the(&judged.case, "volume-attached", Firm);
    let found = the(judged.leaf(), "volume-detach-fails", Firm);
    assert!(
        facts(&found).contains("disk is busy")
            && facts(&found).contains("the node n1 does not exist")
    );
    // Another volume's attachment keeps nothing.
    let world = World::default()
        .with(Kind::VOLUME, volume("external-attacher/disk-example-com", "Released"))
        .with(Kind::ATTACHMENT, attachment("pv-2", error));
    assert_eq!(ids(&world.case(&key)), ["object-finalizer"]);
}

#[test]
fn an_attachment_of_a_volume_that_is_gone_is_not_the_storages_fault() {
    let key = Key::global(Kind::ATTACHMENT, "csi-1");
    let error = json!({"detachError": {"message": "persistentvolume \"pv-1\" not found"}});
    let found = the(
        &World::default().with(Kind::ATTACHMENT, attachment("pv-1", error.clone())).case(&key),
        "attached-volume-gone",
        Firm,
    );
    assert!(commands(&found)[0].contains("patch volumeattachment csi-1"), "{:?}", commands(&found));
    // A volume that may not be read is not proven to be gone.
    let world = World::default()
        .with(Kind::ATTACHMENT, attachment("pv-1", error))
        .without_right(Kind::VOLUME);
    let case = world.case(&key);
    assert_eq!(ids(&case), ["volume-detach-fails"]);
    assert_ne!(case.findings[0].certainty, Firm);
    // Without an error, the attacher has to act.
    let there = World::default()
        .with(Kind::ATTACHMENT, attachment("pv-1", json!({})))
        .with(Kind::VOLUME, json!({"metadata": living(None, "pv-1")}));
    assert_eq!(ids(&there.case(&key)), ["object-finalizer"]);
}

/// A volume of the claim `data` that is attached to n1, whose kubelet reported at `renewed` and lists this volume as in
/// use.
fn attached(deleted_too: bool, in_use: &str, renewed: &str) -> World {
    let meta = if deleted_too {
        deleted(None, "csi-1", json!({"finalizers": ["external-attacher/disk-example-com"]}))
    } else {
        living(None, "csi-1")
    };
    let attachment = json!({"metadata": meta, "status": {"attached": true},
        "spec": {"attacher": "disk.example.com", "nodeName": "n1", "source": {"persistentVolumeName": "pv-1"}}});
    let volume = json!({"metadata": living(None, "pv-1"), "spec": {
        "csi": {"driver": "disk.example.com", "volumeHandle": "v1"},
        "claimRef": {"namespace": "shop", "name": "data", "uid": "uid-of-data"}}});
    let claim = json!({"metadata": living(Some("shop"), "data"),
        "spec": {"volumeName": "pv-1", "accessModes": ["ReadWriteOnce"]}});
    let node = json!({"metadata": living(None, "n1"), "status": {"volumesInUse": [in_use]}});
    World::default()
        .with(Kind::ATTACHMENT, attachment)
        .with(Kind::VOLUME, volume)
        .with(Kind::CLAIM, claim)
        .with(Kind::NODE, node)
        .with(Kind::LEASE, lease("kube-node-lease", "n1", "n1", renewed))
}

const THIS: &str = "kubernetes.io/csi/disk.example.com^v1";
const HEARD: &str = "2026-11-28T09:59:55Z";

/// The pod cart-0 on n1, which is being deleted and uses the claim.
fn leaving() -> Value {
    let mut pod = overdue_pod("cart-0", json!({}));
    pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    pod
}

/// The pod cart-1 on n2, which has not started.
fn coming() -> Value {
    let mut pod = user("cart-1", "n2", "data");
    pod["status"]["phase"] = json!("Pending");
    pod
}

fn csi_1() -> Key {
    Key::global(Kind::ATTACHMENT, "csi-1")
}

#[test]
fn a_volume_that_kubelet_still_uses_is_examined_on_its_node() {
    for deleted_too in [true, false] {
        let world =
            attached(deleted_too, THIS, HEARD).with(Kind::POD, leaving()).with(Kind::POD, coming());
        let judged = world.judged(&csi_1());
        let found = the(&judged.case, "volume-in-use-on-node", Firm);
        let fact = facts(&found);
        assert!(
            fact.contains(
                "status.volumesInUse of Node n1 has kubernetes.io/csi/disk.example.com^v1"
            ),
            "{fact}"
        );
        assert!(fact.contains("Pod shop/cart-0 on n1 uses it, and is being deleted"), "{fact}");
        assert!(fact.contains("Pod shop/cart-1 on n2 waits for it"), "{fact}");
        assert_eq!(commands(&found), ["kubectl podstuck pod/cart-0 --namespace shop"]);
        // The pod's node has to be examined.
        let leaf = judged.leaf();
        assert_eq!((leaf.key.name.as_str(), leaf.examine.as_deref()), ("cart-0", Some("n1")));
    }
    // The record of the pod is gone.
    let found = the(&attached(false, THIS, HEARD).case(&csi_1()), "volume-in-use-on-node", Firm);
    assert!(facts(&found).contains("no pod on n1 uses its claim"), "{}", facts(&found));
    assert_eq!(commands(&found), [""; 0]);
    // A PersistentVolume that waits for its attachment.
    let mut volume = volume("external-attacher/disk-example-com", "Released");
    volume["spec"]["csi"] = json!({"driver": "disk.example.com", "volumeHandle": "v1"});
    let world = attached(false, THIS, HEARD)
        .without("pv-1")
        .with(Kind::VOLUME, volume)
        .with(Kind::POD, leaving());
    let judged = world.judged(&Key::global(Kind::VOLUME, "pv-1"));
    the(&judged.case, "volume-in-use-on-node", Firm);
    assert_eq!(judged.leaf().key.name, "cart-0");
}

#[test]
fn a_volume_is_in_use_by_kubelets_list_alone() {
    let other = "kubernetes.io/csi/disk.example.com^v2";
    let world = attached(true, other, HEARD).with(Kind::POD, leaving());
    assert_eq!(ids(&world.case(&csi_1())), ["object-finalizer"]);
    // A node that does not report has an old list.
    let silent = attached(false, THIS, "2026-11-28T09:39:00Z");
    the(&silent.case(&csi_1()), "volume-in-use-on-node", Likely);
    // A pod runs with it: nothing is to be released.
    let runs = attached(false, THIS, HEARD).with(Kind::POD, user("cart-2", "n1", "data"));
    assert_eq!(ids(&runs.case(&csi_1())), [""; 0]);
    // Without the right to read pods it is not known whether one does.
    let unread = attached(false, THIS, HEARD).without_right(Kind::POD);
    assert_eq!(ids(&unread.case(&csi_1())), [""; 0]);
}

#[test]
fn a_pod_that_waits_for_a_volume_leads_to_the_pod_that_has_it() {
    let key = Key::of(Kind::POD, "shop", "cart-1");
    let world =
        |pod: Value| attached(false, THIS, HEARD).with(Kind::POD, leaving()).with(Kind::POD, pod);
    let judged = world(coming()).judged(&key);
    let found = the(&judged.case, "pod-not-deleted", Firm);
    let fact = facts(&found);
    assert!(
        fact.contains("VolumeAttachment csi-1 attaches the volume pv-1 of its claim data to n1"),
        "{fact}"
    );
    assert_eq!(judged.leaf().key.name, "cart-0");
    // It runs, or is on the same node.
    for (phase, node) in [("Running", "n2"), ("Pending", "n1")] {
        let mut pod = coming();
        pod["status"]["phase"] = json!(phase);
        pod["spec"]["nodeName"] = json!(node);
        assert_eq!(world(pod).judged(&key).below.len(), 0, "{phase} {node}");
    }
}
