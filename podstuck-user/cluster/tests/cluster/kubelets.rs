//! What only kubelet knows: its list of pods, and the volumes that it uses.

use serde_json::{Value, json};

use super::{
    Workstation, is,
    stand_in::Kubelet,
    stuck::{on_n2, set_status},
};

/// The heartbeat of n2's kubelet: it renews its Lease and reports that its node is Ready, and its address.
pub(super) fn heartbeat(at: &Workstation, kubelet: &Kubelet) {
    let now = format!("{:.0}", jiff::Timestamp::now());
    let micro = now.replace('Z', ".000000Z");
    let renewed = json!({"spec": {"renewTime": micro}}).to_string();
    at.kubectl(&[
        "patch",
        "lease",
        "n2",
        "--namespace=kube-node-lease",
        "--type=merge",
        "--patch",
        &renewed,
    ]);
    let status = json!({
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port()}},
        "volumesInUse": ["kubernetes.io/csi/disk.example.com^pv-5"],
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": now,
            "lastTransitionTime": now}]});
    set_status(at, "/api/v1/nodes/n2", &status);
}

/// A pod's API object.
pub(super) fn record(at: &Workstation, name: &str) -> Value {
    let text = at.kubectl(&["get", "pod", name, "--namespace=edge", "--output=json"]);
    serde_json::from_str(&text).unwrap()
}

/// kubelet's own list decides whether it has missed a deletion. It is read only on request and with the right to do
/// so.
pub(super) fn a_missed_deletion_is_proven_by_two_reads(
    at: &Workstation,
    kubelet: &Kubelet,
    before: &Value,
) {
    at.apply(vec![on_n2("edge", "later")]);
    kubelet.has(&[before.clone(), record(at, "later")]);
    let ask = ["missed", "-n", "edge", "--no-examine"];
    let with_proxy = [&ask[..], &["--via-node-proxy"]].concat();
    heartbeat(at, kubelet);
    let (text, status) = at.podstuck(&ask);
    assert_eq!((status, kubelet.reads()), (5, 0), "{text}");
    assert!(text.contains("kubectl podstuck edge/missed --via-node-proxy"), "{text}");
    // The rights of docs/cluster.md do not suffice.
    heartbeat(at, kubelet);
    let (text, status) = at.podstuck(&[&with_proxy[..], &["--as", "jane"]].concat());
    assert_eq!((status, kubelet.reads()), (5, 0), "{text}");
    assert!(text.contains("get nodes/proxy: not permitted"), "{text}");
    assert!(
        text.contains("check: kubectl --as=jane auth can-i get nodes --subresource=proxy"),
        "{text}"
    );
    heartbeat(at, kubelet);
    let (text, status) = at.podstuck(&with_proxy);
    println!("$ kubectl podstuck {}\n{text}", with_proxy.join(" "));
    let cause = "kubelet-missed-deletion";
    assert!(status == 1 && text.contains(&format!("{cause} (certain)")), "{text}");
    assert_eq!(kubelet.reads(), 2);
    // Like a kubelet that lists its pods again.
    kubelet.has(&[record(at, "missed"), record(at, "later")]);
    heartbeat(at, kubelet);
    let (text, status) = at.podstuck(&with_proxy);
    assert!(status == 5 && text.contains("has received the deletion"), "{text}");
    at.kubectl(&["delete", "pod", "missed", "--namespace=edge", "--force", "--grace-period=0"]);
    at.wait_until_gone(&["pod", "missed", "--namespace=edge"]);
}

/// kubelet lists a volume as in use: the VolumeAttachment, and a pod on another node that waits for the volume, lead to the
/// pod that uses it.
pub(super) fn a_volume_that_kubelet_uses_leads_to_its_pod(at: &Workstation, kubelet: &Kubelet) {
    for (ask, cause) in [
        (["volumeattachment/used", "--no-examine"], "volume-in-use-on-node"),
        (["edge/coming", "--no-examine"], "pod-not-deleted"),
    ] {
        heartbeat(at, kubelet);
        let document = at.json(&ask);
        let item = &document["items"][0];
        is(&document, &[(cause, "firm")]);
        assert_eq!(
            (&item["leaf"]["name"], &item["leaf"]["examine"]),
            (&json!("leaving"), &json!("n2")),
            "{document:#}"
        );
        let (text, status) = at.podstuck(&ask);
        println!("$ kubectl podstuck {}\n{text}", ask.join(" "));
        assert!(text.contains("waits for Pod edge/leaving"), "{text}");
        assert!(text.contains(&format!("{cause} (certain)")), "{text}");
        assert_eq!(status == 1, cause == "volume-in-use-on-node", "{status}: {text}");
    }
    // As kubelet does after it has unmounted the volume.
    at.kubectl(&["delete", "pod", "leaving", "--namespace=edge", "--force", "--grace-period=0"]);
    set_status(at, "/api/v1/nodes/n2", &json!({"volumesInUse": []}));
    let (text, status) = at.podstuck(&["volumeattachment/used"]);
    assert!(status == 0 && !text.contains("volume-in-use-on-node"), "{text}");
}
