//! What all pods of a node notice, and what is to be said about one of them.

use super::{
    case::{Case, End, Trouble},
    csi,
    pods::with_secret,
};

/// All of them.
pub const TROUBLES: &[Case] = &[
    Case {
        name: "restarted",
        pod: with_secret,
        faults: |node, _| {
            node.kubectl(&["delete", "secret", "restarted"]).unwrap();
            Vec::new()
        },
        cause: "kubelet-restart-lost-volume",
        trouble: Trouble::KubeletRestarted,
        ..Case::PLAIN
    },
    Case {
        name: "stopped-kubelet",
        cause: "kubelet-stopped",
        trouble: Trouble::KubeletStopped,
        ..Case::PLAIN
    },
    Case {
        name: "no-kubelet",
        cause: "kubelet-down",
        // Another program may do its work.
        certainty: "likely",
        end: End::Advice,
        trouble: Trouble::KubeletEnded,
        ..Case::PLAIN
    },
    Case {
        name: "no-runtime",
        cause: "runtime-hang",
        trouble: Trouble::RuntimeStopped,
        ..Case::PLAIN
    },
    Case {
        name: "runtime-gone",
        cause: "runtime-down",
        end: End::Advice,
        advised: Some(|node| node.start_runtime().unwrap()),
        trouble: Trouble::RuntimeEnded,
        ..Case::PLAIN
    },
    Case {
        name: "emptied-data",
        pod: csi::with_volume,
        faults: |_, pod| {
            csi::empty_data(&csi::mount_of(pod, "emptied-data"));
            Vec::new()
        },
        cause: "vol-data-missing-or-corrupt",
        advised: Some(|node| node.restart_kubelet().unwrap()),
        trouble: Trouble::Advised,
        ..Case::PLAIN
    },
];
