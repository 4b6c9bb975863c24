//! Processes of a pod that do not end.

use crate::cause::Origin;
use crate::{
    cause::{Cause, Kind, TriedWith, like, log, seen, way},
    causes::network_storage::FORCED,
    ids,
    model::diagnosis::Stage,
};

/// A process that waits where no signal reaches it.
pub(crate) static DSTATE: Cause = Cause {
    id: ids::DSTATE_PROCESS,
    title: "a killed process of the pod waits in the kernel and cannot exit",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The process was killed but cannot end: it waits in the kernel, where no signal reaches it, for a disk, \
        a server or a frozen file system. kubelet and the runtime wait for the process, and nothing is unmounted or \
        removed meanwhile. The process ends by itself as soon as its wait in the kernel ends.",
    confirmed_by: &[
        seen("a thread in the pod's control groups is in state D", &[Origin::Proc]),
        seen("SIGKILL is pending for it, or it has taken a fatal signal", &[Origin::Proc]),
        seen("the thread stays in this state", &[Origin::Scans]),
    ],
    log: log("containerd", "StopContainer ... context deadline exceeded"),
    look_alikes: &[
        like(ids::CONTAINER_NOT_KILLED, "SIGKILL was sent, and is pending or taken"),
        like(ids::APPARMOR_SIGNAL_DENIED, "the signal was delivered"),
        like(ids::CGROUP_V1_FROZEN, "its control group is not frozen"),
        like(ids::GPU_DRIVER_DSTATE, "it waits in no function of NVIDIA's driver"),
        like(ids::CGROUP_POPULATED_LEFTOVER, "the process was killed, and cannot end"),
        like(ids::ZOMBIE_NOT_REAPED, "the process is in state D, and not a zombie"),
        like(ids::TRACER_KEEPS_PROCESS, "the process is in state D, and not stopped by a tracer"),
    ],
    ways_out: &[
        way("restore the disk, server or file system that it waits for", ""),
        way("`umount -f` of the NFS volume that it waits for, repeated until it succeeds", FORCED),
        way("otherwise reboot the node", "ends every pod of the node"),
    ],
    field: &["moby#37886", "containerd#14149", "talos#9454"],
    tried: &[TriedWith::Lab, TriedWith::Test],
    source: &[
        "linux kernel/sched/core.c, TASK_UNINTERRUPTIBLE",
        "linux fs/nfs/inode.c, nfs_file_clear_open_context, and fs/nfs/super.c, nfs_umount_begin",
        "kubernetes pkg/kubelet/kubelet.go, SyncTerminatingPod",
    ],
};

/// A process that waits in a GPU's driver.
pub(crate) static GPU_DSTATE: Cause = Cause {
    id: ids::GPU_DRIVER_DSTATE,
    title: "a killed process of the pod waits in NVIDIA's driver and cannot exit",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The process was killed but cannot end: it waits in the GPU's driver, which does not answer. kubelet \
        and the runtime wait for the process.",
    confirmed_by: &[
        seen("a killed thread in the pod's control groups is in state D", &[Origin::Proc]),
        seen("a function of NVIDIA's driver is in its kernel stack", &[Origin::Proc]),
    ],
    log: log("the kernel", "NVRM: Xid"),
    look_alikes: &[
        like(ids::APPARMOR_SIGNAL_DENIED, "the signal was delivered"),
        like(ids::CGROUP_V1_FROZEN, "its control group is not frozen"),
        like(ids::DSTATE_PROCESS, "it waits in a function of NVIDIA's driver"),
    ],
    ways_out: &[
        way("reset the GPU", "every program on that GPU loses its work"),
        way("otherwise reboot the node", "ends every pod of the node"),
    ],
    field: &["nvidia-docker#1553", "k8s-device-plugin#77"],
    tried: &[],
    source: &["NVIDIA open-gpu-kernel-modules, nvidia.ko"],
};

/// A group that the freezer of control groups version 1 has frozen.
pub(crate) static FROZEN_V1: Cause = Cause {
    id: ids::CGROUP_V1_FROZEN,
    title: "the pod's processes are frozen and cannot exit",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "A process that the cgroup v1 freezer has frozen takes no signal, not even SIGKILL. Something froze the \
        control group (a pause, a checkpoint, or a runc that was interrupted between freezing and thawing), and \
        nothing thaws it. With cgroup v2, a frozen process dies when it is killed.",
    confirmed_by: &[
        seen("freezer.state of the group is FROZEN", &[Origin::Proc]),
        seen("a process in it has SIGKILL pending", &[Origin::Proc]),
    ],
    log: log("containerd", "failed to kill all processes in container"),
    look_alikes: &[
        like(ids::CONTAINER_NOT_KILLED, "SIGKILL was sent, and is pending"),
        like(ids::DSTATE_PROCESS, "the group is frozen, and the process waits for nothing else"),
        like(ids::GPU_DRIVER_DSTATE, "the group is frozen, and the process waits for nothing else"),
        like(ids::CGROUP_POPULATED_LEFTOVER, "the group is frozen"),
    ],
    ways_out: &[way("thaw the cgroup", "processes that were paused on purpose continue as well")],
    field: &["containerd#8102", "concourse#4477"],
    tried: &[TriedWith::Lab, TriedWith::RealKubelet, TriedWith::Recording],
    source: &["linux kernel/cgroup/legacy_freezer.c"],
};

/// A zombie that keeps the init process of its PID namespace.
pub(crate) static ZOMBIE: Cause = Cause {
    id: ids::ZOMBIE_NOT_REAPED,
    title: "the container's init process waits for a zombie that is not reaped",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The init process of the container has exited, and the kernel keeps it until its PID namespace is empty. \
        A process in that namespace has ended, but its parent or tracer, which is outside the namespace (nsenter, an \
        agent that started it there, a debugger), does not collect its exit status. The runtime waits for the init \
        process, and kubelet for the runtime.",
    confirmed_by: &[
        seen(
            "an init process in the pod's control groups waits in zap_pid_ns_processes",
            &[Origin::Proc],
        ),
        seen("a process of its PID namespace is a zombie", &[Origin::Proc]),
        seen("the zombie's parent or tracer is outside the namespace", &[Origin::Proc]),
        seen("this lasts", &[Origin::Scans]),
    ],
    log: log("containerd", "StopContainer ... context deadline exceeded"),
    look_alikes: &[
        like(ids::CONTAINER_NOT_KILLED, "SIGKILL was sent, and is taken"),
        like(ids::DSTATE_PROCESS, "no killed process of the pod is in state D"),
        like(ids::SHIM_HUNG, "the zombie's parent or tracer is no shim of the pod"),
        like(ids::SHIM_OR_CONTAINERD_STATE_LOST, "the init process of the container exists"),
    ],
    ways_out: &[
        way("`kill -CONT` of the zombie's parent or tracer, if a signal has stopped it", "low"),
        way(
            "end the zombie's parent or tracer: its next parent reaps the zombie",
            "ends that process: first check whether its work is needed",
        ),
    ],
    field: &["moby#38005", "moby#34488"],
    tried: &[TriedWith::RealRuntime],
    source: &[
        "linux kernel/pid_namespace.c, zap_pid_ns_processes",
        "linux kernel/exit.c, forget_original_parent",
    ],
};

/// A process that its tracer keeps from exiting.
pub(crate) static TRACED: Cause = Cause {
    id: ids::TRACER_KEEPS_PROCESS,
    title: "a debugger or tracer keeps a killed process of the pod from exiting",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The kernel notifies a tracer (strace, a debugger, a profiler) before a process exits, and stops the process \
        until the tracer continues it. A tracer that is stopped or blocked keeps the process, \
        and no further signal reaches it. The runtime waits for the process, and kubelet for the runtime.",
    confirmed_by: &[
        seen("a process in the pod's control groups has taken a fatal signal", &[Origin::Proc]),
        seen("it is in state t, and /proc names its tracer", &[Origin::Proc]),
        seen("this lasts", &[Origin::Scans]),
    ],
    log: log("containerd", "StopContainer ... context deadline exceeded"),
    look_alikes: &[
        like(ids::CONTAINER_NOT_KILLED, "SIGKILL was sent, and is taken"),
        like(ids::DSTATE_PROCESS, "no killed process of the pod is in state D"),
    ],
    ways_out: &[
        way("`kill -CONT` of the tracer, if a signal has stopped it", "low"),
        way(
            "end the tracer: the process then exits",
            "ends that process: first check whether its work is needed",
        ),
    ],
    field: &[],
    tried: &[TriedWith::RealRuntime],
    source: &[
        "linux kernel/exit.c, ptrace_event(PTRACE_EVENT_EXIT)",
        "linux kernel/signal.c, ptrace_stop",
    ],
};

/// A process in the group of a pod that is taken down.
pub(crate) static CGROUP_POPULATED: Cause = Cause {
    id: ids::CGROUP_POPULATED_LEFTOVER,
    title: "the pod is torn down, but a process is still in its cgroup",
    stage: Stage::Cgroup,
    kind: Kind::Cause,
    meaning: "kubelet has removed the pod's volumes and now removes its control groups, which fails with EBUSY while \
        a process is in one of them. kubelet kills the processes that it finds there, so this process was put there \
        later, or is only in the group of another controller.",
    confirmed_by: &[
        seen("the pod's volumes were removed", &[Origin::Calls, Origin::Files]),
        seen(
            "cgroup.procs of one of its groups has a process that was not killed",
            &[Origin::Proc],
        ),
    ],
    log: log("kubelet", "failed to delete cgroup paths"),
    look_alikes: &[
        like(ids::DSTATE_PROCESS, "no process that was killed waits in the kernel"),
        like(ids::CGROUP_V1_FROZEN, "the group is not frozen"),
    ],
    ways_out: &[
        way(
            "move that process to the root group of each hierarchy",
            "low: it keeps running, outside the pod's limits. cgroup v2 refuses a group in between (EBUSY)",
        ),
        way("end that process", "first check whether its work is needed"),
    ],
    field: &["kubernetes#123766", "kubernetes#109182", "runc#4040"],
    tried: &[TriedWith::Lab],
    source: &[
        "linux kernel/cgroup/cgroup.c, cgroup_destroy_locked, cgroup_migrate_vet_dst",
        "kubernetes pkg/kubelet/cm/pod_container_manager_linux.go, tryKillingCgroupProcesses",
    ],
};
