//! What only the logs show, as runtimes and kubelet have written it.

use jiff::Timestamp;

use super::{
    play::{Node, Play, UID, sample},
    removals::Plays,
};
use crate::model::{
    identity::Component,
    node::NodeSample,
    said::{Complaint, Said},
};

/// The runtime's complaint, twice, and what is said of the node.
pub(super) fn runtime_says() -> Plays {
    let said = |component, uid: &str, complaint, second, text: &str| Said {
        uid: uid.into(),
        component,
        volume: String::new(),
        at: Timestamp::from_second(second).unwrap(),
        retry: None,
        complaint: Some(complaint),
        report: None,
        text: text.into(),
        source: format!("log of {} (pid 9)", component.name()),
        times: 1,
    };
    let network = "StopPodSandbox for \"aa\" failed: failed to destroy network for sandbox \"aa\": plugin \
        type=\"calico\" failed (delete): dial tcp 10.96.0.1:443: i/o timeout";
    let denied = "failed to kill container \"aa\": unknown error after kill: runc did not terminate \
        successfully: exit status 1: unable to signal init: permission denied";
    let lost = "failed to kill container \"aa\": ttrpc: closed: unknown";
    let silent = "failed to \"KillPodSandbox\" for \"u\" with KillPodSandboxError: \"rpc error: code = \
        DeadlineExceeded desc = context deadline exceeded\"";
    let unhealthy = "PLEG is not healthy: pleg was last seen active 3m5s ago; threshold is 3m0s";
    let (containerd, kubelet) = (Component::Containerd, Component::Kubelet);
    let mut plays = Vec::new();
    for (title, component, complaint, text, of_node, populated) in [
        ("a plugin that fails", containerd, Complaint::NetworkTeardown, network, None, false),
        ("a signal that is refused", containerd, Complaint::SignalDenied, denied, None, true),
        ("a shim that is gone", containerd, Complaint::StateLost, lost, None, false),
        ("a runtime that hangs", kubelet, Complaint::NoAnswer, silent, Some(unhealthy), false),
    ] {
        let mut play = Play::new(Node::default());
        for second in [450, 570] {
            play.said(600.0, said(component, UID, complaint, second, text));
        }
        if let Some(text) = of_node {
            play.said(600.0, said(kubelet, "", complaint, 590, text));
        }
        let pods = vec![super::states::of_pod(populated, Vec::new())];
        play.sample(NodeSample { pods, ..sample(602.0) });
        play.sample(sample(604.0));
        plays.push((title, play));
    }
    plays
}
