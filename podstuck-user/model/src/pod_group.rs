//! A pod's control group and the processes in it.

use std::{path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    chain::Who,
    identity::Target,
    kernel_lock::LockHolder,
    raw_path,
    runtime::{Shim, ShimOf},
};

/// A pod's control group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodGroup {
    /// Hash that names the pod as a target; 0 until attributed.
    pub target_id: u64,
    /// The pod as a target.
    pub target: Arc<Target>,
    /// The pod's UID.
    pub uid: String,
    /// The group's directory.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    /// Whether it contains a container's group, created by a runtime.
    pub has_containers: bool,
    /// The IDs of those containers, in a run about one pod. A runtime removes the group of a container that it knows to
    /// have ended.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub containers: Vec<String>,
    /// The cgroup v1 group whose `freezer.state` freezes its processes: the group itself, one below or one above.
    #[serde(with = "raw_path::option")]
    pub frozen: Option<PathBuf>,
    /// Processes in it.
    pub tasks: Vec<Task>,
    /// Processes in none of the pod's control groups: children of the pod's shims with mounts of their own, such as a
    /// container's first process that was moved, and in a run about one pod the others in a container's PID namespace. They
    /// are searched for in such a run, and for a pod with a container whose control group has no process.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub outside: Vec<Task>,
    /// The shims of its containers, usually one.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub shims: Vec<Shim>,
}

/// A process in a pod's control group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Process id.
    pub pid: u32,
    /// The thread that the other fields describe: an unkillable one, else the first.
    pub tid: u32,
    /// Its name, safe to show.
    pub comm: String,
    /// `R`, `S`, `D`, ...
    pub state: char,
    /// Its disposition of `SIGTERM`; `None` in older recordings.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub term: Option<Term>,
    /// It is the init process of a PID namespace other than the node's; read in a run about one pod, of a process
    /// without a handler for `SIGTERM`.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_init: bool,
    /// `SIGKILL` is pending.
    pub killed: bool,
    /// It has taken `SIGKILL` and is exiting, or is to exit as soon as its tracer continues it.
    pub exiting: bool,
    /// It is killed or exiting, and writes the core dump of its process, or waits until that is written.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub dumps: bool,
    /// Start of the thread in ticks since boot: with its id, it identifies the thread.
    pub started: u64,
    /// Number of wakeups so far; read only if it is to exit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub woken: Option<u64>,
    /// Bytes read and written so far, by calls and by devices, plus the number of those calls; read only if it is to
    /// exit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub moved: Option<u64>,
    /// Bytes of replies so far from the servers of all NFS mounts that it sees; read only if signals do not reach
    /// it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub received: Option<u64>,
    /// The kernel function that it waits in, if visible.
    pub wait_channel: Option<String>,
    /// The functions on its kernel stack, the innermost first; empty without `CAP_SYS_ADMIN`.
    pub stack: Vec<String>,
    /// If it waits for a lock of the kernel: the threads that it waits for, as [`super::stuck::StuckThread::lock`]; read only if
    /// it is to exit.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub lock: Vec<LockHolder>,
    /// Its working directory, as it sees the path.
    #[serde(with = "raw_path::option")]
    pub directory: Option<PathBuf>,
    /// Its control group.
    #[serde(with = "raw_path")]
    pub group: PathBuf,
    /// Its tracer; read of a thread in state `t`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub traced_by: Option<Reaper>,
    /// The other processes of its PID namespace; read of an init process that has exited and waits until they are gone
    /// (`zap_pid_ns_processes` in kernel/pid_namespace.c).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub members: Vec<Member>,
}

/// A process of a PID namespace whose init process has exited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Process id.
    pub pid: u32,
    /// Its name, safe to show.
    pub comm: String,
    /// `R`, `S`, `D`, ...
    pub state: char,
    /// Of a zombie: its parent or tracer, if that is outside the namespace.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reaper: Option<Reaper>,
}

impl Member {
    /// The process by its name.
    pub fn who(&self) -> Who {
        Who::task(&self.comm, self.pid)
    }
}

/// A process that is to collect the exit status of a [`Member`], and lives on when the namespace's init process ends; or
/// the tracer of a [`Task`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reaper {
    /// Process id.
    pub pid: u32,
    /// Its start in ticks since boot: with the pid, it identifies the process.
    pub started: u64,
    /// Its name, safe to show.
    pub comm: String,
    /// `R`, `S`, `D`, ...
    pub state: char,
    /// It is the tracer: the parent of a zombie is notified of the exit only after the tracer has collected it (ptrace(2)).
    pub traces: bool,
    /// Its control group.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub group: Option<String>,
}

/// The disposition of a signal that is sent to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Term {
    /// It is pending.
    Pending,
    /// The thread blocks it.
    Blocked,
    /// The process ignores it.
    Ignored,
    /// The process has a handler for it.
    Handled,
    /// It terminates the process. For the init process of a PID namespace the kernel discards it (pid_namespaces(7);
    /// `sig_task_ignored` in kernel/signal.c).
    Default,
}

impl Reaper {
    /// The process by its name.
    pub fn who(&self) -> Who {
        Who::task(&self.comm, self.pid)
    }

    /// What it is to the zombie.
    pub fn role(&self) -> &'static str {
        if self.traces { "tracer" } else { "parent" }
    }

    /// Whether a signal or a debugger has stopped it.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }
}

impl Term {
    /// A clause about a process.
    const fn words(self) -> &'static str {
        match self {
            Self::Pending => "SIGTERM is pending",
            Self::Blocked => "blocks SIGTERM",
            Self::Ignored => "ignores SIGTERM",
            Self::Handled => "has a handler for SIGTERM",
            Self::Default => "has no handler for SIGTERM",
        }
    }
}

impl PodGroup {
    /// Whether the only processes that were found are outside the pod's control groups.
    pub fn is_moved(&self) -> bool {
        self.tasks.is_empty() && !self.outside.is_empty()
    }

    /// Whether it is one of those outside the pod's control groups.
    pub fn is_outside(&self, task: &Task) -> bool {
        self.outside.iter().any(|it| it.pid == task.pid)
    }

    /// Whether a process in these groups is in the sandbox and in no container: by its name, or because the pod's only shim is one of
    /// containerd's CRI plugin, which starts it for the sandbox (`-id`).
    pub fn is_sandboxs(&self, task: &Task) -> bool {
        let of_sandbox = match &self.shims[..] {
            [shim]
                if matches!(shim.of, Some(ShimOf::Containerd { .. }))
                    && !shim.is_dockers()
                    && !shim.has_own_kernel() =>
            {
                shim.container.as_deref()
            }
            _ => None,
        };
        !self.is_outside(task) && (task.is_pause() || of_sandbox.is_some_and(|id| task.is_in(id)))
    }
}

impl Task {
    /// The process by its name.
    pub fn who(&self) -> Who {
        Who::task(&self.comm, self.pid)
    }

    /// Whether it is a sandbox's own process, the `pause` of most images: it waits until the runtime stops the
    /// sandbox.
    pub fn is_pause(&self) -> bool {
        self.comm == "pause"
    }

    /// Whether its control group is that of the container or the sandbox with this ID. CRI-O's monitor is in a group whose
    /// name has the same ID.
    pub fn is_in(&self, id: &str) -> bool {
        let group = self.group.to_string_lossy();
        !id.is_empty() && group.contains(id) && !group.contains("crio-conmon-")
    }

    /// A clause about its disposition of `SIGTERM`, if known.
    pub fn term_words(&self) -> Option<&'static str> {
        self.term.map(|term| match term {
            Term::Default if self.is_init => {
                "has no handler for SIGTERM, which the kernel discards for the init process of a PID namespace"
            }
            term => term.words(),
        })
    }

    /// Whether `SIGTERM` is known not to end it, and with it its container, of which it is the init process.
    pub fn outlasts_term(&self) -> bool {
        self.is_init && self.is_alive() && matches!(self.term, Some(Term::Default | Term::Ignored))
    }

    /// Whether it is alive and no `SIGKILL` has reached it.
    pub fn is_alive(&self) -> bool {
        !self.killed && !self.exiting && !matches!(self.state, 'Z' | 'X')
    }

    /// A zombie that keeps it, the init process of a PID namespace, from ending, and the process outside the namespace
    /// that does not collect the zombie's exit status.
    pub fn zombie(&self) -> Option<(&Member, &Reaper)> {
        self.members.iter().find_map(|member| Some((member, member.reaper.as_ref()?)))
    }

    /// Whether it is to exit and waits uninterruptibly, for something else than a core dump.
    pub fn is_unkillable(&self) -> bool {
        self.state == 'D' && (self.killed || self.exiting) && !self.dumps
    }
}
