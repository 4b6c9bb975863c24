//! A pod with a complaint in a log, and the state of the node that bears on it.

use std::{path::PathBuf, time::Duration};

use crate::{
    backoff,
    causes::{
        runtime::{
            sandbox::{Held, Look},
            socket::Locked,
        },
        shared::{pending_deletion::Word, repeated::Repeated},
    },
    model::{
        identity::Component,
        node::{LeftRootfs, NodeSample, PodState},
        pod_group::PodGroup,
        runtime::{OutOfStep, Shim, Unreaped},
        said::{Complaint, Level, Said, container_id},
        time::Monotonic,
    },
    query::SocketPath,
};

/// kubelet waits two minutes for the runtime, twice, and then retries soon. A complaint that is not repeated for longer
/// is resolved.
pub(super) const FRESH: Duration = backoff::CAP.saturating_mul(3);

/// Whether a complaint may not be resolved yet.
pub(super) fn is_fresh(logged: &Repeated) -> bool {
    logged.read.since(logged.last) <= FRESH
}

/// A pod with a complaint in a log.
pub(crate) struct Suspect<'a> {
    pub(crate) pod: &'a PodState,
    pub(crate) complaint: Complaint,
    pub(crate) logged: &'a Repeated,
    /// The same complaint about no pod in particular.
    pub(crate) of_node: Option<&'a Repeated>,
    pub(crate) to_go: Option<&'a Word>,
    /// The mounts on the file of the sandbox that is reported busy.
    pub(crate) lies_on: Option<&'a Look>,
    /// The holders of the image volume or the device that is reported busy.
    pub(crate) held: Option<&'a Held>,
    /// A shim of the pod that has not collected the exit of a child for some time.
    pub(crate) unreaped: Option<Collects<'a>>,
    /// A container of the pod that CRI-O has recorded as running for some time after its end, and since when.
    pub(crate) stale: Option<(&'a OutOfStep, Monotonic)>,
    /// When the runtime logged the request to stop the sandbox, if it has logged no result since.
    pub(crate) silent: Option<Monotonic>,
    /// What the path of the runtime's socket names, if a client cannot connect to it.
    pub(crate) socket: Option<SocketPath>,
    /// A runtime whose start waits for a lock, if a client cannot connect to it.
    pub(crate) locked: Option<Locked<'a>>,
    /// A configuration of the network that lies there although the runtime says that it has none, and since when.
    pub(crate) unread: Option<&'a (PathBuf, Monotonic)>,
    /// The pod's grace period in seconds, if it is too long for kubelet.
    pub(crate) endless: Option<u64>,
    /// What another tracker follows may be what the runtime waits for, such as a root file system that is left.
    pub(crate) is_explained: bool,
    pub(crate) sample: &'a NodeSample,
}

/// A shim that does not collect the exit of its child.
#[derive(Clone, Copy)]
pub(crate) struct Collects<'a> {
    pub(crate) shim: &'a Shim,
    pub(crate) child: &'a Unreaped,
    pub(crate) since: Monotonic,
}

impl<'a> Suspect<'a> {
    /// A suspect with the log lines only.
    pub(super) fn of(
        pod: &'a PodState,
        complaint: Complaint,
        logged: &'a Repeated,
        sample: &'a NodeSample,
    ) -> Self {
        Self {
            pod,
            complaint,
            logged,
            of_node: None,
            to_go: None,
            lies_on: None,
            held: None,
            unreaped: None,
            stale: None,
            silent: None,
            socket: None,
            locked: None,
            unread: None,
            endless: None,
            is_explained: false,
            sample,
        }
    }

    /// Whether the complaint is about no pod in particular.
    pub(crate) fn is_one_of_all(&self) -> bool {
        self.logged.said.uid.is_empty()
    }

    /// The ID of the container that the line names.
    pub(crate) fn container(&self) -> Option<&str> {
        container_id(&self.logged.said.text)
    }

    /// The containerd namespace and the ID of that container, if a mount of its bundle shows that it is this pod's.
    pub(crate) fn bundle(&self) -> Option<(&str, &str)> {
        let id = self.container()?;
        let of_pod = |left: &&LeftRootfs| left.pod == self.pod.uid && left.container == id;
        let left = self.sample.rootfs.iter().find(of_pod)?;
        let bundle = left.mount.point.parent()?;
        let namespace = bundle.parent()?.file_name()?.to_str()?;
        let is_plain = namespace.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        let is_known = is_plain && !namespace.starts_with('-');
        (is_known && bundle.file_name()? == id).then_some((namespace, id))
    }

    /// The pod's control groups, if the sample has them.
    pub(crate) fn group(&self) -> Option<&PodGroup> {
        self.sample.cgroups.iter().find(|group| group.uid == self.pod.uid)
    }

    /// Whether the pod's containers run on a kernel of their own; `None` if the sample lacks its control groups.
    pub(crate) fn has_own_kernel(&self) -> Option<bool> {
        Some(self.group()?.shims.iter().any(Shim::has_own_kernel))
    }

    /// The shim of the container that the complaint is about, or the pod's only one.
    pub(crate) fn shim(&self) -> Option<&Shim> {
        let (container, shims) = (self.container(), &self.group()?.shims);
        let its =
            shims.iter().find(|shim| container.is_some() && shim.container.as_deref() == container);
        its.or_else(|| shims.first().filter(|_| shims.len() == 1))
    }

    /// A shim of the pod that cannot run.
    pub(crate) fn halted_shim(&self) -> Option<&Shim> {
        self.group()?.shims.iter().find(|shim| shim.is_halted())
    }

    /// Whether a process has ended whose exit a tracer must collect before the shim.
    pub(crate) fn has_traced(&self) -> bool {
        let shims = self.group().into_iter().flat_map(|group| &group.shims);
        shims.flat_map(|shim| &shim.unreaped).any(|child| child.traced_by.is_some())
    }

    /// Whether no process of the container is left, or of the pod where the container is not known. The sandbox's own
    /// process ends last.
    pub(crate) fn has_ended(&self) -> Option<bool> {
        if let (Some(id), Some(group)) = (self.container(), self.group()) {
            return Some(
                group.outside.is_empty() && !group.tasks.iter().any(|task| task.is_in(id)),
            );
        }
        self.pod.populated.map(|populated| !populated)
    }
}

/// Whether a runtime logs an error about the stop of a pod or its containers, with words that no complaint stands for.
pub(super) fn is_stop_error(said: &Said) -> bool {
    let is_runtimes =
        matches!(said.component, Component::Containerd | Component::CriO | Component::Dockerd);
    let is_open = said.level == Level::Error && said.complaint.is_none() && said.report.is_none();
    // containerd informs plugins of a stop, and ignores their errors (internal/cri/nri).
    let is_ignored = said.text.starts_with("NRI ");
    let words = ["stop", "Stop", "kill", "Kill"];
    is_runtimes && is_open && !is_ignored && words.iter().any(|it| said.text.contains(it))
}

/// Whether a complaint says that no signal reaches a container.
pub(super) fn cannot_signal(complaint: Complaint) -> bool {
    matches!(complaint, Complaint::StateLost | Complaint::SignalRefused | Complaint::KillFails)
}
