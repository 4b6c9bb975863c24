//! What only a log shows: the runtime, or kubelet in its words, says why a container or a sandbox does not
//! go.

use crate::{
    cause::{Cause, CauseId, Kind, TriedWith, like, log, way},
    model::diagnosis::Stage,
};

/// The network plugin fails.
pub(crate) static CNI_TEARDOWN_FAILED: Cause = Cause {
    id: CauseId::new("cni-teardown-failed"),
    title: "the pod's network cannot be taken down, because its CNI plugin fails",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "Before a runtime removes a pod's sandbox it has the CNI plugin take the network down. The \
        plugin fails: its agent on this node is down, the API server does not answer it, its token has \
        expired, or its program or configuration is gone. kubelet asks again and again, and unmounts nothing \
        before the sandbox has been stopped.",
    confirmed_by: &[
        "the runtime's log, or kubelet's, says that to destroy the sandbox's network failed, at each attempt",
        "no volume of the pod was unmounted since",
    ],
    log: log("containerd", "StopPodSandbox ... failed to destroy network for sandbox"),
    look_alikes: &[
        like("netns-busy", "the plugin itself fails"),
        like(
            "shim-or-containerd-state-lost",
            "the runtime knows the sandbox, and the plugin fails",
        ),
    ],
    ways_out: &[
        way("bring the plugin's agent on this node back, or its token or configuration", ""),
        way(
            "otherwise move the plugin's configuration away and remove the sandbox by `crictl rmp`",
            "the pod's address stays taken, and no pod can be started meanwhile",
        ),
    ],
    tried: &[TriedWith::RealKubelet],
    source: &[
        "containerd internal/cri/server/sandbox_stop.go, stopPodSandbox",
        "cri-o server/sandbox_network.go, networkStop",
        "kubernetes pkg/kubelet/kuberuntime/kuberuntime_manager.go, killPodWithSyncResult",
    ],
};

/// No signal arrives.
pub(crate) static SIGNAL_DENIED: Cause = Cause {
    id: CauseId::new("apparmor-signal-denied"),
    title: "AppArmor refuses runc's signals, and the container lives on",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "runc is not allowed to signal the container's first process: a security module refuses it, as \
        AppArmor does where runc has a profile of its own (AppArmor 4) and the containers' profile, of an \
        older runtime, takes signals only from who has none. The container is never told to end.",
    confirmed_by: &[
        "the runtime's log, or kubelet's, says `unable to signal init: permission denied`",
        "processes of the pod are left, and no SIGKILL is pending for one that waits in the kernel",
        "the kernel's log has apparmor=\"DENIED\" operation=\"signal\" comm=\"runc\"",
    ],
    log: log("the kernel", "apparmor=\"DENIED\" operation=\"signal\""),
    look_alikes: &[
        like("dstate-process", "the signal does not arrive"),
        like("gpu-driver-dstate", "the signal does not arrive"),
    ],
    ways_out: &[
        way("kill the processes from a root shell that AppArmor does not confine", ""),
        way("update the runtime, whose newer profile takes signals from runc", ""),
        way("remove runc's own profile", "runc runs without one until it is loaded again"),
    ],
    tried: &[],
    source: &[
        "runc libcontainer/container_linux.go, unable to signal init",
        "containerd pull request 10123, moby pull request 47749",
        "linux security/apparmor/ipc.c, aa_may_signal",
    ],
};

/// Nobody is there who could end it.
pub(crate) static STATE_LOST: Cause = Cause {
    id: CauseId::new("shim-or-containerd-state-lost"),
    title: "the runtime believes in a container whose shim or task is gone",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The container has no process any more, and the runtime still takes it for running: its shim is \
        gone or does not know it, so that each attempt to stop it fails in the same way. kubelet asks again \
        and again, and unmounts nothing before.",
    confirmed_by: &[
        "the runtime's log, or kubelet's, says that the container, its task or its shim is not found, or that it \
         waits for the container to end",
        "no process of the container is left",
    ],
    log: log("containerd", "StopContainer ... failed to kill container ... ttrpc: closed"),
    look_alikes: &[
        like("shim-rootfs-busy", "no root file system of an ended container is mounted"),
        like("cni-teardown-failed", "the container cannot be stopped; the network is not reached"),
        like(
            "shim-hung",
            "no shim of the pod is left, or it neither is stopped nor waits in the kernel",
        ),
        like("dockerd-hang", "the runtime answers, with an error"),
    ],
    ways_out: &[
        way("remove the task by `ctr --namespace k8s.io task delete --force`", ""),
        way(
            "restart the runtime",
            "containers go on under their shims; with Docker only with live-restore",
        ),
    ],
    tried: &[],
    source: &[
        "containerd issues 4016, 5708, 8847, 10755",
        "containerd internal/cri/server/container_stop.go, stopContainer",
    ],
};

/// Somebody is there, and does not answer.
pub(crate) static SHIM_HANGS: Cause = Cause {
    id: CauseId::new("shim-hung"),
    title: "the shim that looks after the pod's containers does not answer the runtime",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "Each pod's containers have a process of the runtime above them, the shim, which starts and ends \
        them. It is stopped, or waits in the kernel, and so the runtime, which answers everybody else, gets no \
        answer about this pod. kubelet asks again and again, and unmounts nothing before.",
    confirmed_by: &[
        "the runtime's log, or kubelet's, says that a request about the pod's container was not answered in \
         time, more than once",
        "processes of the pod are left, and their parent is a shim that is stopped, or waits in the kernel",
    ],
    log: log("containerd", "get state for ...: context deadline exceeded"),
    look_alikes: &[
        like("shim-or-containerd-state-lost", "the shim is there"),
        like("dockerd-hang", "the shim shows by itself why it does not answer"),
    ],
    ways_out: &[
        way("have a shim that is stopped go on, by `kill -CONT`", ""),
        way(
            "end the shim: the runtime then ends its containers and cleans up after it",
            "all containers of the pod end",
        ),
    ],
    tried: &[TriedWith::RealKubelet],
    source: &[
        "containerd core/runtime/v2/README.md, Container Level Shims",
        "containerd core/runtime/v2/shim.go, cleanupAfterDeadShim",
    ],
};

/// No answer at all.
pub(crate) static RUNTIME_HANGS: Cause = Cause {
    id: CauseId::new("dockerd-hang"),
    title: "dockerd, or another runtime, does not answer any more",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "kubelet asks the runtime to stop the pod's containers, and gets no answer in time, again and \
        again, while no process of the pod waits in the kernel. The runtime is blocked as a whole, by a lock \
        or by a shim that it waits for.",
    confirmed_by: &[
        "kubelet's log says DeadlineExceeded for the pod, more than once; and of requests that are about no pod, or \
         that PLEG is not healthy",
        "or kubelet's log says, again and again until now, that the container runtime is down or PLEG is not \
         healthy, while a pod that is to go has processes: it does nothing for any pod then",
    ],
    log: log("kubelet", "PLEG is not healthy"),
    look_alikes: &[
        like("disk-full-runtime", "the runtime's disk has room"),
        like(
            "shim-or-containerd-state-lost",
            "the runtime does not answer, not even with an error",
        ),
        like("shim-hung", "the pod's shim neither is stopped nor waits in the kernel"),
    ],
    ways_out: &[
        way("have the runtime write its stacks into its log, by SIGUSR1", ""),
        way(
            "restart the runtime",
            "containers go on under their shims; with Docker only with live-restore",
        ),
    ],
    tried: &[TriedWith::RealKubelet],
    source: &[
        "kubernetes pkg/kubelet/pleg/generic.go, Healthy",
        "kubernetes issue 25456, moby issue 41424",
    ],
};
