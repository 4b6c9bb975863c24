//! What holds a pod, and what is to be said about it.

use super::{
    case::{Case, End},
    csi,
    faults::{Fault, host_directory, many_directories, unmount_in_volumes},
    pods::{
        in_memory, on_disk, with_finalizer, with_grace, with_last_words, with_network, with_subpath,
    },
};

/// All of them.
pub const CASES: &[Case] = &[
    Case {
        name: "many",
        faults: |_, pod| {
            many_directories(&pod.empty_dir("data"), 2_000_000);
            Vec::new()
        },
        cause: "emptydir-mass-files",
        end: End::Time,
        ..Case::PLAIN
    },
    Case {
        name: "immutable",
        faults: |_, pod| vec![Fault::immutable(&pod.empty_dir("data").join("d/f"))],
        cause: "immutable-attribute",
        ..Case::PLAIN
    },
    Case {
        name: "bind-mount",
        faults: |node, pod| {
            let from = host_directory(node, "bind-mount");
            vec![Fault::bind(&from, &pod.empty_dir("data").join("m"))]
        },
        cause: "emptydir-bidirectional-submount",
        ..Case::PLAIN
    },
    Case {
        name: "held-bind",
        faults: |node, pod| {
            let on = pod.empty_dir("data").join("m");
            vec![Fault::bind(&host_directory(node, "held-bind"), &on), Fault::held(&on)]
        },
        cause: "emptydir-bidirectional-submount",
        // The first command ends the holder; the second one is the unmount.
        advised: Some(|node| unmount_in_volumes(node, "held-bind")),
        ..Case::PLAIN
    },
    Case {
        name: "two-holders",
        pod: in_memory,
        faults: |node, pod| {
            let of_volume = Fault::held(&pod.empty_dir("data"));
            vec![Fault::held(&pod.rootfs(node).join("tmp")), of_volume]
        },
        cause: "shim-rootfs-busy",
        next: Some("volume-held-by-host-process"),
        ..Case::PLAIN
    },
    Case {
        name: "finalizer-too",
        pod: with_finalizer,
        faults: |_, pod| vec![Fault::immutable(&pod.empty_dir("data").join("d/f"))],
        cause: "immutable-attribute",
        next: Some("pod-finalizer"),
        end: End::Advice,
        ..Case::PLAIN
    },
    Case {
        name: "held-tmpfs",
        pod: in_memory,
        faults: |_, pod| vec![Fault::held(&pod.empty_dir("data"))],
        cause: "volume-held-by-host-process",
        ..Case::PLAIN
    },
    Case {
        name: "read-only",
        faults: |_, pod| vec![Fault::read_only(&pod.empty_dir("data"))],
        cause: "mount-over-volume",
        ..Case::PLAIN
    },
    Case {
        name: "rootfs-mount",
        faults: |node, pod| vec![Fault::tmpfs(&pod.rootfs(node).join("tmp"))],
        cause: "shim-rootfs-busy",
        ..Case::PLAIN
    },
    Case {
        name: "rootfs-held",
        faults: |node, pod| vec![Fault::held(&pod.rootfs(node).join("tmp"))],
        cause: "shim-rootfs-busy",
        ..Case::PLAIN
    },
    Case {
        name: "frozen",
        faults: |_, pod| vec![Fault::frozen(&pod.freezer())],
        cause: "cgroup-v1-frozen",
        ..Case::PLAIN
    },
    Case {
        name: "hung-fuse",
        faults: |_, pod| vec![Fault::hung_fuse(&pod.empty_dir("data").join("m"))],
        cause: "fuse-daemon-hung",
        ..Case::PLAIN
    },
    Case {
        name: "finalizer",
        pod: with_finalizer,
        faults: |_, _| Vec::new(),
        cause: "pod-finalizer",
        ..Case::PLAIN
    },
    Case {
        name: "controller",
        pod: with_finalizer,
        cause: "pod-finalizer",
        end: End::Advice,
        // The finalizer's controller, once it works again.
        advised: Some(|node| {
            let nothing = r#"{"metadata":{"finalizers":null}}"#;
            node.kubectl(&["patch", "pod", "controller", "--patch", nothing]).unwrap();
        }),
        ..Case::PLAIN
    },
    Case { name: "running", cause: "pod-not-deleted", end: End::Never, ..Case::PLAIN },
    Case {
        // Its predecessor of the same name was deleted by force, and its directory stays.
        name: "again",
        faults: |node, pod| {
            let kept = Fault::immutable(&pod.empty_dir("data").join("d/f"));
            node.kubectl(&["delete", "pod", "again", "--force", "--grace-period=0"]).unwrap();
            node.apply(&on_disk("again")).unwrap();
            vec![kept]
        },
        cause: "pod-not-deleted",
        end: End::Never,
        ..Case::PLAIN
    },
    Case {
        name: "grace",
        pod: with_grace,
        cause: "grace-period-or-prestop",
        end: End::Grace,
        ..Case::PLAIN
    },
    Case {
        name: "forgot",
        pod: csi::with_volume,
        faults: |_, _| {
            csi::order("forgot", "forget");
            Vec::new()
        },
        cause: "csi-driver-lost-publish-state",
        ..Case::PLAIN
    },
    Case {
        name: "not-found",
        pod: csi::with_volume,
        faults: |_, _| {
            csi::order("not-found", "not-found");
            Vec::new()
        },
        cause: "csi-driver-error",
        end: End::Advice,
        advised: Some(|_| csi::order("not-found", "")),
        ..Case::PLAIN
    },
    Case {
        name: "down",
        pod: csi::with_volume,
        faults: |node, _| {
            csi::end(node, "down", "driver");
            Vec::new()
        },
        cause: "csi-driver-down",
        end: End::Advice,
        advised: Some(|node| csi::start_driver(node, "down")),
        ..Case::PLAIN
    },
    Case {
        name: "unregistered",
        pod: csi::with_volume,
        faults: |node, _| {
            csi::end(node, "unregistered", "registrar");
            Vec::new()
        },
        cause: "csi-driver-not-registered",
        end: End::Advice,
        advised: Some(|node| csi::start_registrar(node, "unregistered")),
        ..Case::PLAIN
    },
    Case {
        name: "elsewhere",
        pod: csi::with_volume,
        faults: |_, _| {
            csi::order("elsewhere", "elsewhere");
            Vec::new()
        },
        // What is left shows no more than that the driver said that all is well: a namespace that has ended
        // leaves no trace.
        cause: "csi-driver-lost-publish-state",
        ..Case::PLAIN
    },
    Case {
        name: "hangs",
        pod: csi::with_volume,
        faults: |_, _| {
            csi::order("hangs", "hang");
            Vec::new()
        },
        cause: "csi-unpublish-hung-lock",
        end: End::Advice,
        advised: Some(|node| csi::restart_healthy(node, "hangs")),
        ..Case::PLAIN
    },
    Case {
        name: "subpath",
        pod: with_subpath,
        faults: |_, pod| vec![Fault::held(&pod.directory().join("volume-subpaths/data/main/0"))],
        cause: "volume-held-by-host-process",
        ..Case::PLAIN
    },
    Case {
        name: "under",
        pod: csi::with_volume,
        faults: |node, pod| {
            csi::hide_a_file(node, &csi::mount_of(pod, "under"));
            Vec::new()
        },
        cause: "data-under-mountpoint",
        ..Case::PLAIN
    },
    Case {
        name: "network",
        pod: with_network,
        faults: |node, _| vec![Fault::network(node, "network")],
        cause: "cni-teardown-failed",
        certainty: "likely",
        end: End::Advice,
        advised: Some(|node| Fault::network_works(node, "network")),
        ..Case::PLAIN
    },
    Case {
        name: "last-words",
        pod: with_last_words,
        cause: "termination-message-in-bidirectional",
        ..Case::PLAIN
    },
    Case {
        name: "cut-off",
        pod: csi::with_volume,
        faults: |node, _| {
            csi::order("cut-off", "only-unmount");
            csi::cut_off(node, "cut-off");
            Vec::new()
        },
        cause: "csi-umount-wrong-namespace",
        ..Case::PLAIN
    },
    Case {
        name: "by-hand",
        pod: csi::with_volume,
        faults: |_, pod| {
            csi::order("by-hand", "not-idempotent");
            csi::unmount(pod, "by-hand");
            Vec::new()
        },
        cause: "csi-driver-not-idempotent",
        ..Case::PLAIN
    },
    Case {
        name: "upgraded",
        pod: csi::with_volume,
        faults: |_, pod| {
            csi::order("upgraded", "not-idempotent");
            csi::unmount(pod, "upgraded");
            Vec::new()
        },
        cause: "csi-driver-not-idempotent",
        end: End::Advice,
        advised: Some(|_| csi::order("upgraded", "")),
        ..Case::PLAIN
    },
    Case {
        name: "shim",
        faults: |_, pod| vec![Fault::stopped_shim(pod)],
        cause: "shim-hung",
        ..Case::PLAIN
    },
    Case {
        name: "lost-data",
        pod: csi::with_volume,
        faults: |_, pod| {
            csi::lose_data(&csi::mount_of(pod, "lost-data"));
            Vec::new()
        },
        cause: "vol-data-missing-or-corrupt",
        ..Case::PLAIN
    },
    Case {
        name: "dead-fuse",
        pod: csi::with_fuse,
        faults: |_, pod| {
            csi::end_server(&csi::mount_of(pod, "dead-fuse"));
            Vec::new()
        },
        cause: "fuse-daemon-dead",
        ..Case::PLAIN
    },
    Case {
        name: "two",
        faults: |_, pod| {
            let frozen = Fault::frozen(&pod.freezer());
            vec![frozen, Fault::immutable(&pod.empty_dir("data").join("d/f"))]
        },
        cause: "cgroup-v1-frozen",
        next: Some("immutable-attribute"),
        ..Case::PLAIN
    },
];
