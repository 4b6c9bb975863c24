//! Causes that keep a container or a sandbox from ending, from the state and the log of the runtime and from kubelet's
//! log.

use crate::cause::Origin;
use crate::model::degraded::Feed;
use crate::{
    cause::{Cause, Kind, TriedWith, absent, hidden, like, log, or_seen, seen, way},
    ids,
    model::diagnosis::Stage,
};

/// The network plugin fails.
pub(crate) static CNI_TEARDOWN_FAILED: Cause = Cause {
    id: ids::CNI_TEARDOWN_FAILED,
    title: "the runtime cannot tear down the pod's network because the CNI plugin fails",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "Before a runtime removes a pod's sandbox it has the CNI plugin take the network down. The \
        plugin fails: its agent on this node is down, the API server does not answer it, its token has \
        expired, or its program or configuration is gone. kubelet asks again and again, and unmounts nothing \
        before the sandbox has been stopped.",
    confirmed_by: &[
        seen(
            "the runtime's log, or kubelet's, says that to destroy the sandbox's network failed, at each attempt",
            &[Origin::Log],
        ),
        absent("no volume of the pod was unmounted since", Feed::Calls),
        hidden("the plugin fails still, which only its next call shows"),
    ],
    log: log("containerd", "StopPodSandbox ... failed to destroy network for sandbox"),
    look_alikes: &[
        like(ids::NETNS_BUSY, "the plugin itself fails"),
        like(
            ids::SHIM_OR_CONTAINERD_STATE_LOST,
            "the runtime knows the sandbox, and the plugin fails",
        ),
        like(ids::RUNTIME_COMMAND_HUNG, "the plugin has returned, with an error"),
    ],
    ways_out: &[
        way("bring the plugin's agent on this node back, or its token or configuration", ""),
        way(
            "otherwise move the plugin's configuration away and remove the sandbox by `crictl rmp`",
            "the pod's address stays taken, and no pod can be started meanwhile",
        ),
    ],
    field: &["calico#4857", "calico#7220", "cri-o#595"],
    tried: &[TriedWith::RealKubelet],
    source: &[
        "containerd internal/cri/server/sandbox_stop.go, stopPodSandbox",
        "cri-o server/sandbox_network.go, networkStop",
        "kubernetes pkg/kubelet/kuberuntime/kuberuntime_manager.go, killPodWithSyncResult",
    ],
};

/// AppArmor refuses the runtime's signal.
pub(crate) static SIGNAL_DENIED: Cause = Cause {
    id: ids::APPARMOR_SIGNAL_DENIED,
    title: "AppArmor denies runc's signals, and the container keeps running",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "runc is not allowed to signal the container's first process: a security module refuses it, as \
        AppArmor does where runc has a profile of its own (AppArmor 4) and the containers' profile, of an \
        older runtime, takes signals only from a process that has none. The container never gets the signal to end.",
    confirmed_by: &[
        seen(
            "the runtime's log, or kubelet's, says `unable to signal init: permission denied`",
            &[Origin::Log],
        ),
        seen(
            "processes of the pod are left, and no SIGKILL is pending for one that waits in the kernel",
            &[Origin::Proc],
        ),
        seen(
            "the kernel's log has apparmor=\"DENIED\" operation=\"signal\" comm=\"runc\"",
            &[Origin::Log],
        ),
        hidden("it is this pod's container that the kernel's log speaks of"),
    ],
    log: log("the kernel", "apparmor=\"DENIED\" operation=\"signal\""),
    look_alikes: &[
        like(ids::DSTATE_PROCESS, "the signal does not arrive"),
        like(ids::GPU_DRIVER_DSTATE, "the signal does not arrive"),
    ],
    ways_out: &[
        way("kill the processes from a root shell that AppArmor does not confine", ""),
        way("update the runtime, whose newer profile takes signals from runc", ""),
        way("remove runc's own profile", "runc runs without one until it is loaded again"),
    ],
    field: &["runc#4281", "containerd#10542", "microk8s#1773"],
    tried: &[],
    source: &[
        "runc libcontainer/container_linux.go, unable to signal init",
        "containerd pull request 10123, moby pull request 47749",
        "linux security/apparmor/ipc.c, aa_may_signal",
    ],
};

/// A container's task or shim is gone.
pub(crate) static STATE_LOST: Cause = Cause {
    id: ids::SHIM_OR_CONTAINERD_STATE_LOST,
    title: "the runtime still lists a container whose shim or task no longer exists",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The container has no process any more, and the runtime still takes it for running: its shim is \
        gone or does not know it, so that each attempt to stop it fails in the same way. kubelet asks again \
        and again, and unmounts nothing before.",
    confirmed_by: &[
        seen(
            "the runtime's log, or kubelet's, says that the container, its task or its shim is not found, or that it \
         waits for the container to end",
            &[Origin::Log],
        ),
        absent("no process of the container is left", Feed::Node),
        hidden("no shim is there, and not one that does not answer: it is not asked"),
    ],
    log: log("containerd", "StopContainer ... failed to kill container ... ttrpc: closed"),
    look_alikes: &[
        like(ids::SANDBOX_NOT_STOPPED, "the pod has no shim of a sandbox with a kernel of its own"),
        like(ids::RUNTIME_SOCKET_GONE, "the runtime answers, with an error"),
        like(ids::CONTAINER_NOT_KILLED, "no process of the container is left"),
        like(ids::SHIM_ROOTFS_BUSY, "no root file system of an ended container is mounted"),
        like(
            ids::CNI_TEARDOWN_FAILED,
            "the container cannot be stopped; the network is not reached",
        ),
        like(
            ids::SHIM_HUNG,
            "no shim of the pod is left, or it neither is stopped nor waits in the kernel",
        ),
        like(ids::RUNTIME_HANG, "the runtime answers, with an error"),
        like(ids::RUNTIME_DOWN, "the runtime answers, with an error"),
        like(
            ids::DOCKER_CONTAINERD_STATE_DESYNC,
            "dockerd has written nothing of the container that is not so",
        ),
        like(ids::OCI_HOOK_FAILS, "the error is about a container, and not about a hook"),
    ],
    ways_out: &[
        way("remove the task by `ctr --namespace k8s.io task delete --force`", ""),
        way(
            "restart the runtime",
            "containers go on under their shims; with Docker only with live-restore",
        ),
    ],
    field: &["containerd#12600", "containerd#10755", "containerd#2744"],
    tried: &[],
    source: &[
        "containerd issues 4016, 5708, 8847, 10755",
        "containerd internal/cri/server/container_stop.go, stopContainer",
    ],
};

/// A virtual machine, or a kernel in user space, that does not stop.
pub(crate) static SANDBOX_STAYS: Cause = Cause {
    id: ids::SANDBOX_NOT_STOPPED,
    title: "the pod's sandbox has a kernel of its own, and its shim does not stop it",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "With Kata Containers or gVisor, containers run in a virtual machine or on a kernel in user space, and only \
        the sandbox's shim can stop them. The shim waits for the sandbox, which does not answer or is gone (its \
        virtual machine was ended by the OOM killer, or hangs), or the sandbox refuses. kubelet asks again and again, \
        and unmounts nothing before.",
    confirmed_by: &[
        seen(
            "the runtime's log, or kubelet's, says again and again that a stop of the pod failed or took too long",
            &[Origin::Log],
        ),
        seen(
            "the pod's shim is one of Kata, gVisor or another sandbox (`containerd-shim-kata-v2`, \
             `containerd-shim-runsc-v1`), and lives",
            &[Origin::Proc],
        ),
        absent(
            "no process of the sandbox has SIGKILL pending, and its control group is not frozen",
            Feed::Node,
        ),
        hidden(
            "the shim waits for its sandbox, and has not lost it: it cannot be asked from outside",
        ),
    ],
    log: log(
        "containerd",
        "StopPodSandbox ... failed to stop sandbox container ... context deadline exceeded",
    ),
    look_alikes: &[
        like(ids::SHIM_HUNG, "the pod's shim neither is stopped nor waits in the kernel"),
        like(ids::SHIM_OR_CONTAINERD_STATE_LOST, "the shim of the sandbox is there"),
        like(ids::CONTAINER_NOT_KILLED, "signals for its containers end in the sandbox"),
    ],
    ways_out: &[
        way(
            "end the sandbox's own process (`qemu`, `cloud-hypervisor`, gVisor's `exe`) by `kill -9`",
            "",
        ),
        way("end its shim by `kill -9`: the runtime cleans up after it", ""),
    ],
    field: &[
        "kata-containers#10969",
        "kata-containers#4043",
        "kata-containers#635",
        "gvisor#11308",
    ],
    tried: &[TriedWith::Test],
    source: &[
        "containerd internal/cri/server/sandbox_stop.go, stopPodSandbox",
        "kata-containers src/runtime/virtcontainers/sandbox.go, Stop",
    ],
};

/// A container's process that is not killed.
pub(crate) static NOT_KILLED: Cause = Cause {
    id: ids::CONTAINER_NOT_KILLED,
    title: "a container's process runs on, and the runtime has not killed it",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The runtime sent the stop signal, mostly SIGTERM, and the process ignores it or does not end. SIGKILL \
        should have followed and did not: an earlier stop of the same container holds the runtime's lock or counts as \
        the one that sends it, or the runtime was restarted in between. Or no signal can be sent: runc does not find \
        the container any more, or the kernel refuses the signal with EPERM, as an agent that protects itself has it. \
        kubelet asks again and again, and unmounts nothing before.",
    confirmed_by: &[
        seen(
            "the runtime's log, or kubelet's, says that the wait for the container's end took too long, or that it could \
             not be signalled",
            &[Origin::Log],
        ),
        seen(
            "a process of the container lives, no SIGKILL is pending for it, and its control group is not frozen",
            &[Origin::Proc],
        ),
        seen("both are seen for 5 s", &[Origin::Proc, Origin::Log, Origin::Scans]),
    ],
    log: log(
        "containerd",
        "StopContainer ... an error occurs during waiting for container ... to be killed",
    ),
    look_alikes: &[
        like(
            ids::SANDBOX_NOT_STOPPED,
            "the pod's shim runs its containers on the node's own kernel",
        ),
        like(ids::SHIM_OR_CONTAINERD_STATE_LOST, "the container's process is there"),
        like(ids::DSTATE_PROCESS, "no SIGKILL is pending: the process was not killed"),
        like(ids::CGROUP_V1_FROZEN, "the pod's control group is not frozen"),
        like(ids::SHIM_HUNG, "the pod's shim neither is stopped nor waits in the kernel"),
    ],
    ways_out: &[
        way("end the container's first process by `kill -9`", ""),
        way("have the protection lifted that refuses the signal", ""),
        way(
            "restart the runtime, which forgets the stop that blocks later ones",
            "containers go on under their shims; with Docker only with live-restore",
        ),
    ],
    field: &[
        "containerd#6080",
        "containerd#10755",
        "containerd#4016",
        "cri-o#6699",
        "cri-o#8030",
        "cri-o#9754",
        "falcon-helm#406",
    ],
    tried: &[TriedWith::Test],
    source: &[
        "containerd internal/cri/server/container_stop.go, stopContainer",
        "cri-o internal/oci/runtime_oci.go, StopContainer",
        "linux kernel/signal.c, complete_signal",
    ],
};

/// A shim that does not answer.
pub(crate) static SHIM_HANGS: Cause = Cause {
    id: ids::SHIM_HUNG,
    title: "the containers' shim does not respond to the runtime",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "Each pod's containers, and with Docker each container, have a process of the runtime above them, the \
        shim, which starts and ends them. It is stopped, waits in the kernel or is blocked in itself, and so the runtime, which answers \
        all other requests, gets no answer about this one. kubelet, or the client of Docker, asks again and again, and \
        nothing is unmounted before.",
    confirmed_by: &[
        seen(
            "the runtime's log, or kubelet's, says that a request about the pod's container was not answered in \
         time, more than once",
            &[Origin::Log, Origin::Scans],
        ),
        seen(
            "processes of the pod are left, and their parent is a shim that is stopped, or waits in the kernel",
            &[Origin::Proc],
        ),
        or_seen(
            "or a child of that shim has ended, and the shim has not collected its exit for 10 s",
            &[Origin::Proc],
        ),
        or_seen(
            "or the shim of a container that is in no pod, or that is asked about, has been stopped for 5 s, or was seen \
         waiting in the kernel for 20 s",
            &[Origin::Proc],
        ),
    ],
    log: log("containerd", "get state for ...: context deadline exceeded"),
    look_alikes: &[
        like(ids::SANDBOX_NOT_STOPPED, "the shim itself does not do its work"),
        like(ids::CONTAINER_NOT_KILLED, "the shim, which would pass a signal on, cannot run"),
        like(ids::SHIM_OR_CONTAINERD_STATE_LOST, "the shim is there"),
        like(ids::RUNTIME_HANG, "the shim shows by itself why it does not answer"),
        like(
            ids::DOCKER_CONTAINERD_STATE_DESYNC,
            "the shim is kept from telling how the container is",
        ),
    ],
    ways_out: &[
        way("have a shim that is stopped go on, by `kill -CONT`", ""),
        way(
            "end the shim: the runtime then ends its containers and cleans up after it",
            "its containers end: with Kubernetes all of the pod",
        ),
    ],
    field: &[],
    tried: &[TriedWith::RealKubelet, TriedWith::RealRuntime],
    source: &[
        "containerd core/runtime/v2/README.md, Container Level Shims",
        "containerd core/runtime/v2/shim.go, cleanupAfterDeadShim",
    ],
};

/// A runtime that does not answer.
pub(crate) static RUNTIME_HANGS: Cause = Cause {
    id: ids::RUNTIME_HANG,
    title: "the container runtime does not respond",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "kubelet asks the runtime to stop the pod's containers, and gets no answer in time, again and \
        again, while no process of the pod waits in the kernel. The runtime is blocked as a whole, by a lock \
        or by a shim that it waits for, a signal has stopped it, or it has used up its file descriptors.",
    confirmed_by: &[
        seen(
            "kubelet's log says DeadlineExceeded for the pod, more than once; and of requests that are about no pod, or \
         that PLEG is not healthy",
            &[Origin::Log],
        ),
        or_seen(
            "or the daemon that the pod's shims belong to is stopped by a signal, its control group is frozen, or it has \
         as many file descriptors open as it may, so that connections are not accepted",
            &[Origin::Proc],
        ),
        or_seen(
            "or its own log has the request to stop the pod's sandbox, and nothing that came of it",
            &[Origin::Log],
        ),
        or_seen(
            "or who has asked it for a list or its version, which takes a moment, waits for longer than 20 s, at least two \
         of them; or connections are not accepted",
            &[Origin::Look],
        ),
        or_seen(
            "or kubelet's log says, again and again until now, that the container runtime is down or PLEG is not \
         healthy, while a pod that is to be deleted has processes: it does nothing for any pod then",
            &[Origin::Log],
        ),
    ],
    log: log("kubelet", "PLEG is not healthy"),
    look_alikes: &[
        like(ids::RUNTIME_SOCKET_GONE, "a time is over: connecting does not fail at once"),
        like(ids::DISK_FULL_RUNTIME, "the runtime's disk has room"),
        like(
            ids::SHIM_OR_CONTAINERD_STATE_LOST,
            "the runtime does not answer, not even with an error",
        ),
        like(ids::SHIM_HUNG, "the pod's shim neither is stopped nor waits in the kernel"),
        like(ids::RUNTIME_DOWN, "its process is there"),
        like(ids::DOCKER_CONTAINERD_STATE_DESYNC, "the daemon does not answer at all"),
        like(
            ids::RUNTIME_COMMAND_HUNG,
            "requests that take no command are not answered either, or the daemon cannot run",
        ),
    ],
    ways_out: &[
        way("have a daemon that is stopped or frozen go on", ""),
        way("raise the limit of one that has used up its file descriptors, by `prlimit`", ""),
        way("have the runtime write its stacks into its log, by SIGUSR1", ""),
        way(
            "restart the runtime",
            "containers go on under their shims; with Docker only with live-restore",
        ),
    ],
    field: &["TKE's guide to pods that stay Terminating", "kubernetes#25456", "moby#22488"],
    tried: &[TriedWith::RealKubelet, TriedWith::RealRuntime],
    source: &[
        "kubernetes pkg/kubelet/pleg/generic.go, Healthy",
        "kubernetes issue 25456, moby issue 41424",
    ],
};

/// A daemon whose socket has no file any more.
pub(crate) static SOCKET_GONE: Cause = Cause {
    id: ids::RUNTIME_SOCKET_GONE,
    title: "the container runtime runs, but the file of its socket is gone or was replaced",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The daemon of containerd, Docker or CRI-O listens on a socket whose file was removed or replaced: by a \
        clean-up of /run, by a second instance that was started and ended, or by a snapshotter's installer. kubelet \
        cannot connect, and stops and removes no pod of the node.",
    confirmed_by: &[
        seen(
            "kubelet's log says, more than once, that connecting to the runtime's socket fails: no such file or directory, \
         or connection refused",
            &[Origin::Log],
        ),
        seen(
            "a runtime runs that has a socket bound to that path, by the kernel's list of sockets",
            &[Origin::Proc],
        ),
        hidden("the socket's file is missing still: kubelet's log speaks of its own time"),
    ],
    log: log("kubelet", "dial unix ...: connect: no such file or directory"),
    look_alikes: &[
        like(ids::RUNTIME_DOWN, "its process is there, and listens"),
        like(ids::RUNTIME_HANG, "connecting fails at once, and no time is over"),
        like(ids::SHIM_OR_CONTAINERD_STATE_LOST, "kubelet does not reach the runtime at all"),
    ],
    ways_out: &[way(
        "restart the runtime, which makes the file again",
        "containers go on under their shims; with Docker only with live-restore",
    )],
    field: &["kubernetes#129193", "nydus-snapshotter#631"],
    tried: &[TriedWith::Test],
    source: &["linux net/unix/af_unix.c, unix_find_bsd", "go net/unixsock_posix.go"],
};

/// A runtime that does not run.
pub(crate) static RUNTIME_DOWN: Cause = Cause {
    id: ids::RUNTIME_DOWN,
    title: "the container runtime does not run, but containers that it started do",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The daemon of containerd, Docker or CRI-O has ended and was not started again: it was killed for \
        memory, it fails at its start, or the service was stopped. Its shims keep the containers alive, and nothing \
        is there to end them. kubelet does nothing for any pod of the node then.",
    confirmed_by: &[
        seen(
            "shims live, and no process listens on the socket on which they call containerd, or no dockerd or CRI-O runs at \
         all",
            &[Origin::Proc],
        ),
        seen(
            "it has been so for longer than a service needs to be started again",
            &[Origin::Scans],
        ),
        seen(
            "the pod is to be deleted and has processes, or the container is the one that is asked \
         about",
            &[Origin::Api, Origin::Log, Origin::Proc],
        ),
    ],
    log: None,
    look_alikes: &[
        like(ids::RUNTIME_SOCKET_GONE, "no process of the runtime is there"),
        like(ids::RUNTIME_HANG, "no process of the runtime is there"),
        like(ids::SHIM_OR_CONTAINERD_STATE_LOST, "the shim is there, and the runtime is not"),
        like(ids::DOCKER_CONTAINERD_STATE_DESYNC, "one of the two does not run at all"),
    ],
    ways_out: &[
        way("find out why the service ended, by its journal", ""),
        way(
            "start the service",
            "containers go on under their shims; with Docker only with live-restore",
        ),
    ],
    field: &[],
    tried: &[TriedWith::RealKubelet, TriedWith::RealRuntime],
    source: &[
        "containerd containerd.service, KillMode=process",
        "moby daemon/daemon.go, restore",
        "kubernetes pkg/kubelet/kubelet.go, syncLoop",
    ],
};

/// Docker and containerd contradict each other.
pub(crate) static OUT_OF_STEP: Cause = Cause {
    id: ids::DOCKER_CONTAINERD_STATE_DESYNC,
    title: "dockerd lists a container as running that has ended, or as ended while it runs",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "dockerd has containerd run its containers, and learns by an event that one has ended. The event was lost: \
        containerd was killed and started again, or the disk was full. From then on dockerd says `Up` of a container \
        that has no process, and who stops or removes it waits for an event that does not come; or it says `Exited` \
        of one whose task lives, which it neither stops nor can start again. With dockershim or cri-dockerd, the pod \
        stays in Terminating.",
    confirmed_by: &[
        seen(
            "dockerd has written of the container that it runs, and the process that it names is not there, or does not \
         belong to the container; or that it has ended, and the shim that it had before then lives",
            &[Origin::Files],
        ),
        seen("dockerd and containerd run, and it has been so for 20 s", &[Origin::Scans]),
    ],
    log: None,
    look_alikes: &[
        like(
            ids::SHIM_OR_CONTAINERD_STATE_LOST,
            "what dockerd has written is wrong; whether containerd can end the task was not asked",
        ),
        like(ids::RUNTIME_HANG, "dockerd and containerd do their work"),
        like(ids::RUNTIME_DOWN, "dockerd and containerd run"),
        like(ids::SHIM_HUNG, "no shim of it is left, or it runs"),
        like(
            ids::DOCKER_LOG_DRIVER_BLOCKS,
            "the container's log driver writes files of its own, and waits for no other program",
        ),
    ],
    ways_out: &[
        way(
            "have dockerd kill the container that has ended: it asks containerd, learns that it has no such task, and takes \
             it for ended some seconds later",
            "",
        ),
        way(
            "end the task that lives, by `ctr --namespace moby task kill`",
            "the container's processes end",
        ),
        way("restart dockerd", "all containers end, unless live-restore is set"),
    ],
    field: &["TKE's guide to pods that stay Terminating", "moby#32078", "moby#39316", "moby#41352"],
    tried: &[TriedWith::RealRuntime],
    source: &[
        "moby daemon/monitor.go, handleContainerExit",
        "moby daemon/kill.go, killWithSignal",
        "moby libcontainerd/remote/client.go, processEventStream",
    ],
};

/// dockerd closes the log of a container that has ended before it writes that it has.
pub(crate) static LOG_DRIVER: Cause = Cause {
    id: ids::DOCKER_LOG_DRIVER_BLOCKS,
    title: "dockerd waits for the log driver of a container that has ended",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "dockerd passes a container's output on to its log driver. When the container ends, dockerd closes the log \
        driver before it takes the container for ended, and holds the container's lock meanwhile. `fluentd` and some \
        others first send what is left, and try for as long as their server does not answer. Until then dockerd says \
        `Up`, and `docker stop`, `docker kill`, `docker inspect` and `docker rm` of the container wait as well. With \
        dockershim or cri-dockerd, the pod stays in Terminating.",
    confirmed_by: &[
        seen(
            "dockerd has written of the container that it runs, and its log driver, by dockerd's hostconfig.json, sends to \
             another program",
            &[Origin::Files],
        ),
        seen(
            "the process that it names is not there, and it has been so for 20 s",
            &[Origin::Scans],
        ),
        seen(
            "dockerd's log says that the container's task was deleted, which dockerd does when it has learned of the end; \
             or no process listens at the driver's loopback address",
            &[Origin::Log, Origin::Proc],
        ),
        hidden("dockerd waits for the log driver, and for no other part of the container's end"),
    ],
    log: log("dockerd", "Logger didn't exit in time: logs may be truncated"),
    look_alikes: &[like(
        ids::DOCKER_CONTAINERD_STATE_DESYNC,
        "dockerd has had the task of the container deleted, so that it has learned of its end",
    )],
    ways_out: &[
        way(
            "have the driver's server answer again at the address: dockerd sends what is left, and goes on",
            "",
        ),
        way(
            "restart dockerd",
            "all containers end, unless live-restore is set; output that was not sent is lost",
        ),
    ],
    field: &["moby#39609", "moby#40063", "moby#40455", "moby#43108", "moby#44511"],
    tried: &[],
    source: &[
        "moby daemon/monitor.go, handleContainerExit",
        "moby container/monitor.go, Reset",
        "fluent-logger-golang fluent/fluent.go, Close",
    ],
};

/// An image volume that is in use.
pub(crate) static IMAGE_VOLUME_BUSY: Cause = Cause {
    id: ids::IMAGE_VOLUME_BUSY,
    title: "the runtime cannot unmount an image volume: it is in use",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "containerd 2.1 and later mounts the image of an image volume in a directory of its own, by the pod's \
        sandbox, and unmounts it when the sandbox is stopped. A process outside the pod uses that mount, or something \
        is mounted on it: the unmount fails with EBUSY, the sandbox is not stopped, and kubelet asks again and again. \
        In kubelet's own directory nothing of the volume is left.",
    confirmed_by: &[
        seen(
            "the runtime's log, or kubelet's, says at each attempt that the image volume is busy",
            &[Origin::Log],
        ),
        seen(
            "a process uses that mount in the runtime's mount namespace, or in one that gets the unmount, too",
            &[Origin::Proc],
        ),
    ],
    log: log("containerd", "failed to unmount image volume component ...: device or resource busy"),
    look_alikes: &[],
    ways_out: &[way("end the process that uses it; the runtime's next attempt unmounts it", "")],
    field: &["containerd#14032"],
    tried: &[TriedWith::RealRuntime, TriedWith::Recording],
    source: &["containerd internal/cri/server/container_image_mount.go, cleanupImageMounts"],
};

/// The file of the sandbox's network namespace is busy.
pub(crate) static NETNS_BUSY: Cause = Cause {
    id: ids::NETNS_BUSY,
    title: "the runtime cannot remove the file of a sandbox's network namespace because a mount is left on it",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "A runtime keeps a sandbox's network namespace by a file, /run/netns/cni-..., on which the namespace is \
        mounted. To stop the sandbox it unmounts it once and removes the file. It was mounted more than once, or is \
        mounted on the same file by another way to /run: what is left makes the removal fail with EBUSY, and \
        the sandbox counts as running. kubelet asks again and again, and unmounts nothing before.",
    confirmed_by: &[
        seen(
            "the runtime's log, or kubelet's, says at each attempt that the file of the network namespace is busy",
            &[Origin::Log],
        ),
        seen(
            "in the runtime's mount namespace something is mounted on that file, at its path or by another way to it",
            &[Origin::Mounts],
        ),
    ],
    log: log("containerd", "unlinkat /var/run/netns/cni-...: device or resource busy"),
    look_alikes: &[
        like(
            ids::CNI_TEARDOWN_FAILED,
            "the file of the namespace is busy, and no plugin has failed",
        ),
        like(
            ids::MOUNT_LEAKED_FOREIGN_NS_EL7,
            "the kernel is newer than 3.18, as podstuck needs it to be",
        ),
    ],
    ways_out: &[
        way("unmount what is left on the file; the next attempt removes it", ""),
        way(
            "mount the host's / or /run with the propagation HostToContainer in the container \
             that has it mounted",
            "",
        ),
    ],
    field: &["containerd#3667", "containerd#6143"],
    tried: &[TriedWith::Test],
    source: &[
        "containerd pkg/netns/netns_linux.go, unmountNS",
        "containerd issues 3667, 6143",
        "linux fs/namei.c, vfs_unlink: is_local_mountpoint",
    ],
};

/// The directory of the sandbox's shared memory is busy.
pub(crate) static SHM_BUSY: Cause = Cause {
    id: ids::SANDBOX_SHM_BUSY,
    title: "the runtime cannot remove a sandbox's shared memory because it is still mounted",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The containers of a pod have a file system in memory in common, at /dev/shm, which the runtime mounts in \
        the sandbox's directory. Its process was killed before it could unmount it, or it was mounted more than once: \
        the directory is a mount point still, and its removal fails with EBUSY. The sandbox stays; whether the pod \
        waits for that depends on what was asked, to stop it or to remove it, and on kubelet's version.",
    confirmed_by: &[
        seen(
            "the runtime's log, or kubelet's, says that the directory of the sandbox's shared memory is busy",
            &[Origin::Log],
        ),
        seen(
            "in the runtime's mount namespace something is mounted on that directory",
            &[Origin::Proc, Origin::Mounts],
        ),
    ],
    log: log("CRI-O", "unlinkat .../userdata/shm: device or resource busy"),
    look_alikes: &[like(
        ids::MOUNT_LEAKED_FOREIGN_NS_EL7,
        "the kernel is newer than 3.18, as podstuck needs it to be",
    )],
    ways_out: &[way(
        "unmount it; the next attempt removes it",
        "what the pod has left in /dev/shm is lost",
    )],
    field: &["cri-o#1453", "moby#22877"],
    tried: &[TriedWith::Test],
    source: &[
        "cri-o issue 1453, pull request 3073",
        "containerd internal/cri/server/helpers.go, ensureRemoveAll",
        "linux fs/namei.c, vfs_rmdir: is_local_mountpoint",
    ],
};
