//! Causes that keep a container or a sandbox from ending, from the state and the log of the runtime and from kubelet's
//! log.

use crate::cause::Origin;
use crate::model::degraded::Feed;
use crate::{
    cause::{Cause, Kind, TriedWith, absent, hidden, like, log, or_seen, seen, way},
    causes::shared::forced_deletion,
    ids,
    model::diagnosis::Stage,
};

/// The network plugin fails.
pub(crate) static CNI_TEARDOWN_FAILED: Cause = Cause {
    id: ids::CNI_TEARDOWN_FAILED,
    title: "the runtime cannot tear down the pod's network: the CNI plugin fails, or is not run",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "Before a runtime removes a pod's sandbox, it runs the CNI plugin to tear down the network. The plugin \
        fails: its agent on this node is down, the API server does not answer it, its token has expired, or its \
        program or configuration is gone. Or the runtime fails before, at its own record of the network. kubelet retries, \
        and unmounts nothing until the sandbox is stopped.",
    confirmed_by: &[
        seen(
            "the runtime's or kubelet's log reports at each attempt that destroying the sandbox's network failed",
            &[Origin::Log],
        ),
        absent("no volume of the pod has been unmounted since", Feed::Calls),
        hidden("the plugin still fails: only its next call shows this"),
    ],
    log: log("containerd", "StopPodSandbox ... failed to destroy network for sandbox"),
    look_alikes: &[
        like(ids::NETNS_BUSY, "the plugin itself fails"),
        like(
            ids::SHIM_OR_CONTAINERD_STATE_LOST,
            "the runtime knows the sandbox, and the plugin fails",
        ),
        like(ids::RUNTIME_COMMAND_HUNG, "the plugin has returned with an error"),
    ],
    ways_out: &[
        way("restore the plugin's agent on this node, its token or its configuration", ""),
        way(
            "otherwise move the plugin's configuration away and remove the sandbox with `crictl rmp`",
            "the pod's IP address stays allocated, and no pod can start meanwhile",
        ),
        way(forced_deletion::WAY, forced_deletion::WAY_RISK),
    ],
    field: &["calico#4857", "calico#7220", "cri-o#595", "multus-cni#669", "kubernetes#44307"],
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
    meaning: "A security module denies runc's signal to the container's first process. AppArmor does so if runc has \
        its own profile (AppArmor 4) and the containers' profile, from an older runtime, accepts signals only from \
        unconfined processes. The container never receives the signal to end.",
    confirmed_by: &[
        seen(
            "the runtime's or kubelet's log has `unable to signal init: permission denied`",
            &[Origin::Log],
        ),
        seen(
            "the pod still has processes, and none that waits in the kernel has SIGKILL pending",
            &[Origin::Proc],
        ),
        seen(
            "the kernel's log has apparmor=\"DENIED\" operation=\"signal\" comm=\"runc\"",
            &[Origin::Log],
        ),
        hidden("the line in the kernel's log is about this pod's container"),
    ],
    log: log("the kernel", "apparmor=\"DENIED\" operation=\"signal\""),
    look_alikes: &[
        like(ids::DSTATE_PROCESS, "the signal is not delivered"),
        like(ids::GPU_DRIVER_DSTATE, "the signal is not delivered"),
    ],
    ways_out: &[
        way("kill the processes from a root shell that AppArmor does not confine", ""),
        way("update the runtime: its newer profile accepts signals from runc", ""),
        way("remove runc's own profile", "runc runs unconfined until the profile is loaded again"),
    ],
    field: &["runc#4281", "containerd#10542", "microk8s#1773"],
    tried: &[TriedWith::Test],
    source: &[
        "runc libcontainer/container_linux.go, unable to signal init",
        "containerd pull request 10123, moby pull request 47749",
        "linux security/apparmor/ipc.c, aa_may_signal",
    ],
};

/// A container's task or shim is gone.
pub(crate) static STATE_LOST: Cause = Cause {
    id: ids::SHIM_OR_CONTAINERD_STATE_LOST,
    title: "the runtime still lists a container that has ended",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The container has no process any more, but the runtime still lists it. Its shim is gone or does not know \
        the container, the runtime has missed the shim's report of the end, or containerd's CRI plugin has a container \
        that containerd itself no longer has, so each attempt to stop or remove it fails in the same way. kubelet \
        retries, and keeps the pod until the container is stopped and removed.",
    confirmed_by: &[
        seen(
            "the runtime's or kubelet's log reports that the container, its task or its shim is not found, or that \
             the runtime waits for the container to end",
            &[Origin::Log],
        ),
        or_seen(
            "or CRI-O's record of the container says that it runs, as a process that does not exist",
            &[Origin::Files],
        ),
        absent("no process of the container is left", Feed::Node),
        hidden("the shim is gone and not merely unresponsive: podstuck does not query it"),
    ],
    log: log("containerd", "StopContainer ... failed to kill container ... ttrpc: closed"),
    look_alikes: &[
        like(ids::SANDBOX_NOT_STOPPED, "no shim of the pod runs a sandbox with its own kernel"),
        like(ids::RUNTIME_SOCKET_GONE, "the runtime answers with an error"),
        like(ids::CONTAINER_NOT_KILLED, "no process of the container is left"),
        like(ids::ZOMBIE_NOT_REAPED, "no process of the container is left"),
        like(ids::SHIM_ROOTFS_BUSY, "no root file system of an ended container is mounted"),
        like(
            ids::CNI_TEARDOWN_FAILED,
            "the container cannot be stopped; the network teardown has not begun",
        ),
        like(
            ids::SHIM_HUNG,
            "no shim of the pod is left, or the shim is neither stopped nor waiting in the kernel",
        ),
        like(ids::RUNTIME_HANG, "the runtime answers with an error"),
        like(ids::RUNTIME_DOWN, "the runtime answers with an error"),
        like(
            ids::DOCKER_CONTAINERD_STATE_DESYNC,
            "no record of dockerd contradicts the state of the container",
        ),
        like(ids::OCI_HOOK_FAILS, "the error is about a container, not a hook"),
        like(ids::RUNTIME_HANDLER_GONE, "the error is about a container, not a runtime's handler"),
    ],
    ways_out: &[
        way(
            "where the shim is alive, kill it: the runtime then reports the end of its containers itself",
            "all containers of the pod end",
        ),
        way("remove the task with `ctr --namespace k8s.io task delete --force`", ""),
        way(
            "restart the runtime",
            "containers keep running under their shims; with Docker, only if live-restore is set",
        ),
    ],
    field: &[
        "containerd#12600",
        "containerd#12678",
        "containerd#8425",
        "containerd#10755",
        "containerd#2744",
    ],
    tried: &[],
    source: &[
        "containerd issues 4016, 5708, 8847, 10755",
        "containerd internal/cri/server/container_stop.go, stopContainer",
        "containerd internal/cri/server/container_remove.go, RemoveContainer",
    ],
};

/// A virtual machine, or a kernel in user space, that does not stop.
pub(crate) static SANDBOX_STAYS: Cause = Cause {
    id: ids::SANDBOX_NOT_STOPPED,
    title: "the pod's sandbox has its own kernel, and its shim does not stop the sandbox",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "With Kata Containers or gVisor, containers run in a virtual machine or on a kernel in user space, and \
        only the sandbox's shim can stop them. The shim waits for the sandbox, which does not answer or is gone (the \
        OOM killer has ended its virtual machine, or the virtual machine hangs), or the sandbox refuses. kubelet \
        retries, and unmounts nothing until the sandbox is stopped.",
    confirmed_by: &[
        seen(
            "the runtime's or kubelet's log reports repeatedly that a stop of the pod failed or took too long",
            &[Origin::Log],
        ),
        seen(
            "the pod's shim is alive and is that of Kata, gVisor or another sandbox (`containerd-shim-kata-v2`, \
             `containerd-shim-runsc-v1`)",
            &[Origin::Proc],
        ),
        absent(
            "no process of the sandbox has SIGKILL pending, and its control group is not frozen",
            Feed::Node,
        ),
        hidden(
            "the shim waits for its sandbox and has not lost it: podstuck cannot query the shim",
        ),
    ],
    log: log(
        "containerd",
        "StopPodSandbox ... failed to stop sandbox container ... context deadline exceeded",
    ),
    look_alikes: &[
        like(ids::SHIM_HUNG, "the pod's shim is neither stopped nor waiting in the kernel"),
        like(ids::SHIM_OR_CONTAINERD_STATE_LOST, "the shim of the sandbox exists"),
        like(
            ids::CONTAINER_NOT_KILLED,
            "the sandbox, not the node's kernel, delivers signals to its containers",
        ),
    ],
    ways_out: &[
        way(
            "kill the sandbox's own process (`qemu`, `cloud-hypervisor`, gVisor's `exe`) with `kill -9`",
            "",
        ),
        way("kill its shim with `kill -9`: the runtime cleans up after it", ""),
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
    title: "a container's process is still running, and the runtime has not killed it",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The runtime sent the stop signal, usually SIGTERM, and the process ignores it or does not end. SIGKILL \
        should have followed and did not: an earlier stop of the same container holds the runtime's lock or is the \
        one that must send SIGKILL, or the runtime was restarted in between. Or no signal can be sent: runc no \
        longer finds the container, or fails, as where the working directory of the shim that starts it is deleted, or the \
        kernel refuses the signal with EPERM because an agent protects its own processes. kubelet retries, and unmounts nothing until the container is stopped.",
    confirmed_by: &[
        seen(
            "the runtime's or kubelet's log reports that the wait for the container's end took too long, or that the \
             container could not be signalled",
            &[Origin::Log],
        ),
        seen(
            "a process of the container is alive, has no SIGKILL pending, and its control group is not frozen",
            &[Origin::Proc],
        ),
        seen("both are seen for 5 s", &[Origin::Proc, Origin::Log, Origin::Scans]),
    ],
    log: log(
        "containerd",
        "StopContainer ... an error occurs during waiting for container ... to be killed",
    ),
    look_alikes: &[
        like(ids::SANDBOX_NOT_STOPPED, "the pod's containers run on the node's own kernel"),
        like(ids::SHIM_OR_CONTAINERD_STATE_LOST, "the container's process exists"),
        like(ids::DSTATE_PROCESS, "no SIGKILL is pending: the process was not killed"),
        like(ids::ZOMBIE_NOT_REAPED, "the container's processes are alive"),
        like(ids::TRACER_KEEPS_PROCESS, "the container's processes have taken no fatal signal"),
        like(ids::CGROUP_V1_FROZEN, "the pod's control group is not frozen"),
        like(ids::SHIM_HUNG, "the pod's shim is neither stopped nor waiting in the kernel"),
    ],
    ways_out: &[
        way("kill the container's first process with `kill -9`", ""),
        way("lift the protection that refuses the signal", ""),
        way("kill the shim whose working directory is deleted", ""),
        way(
            "restart the runtime: it forgets the stop that blocks later ones",
            "containers keep running under their shims; with Docker, only if live-restore is set",
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
        "triton-inference-server#3255",
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
    meaning: "The shim is the runtime's process that starts and ends the containers of one pod (with Docker, of one \
        container). The shim is stopped, waits in the kernel or is blocked internally, so the runtime, which answers \
        all other requests, receives no answer about these containers. kubelet, or the Docker client, retries, and \
        nothing is unmounted until the shim answers.",
    confirmed_by: &[
        seen(
            "the runtime's or kubelet's log reports more than once that a request about the pod's container was not \
             answered in time",
            &[Origin::Log, Origin::Scans],
        ),
        seen(
            "the pod still has processes, and their parent is a shim that is stopped or waits in the kernel",
            &[Origin::Proc],
        ),
        or_seen(
            "or a child of that shim has ended, and the shim has not collected its exit status for 10 s",
            &[Origin::Proc],
        ),
        or_seen(
            "or the shim of a container that is in no pod, or of the container asked about, has been stopped for 5 \
             s, or was seen waiting in the kernel for 20 s",
            &[Origin::Proc],
        ),
    ],
    log: log("containerd", "get state for ...: context deadline exceeded"),
    look_alikes: &[
        like(ids::SANDBOX_NOT_STOPPED, "the shim itself does not respond"),
        like(ids::CONTAINER_NOT_KILLED, "the shim, which would forward a signal, does not respond"),
        like(ids::SHIM_OR_CONTAINERD_STATE_LOST, "the shim exists"),
        like(ids::RUNTIME_HANG, "the state of the shim explains why it does not answer"),
        like(ids::ZOMBIE_NOT_REAPED, "the shim itself does not respond"),
        like(
            ids::DOCKER_CONTAINERD_STATE_DESYNC,
            "the shim cannot report the state of the container",
        ),
    ],
    ways_out: &[
        way("resume a stopped shim with `kill -CONT`", ""),
        way(
            "kill the shim: the runtime then ends its containers and cleans up after it",
            "its containers end: with Kubernetes, all containers of the pod",
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
    title: "the container runtime does not respond, or cannot list its containers",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "kubelet repeatedly asks the runtime to stop the pod's containers and receives no answer in time, while \
        no process of the pod waits in the kernel. The runtime is blocked as a whole, by a lock or by a shim that it \
        waits for, or a signal has stopped it, or it has used up its file descriptors or the tasks of its control group. Or \
        it answers each request for the list of all containers with an error, without which kubelet knows the state of none.",
    confirmed_by: &[
        seen(
            "kubelet's log has DeadlineExceeded for the pod more than once; and it has that for requests that are \
             about no pod, or says that PLEG is not healthy",
            &[Origin::Log],
        ),
        or_seen(
            "or the daemon of the pod's shims is stopped by a signal, its control group is frozen, or it has reached \
             its limit of open files and accepts no connections",
            &[Origin::Proc],
        ),
        or_seen(
            "or its own log has the request to stop the pod's sandbox, and no result",
            &[Origin::Log],
        ),
        or_seen(
            "or at least two clients that asked for a list or the version, which takes a moment, have waited for \
             longer than 20 s; or the daemon accepts no connections",
            &[Origin::Look],
        ),
        or_seen(
            "or kubelet's log says repeatedly, until now, that the container runtime is down or PLEG is not healthy, \
             while a pod that is to be deleted has processes: kubelet then does nothing for any pod",
            &[Origin::Log],
        ),
        or_seen(
            "or kubelet's log says repeatedly, until now, that it cannot retrieve the runtime's pods, with the error that the \
             runtime answers with",
            &[Origin::Log],
        ),
    ],
    log: log("kubelet", "PLEG is not healthy"),
    look_alikes: &[
        like(ids::RUNTIME_SOCKET_GONE, "the request times out: connecting does not fail at once"),
        like(ids::DISK_FULL_RUNTIME, "the runtime's disk has free space"),
        like(
            ids::SHIM_OR_CONTAINERD_STATE_LOST,
            "the runtime does not answer, or answers with an error about all containers",
        ),
        like(ids::SHIM_HUNG, "the pod's shim is neither stopped nor waiting in the kernel"),
        like(ids::RUNTIME_DOWN, "its process exists"),
        like(ids::DOCKER_CONTAINERD_STATE_DESYNC, "the daemon does not answer at all"),
        like(
            ids::RUNTIME_COMMAND_HUNG,
            "requests that run no command are not answered either, or the daemon cannot run",
        ),
    ],
    ways_out: &[
        way("resume a stopped or frozen daemon", ""),
        way("if the daemon has used up its file descriptors, raise its limit with `prlimit`", ""),
        way("if its control group has as many tasks as it may, raise pids.max", ""),
        way(
            "where it answers with an error, repair what that names: remove ended containers if the list is too long, have it \
             load its CRI plugin",
            "",
        ),
        way("send SIGUSR1 to the runtime: it writes its stack traces to its log", ""),
        way(
            "restart the runtime",
            "containers keep running under their shims; with Docker, only if live-restore is set",
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
    title: "the container runtime runs, but kubelet cannot connect to its socket",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The daemon of containerd, Docker or CRI-O listens on a socket whose file was removed or replaced: by a \
        clean-up of /run, by a second instance that was started and ended, or by a snapshotter's installer. Or the \
        daemon does not listen, because its start is not finished: it waits for a lock, a plugin or a shim. kubelet \
        cannot connect, and stops and removes no pod of the node.",
    confirmed_by: &[
        seen(
            "kubelet's log says, more than once, that connecting to the runtime's socket fails: no such file or directory, \
         or connection refused",
            &[Origin::Log],
        ),
        seen(
            "a running runtime has a socket bound to that path, by the kernel's list of sockets",
            &[Origin::Proc],
        ),
        or_seen("or the only running runtime of that name listens on no socket", &[Origin::Proc]),
        or_seen(
            "or it listens on no socket, and has a database open whose lock another process has",
            &[Origin::Proc],
        ),
        seen(
            "the path names no file, or another one than the one that the socket is bound to, by its inode in sock_diag",
            &[Origin::Look],
        ),
    ],
    log: log("kubelet", "dial unix ...: connect: no such file or directory"),
    look_alikes: &[
        like(ids::RUNTIME_DOWN, "its process runs"),
        like(ids::RUNTIME_HANG, "connecting fails at once, without a timeout"),
        like(ids::SHIM_OR_CONTAINERD_STATE_LOST, "kubelet cannot connect to the runtime at all"),
    ],
    ways_out: &[
        way("where it does not listen, find in its log what its start waits for", ""),
        way("end an earlier process of the runtime that has the lock on its database", ""),
        way(
            "restart the runtime: it creates the file again",
            "containers keep running under their shims; with Docker, only if live-restore is set",
        ),
    ],
    field: &["kubernetes#129193", "nydus-snapshotter#631", "gpu-operator#303"],
    tried: &[TriedWith::Test],
    source: &["linux net/unix/af_unix.c, unix_find_bsd", "go net/unixsock_posix.go"],
};

/// A runtime that does not run.
pub(crate) static RUNTIME_DOWN: Cause = Cause {
    id: ids::RUNTIME_DOWN,
    title: "the container runtime does not run, but containers that it started do",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The daemon of containerd, Docker or CRI-O has ended and was not started again: the OOM killer ended \
        it, it fails when it starts, or its service was stopped. Its shims keep the containers alive, and no daemon \
        ends them. Meanwhile kubelet does nothing for any pod of the node.",
    confirmed_by: &[
        seen(
            "shims are alive, and no process listens on the socket through which they call containerd, or no dockerd \
             or CRI-O runs at all",
            &[Origin::Proc],
        ),
        seen("this has lasted for longer than a restart of a service takes", &[Origin::Scans]),
        seen(
            "the pod is to be deleted and has processes, or the container is the one asked about",
            &[Origin::Api, Origin::Log, Origin::Proc],
        ),
    ],
    log: None,
    look_alikes: &[
        like(ids::RUNTIME_SOCKET_GONE, "no process of the runtime exists"),
        like(ids::RUNTIME_HANG, "no process of the runtime exists"),
        like(ids::SHIM_OR_CONTAINERD_STATE_LOST, "the shim exists, and the runtime does not run"),
        like(ids::DOCKER_CONTAINERD_STATE_DESYNC, "dockerd or containerd does not run at all"),
    ],
    ways_out: &[
        way("read the service's journal to find out why the service ended", ""),
        way(
            "start the service",
            "containers keep running under their shims; with Docker, only if live-restore is set",
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
    title: "dockerd lists an ended container as running, or a running container as ended",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "containerd runs the containers of dockerd, and sends an event when a container ends. The event was \
        lost: containerd was killed and started again, or the disk was full. From then on, dockerd shows `Up` for a \
        container that has no process, and requests to stop or remove the container wait for an event that does not \
        come; or dockerd shows `Exited` for a container whose task is alive, and neither stops nor can restart it. \
        With dockershim or cri-dockerd, the pod stays in Terminating.",
    confirmed_by: &[
        seen(
            "dockerd's record says that the container runs, but the process that it names does not exist or does not \
             belong to the container; or the record says that the container has ended, but its earlier shim is alive",
            &[Origin::Files],
        ),
        seen("dockerd and containerd run, and this has lasted for 20 s", &[Origin::Scans]),
    ],
    log: None,
    look_alikes: &[
        like(
            ids::SHIM_OR_CONTAINERD_STATE_LOST,
            "dockerd's record is wrong; containerd was not asked whether it can end the task",
        ),
        like(ids::RUNTIME_HANG, "dockerd and containerd work"),
        like(ids::RUNTIME_DOWN, "dockerd and containerd run"),
        like(ids::SHIM_HUNG, "the container's shim is gone, or runs"),
        like(
            ids::DOCKER_LOG_DRIVER_BLOCKS,
            "the container's log driver waits for no other program",
        ),
    ],
    ways_out: &[
        way(
            "kill the ended container with `docker kill`: containerd answers dockerd that it has no such task, and \
             dockerd lists the container as ended some seconds later",
            "",
        ),
        way(
            "kill the live task with `ctr --namespace moby task kill`",
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
    meaning: "dockerd passes a container's output to its log driver. When the container ends, dockerd closes the log \
        driver before it lists the container as ended, and holds the container's lock meanwhile. `fluentd` and some \
        other drivers first send the remaining output, and retry until their server answers. Until then, dockerd \
        shows `Up`, and `docker stop`, `docker kill`, `docker inspect` and `docker rm` of the container wait as \
        well. With dockershim or cri-dockerd, the pod stays in Terminating.",
    confirmed_by: &[
        seen(
            "dockerd's record says that the container runs, and its log driver, by dockerd's hostconfig.json, sends \
             to another program",
            &[Origin::Files],
        ),
        seen(
            "the process that the record names does not exist, and this has lasted for 20 s",
            &[Origin::Scans],
        ),
        seen(
            "dockerd's log says that the container's task was deleted, which dockerd does once it knows of the end; \
             or no process listens at the driver's loopback address",
            &[Origin::Log, Origin::Proc],
        ),
        hidden("dockerd waits for the log driver, and not for another part of the container's end"),
    ],
    log: log("dockerd", "Logger didn't exit in time: logs may be truncated"),
    look_alikes: &[like(
        ids::DOCKER_CONTAINERD_STATE_DESYNC,
        "dockerd has deleted the container's task, so it knows that the container has ended",
    )],
    ways_out: &[
        way(
            "restore the log driver's server at its address: dockerd then sends the remaining output and continues",
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
    title: "the runtime cannot unmount an image volume because it is in use",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "containerd 2.1 and later mounts the image of an image volume in its own directory for the pod's \
        sandbox, and unmounts the image when the sandbox is stopped. A process outside the pod uses that mount, or \
        another mount is on it: the unmount fails with EBUSY, the sandbox is not stopped, and kubelet retries. \
        kubelet's own directory has nothing left of the volume.",
    confirmed_by: &[
        seen(
            "the runtime's or kubelet's log reports at each attempt that the image volume is busy",
            &[Origin::Log],
        ),
        seen(
            "a process uses that mount in the runtime's mount namespace, or in one to which the unmount propagates",
            &[Origin::Proc],
        ),
    ],
    log: log("containerd", "failed to unmount image volume component ...: device or resource busy"),
    look_alikes: &[],
    ways_out: &[way(
        "end the process that uses the volume; the runtime's next attempt unmounts the volume",
        "",
    )],
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
    meaning: "A runtime keeps a sandbox's network namespace with a file, /run/netns/cni-..., on which the namespace \
        is mounted. To stop the sandbox, the runtime unmounts the namespace once and removes the file. The namespace \
        was mounted more than once, or is mounted on the same file through another path to /run: the remaining mount \
        makes the removal fail with EBUSY, and the sandbox counts as running. kubelet retries, and unmounts nothing \
        until the sandbox is stopped.",
    confirmed_by: &[
        seen(
            "the runtime's or kubelet's log reports at each attempt that the file of the network namespace is busy",
            &[Origin::Log],
        ),
        seen(
            "in the runtime's mount namespace, a mount is on that file, at its path or through another path",
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
            "the kernel is newer than 3.18, which podstuck requires",
        ),
    ],
    ways_out: &[
        way("unmount the remaining mount on the file; the next attempt removes the file", ""),
        way(
            "set `mountPropagation: HostToContainer` in the container that mounts the host's / or /run",
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
    meaning: "The containers of a pod share an in-memory file system at /dev/shm, which the runtime mounts in the \
        sandbox's directory. The runtime's process was killed before it could unmount the file system, or the file \
        system was mounted more than once: the directory is still a mount point, and its removal fails with EBUSY. \
        The sandbox stays. Whether the pod waits for the sandbox depends on the request, to stop or to remove the \
        sandbox, and on kubelet's version.",
    confirmed_by: &[
        seen(
            "the runtime's or kubelet's log reports that the directory of the sandbox's shared memory is busy",
            &[Origin::Log],
        ),
        seen(
            "in the runtime's mount namespace, a mount is on that directory",
            &[Origin::Proc, Origin::Mounts],
        ),
    ],
    log: log("CRI-O", "unlinkat .../userdata/shm: device or resource busy"),
    look_alikes: &[like(
        ids::MOUNT_LEAKED_FOREIGN_NS_EL7,
        "the kernel is newer than 3.18, which podstuck requires",
    )],
    ways_out: &[way(
        "unmount the directory; the next attempt removes it",
        "files that the pod left in /dev/shm are lost",
    )],
    field: &["cri-o#1453", "moby#22877"],
    tried: &[TriedWith::Test],
    source: &[
        "cri-o issue 1453, pull request 3073",
        "containerd internal/cri/server/helpers.go, ensureRemoveAll",
        "linux fs/namei.c, vfs_rmdir: is_local_mountpoint",
    ],
};
