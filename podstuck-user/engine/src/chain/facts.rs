//! What the chain is built from.

use jiff::Timestamp;

use crate::{
    backoff,
    kubelet_steps::NotAsked,
    model::{
        diagnosis::Terminating,
        finding::Finding,
        identity::Component,
        node::NodeSample,
        pod_group::Task,
        pod_record::{ContainerRecord, PodRecord},
        runtime::Shim,
        said::{self, Level, Said},
        time::Clock,
    },
    waits::Waits,
};

/// The components that are container runtimes.
pub(super) const RUNTIMES: [Component; 3] =
    [Component::Containerd, Component::Dockerd, Component::CriO];

/// What kubelet calls its steps that stop a pod (pkg/kubelet/container/sync_result.go).
const KILLS: [&str; 2] = ["KillContainer", "KillPodSandbox"];

/// The inputs of the chain.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    /// The last scan of the node.
    pub(crate) sample: &'a NodeSample,
    /// Log messages of components about the pod, the latest last.
    pub(crate) said: &'a [Said],
    /// The requested deletion of the pod, if known.
    pub(crate) terminating: Option<&'a Terminating>,
    /// The pod's record, if it was read.
    pub(crate) record: Option<&'a PodRecord>,
    /// Findings that hold the pod, the most likely first.
    pub(crate) causes: &'a [Finding],
    /// The observed waits of the processes that must act.
    pub(crate) waits: &'a Waits,
    /// Converts the kernel's time to calendar time.
    pub(crate) clock: &'a Clock,
    /// When the runtime is to send SIGKILL to the pod's containers: the end of the grace period, if that is to come.
    pub(crate) kill_at: Option<Timestamp>,
    /// Set if kubelet has not asked the runtime to stop a container of the pod.
    pub(crate) not_asked: Option<NotAsked<'a>>,
    /// Whether kubelet's log or the runtime's has a step of the pod's deletion.
    pub(crate) has_acted: bool,
    /// The failing watch of kubelet, if kubelet has not received the deletion.
    pub(crate) watch: Option<&'a Said>,
}

impl<'a> Facts<'a> {
    /// The most significant complaint of these components.
    pub(super) fn last_of(&self, components: &[Component]) -> Option<&'a Said> {
        weightiest(self.said.iter().filter(|said| components.contains(&said.component)))
    }

    /// kubelet's last complaint, if it is the answer of the runtime to the request to stop the pod's containers: kubelet
    /// then reaches no later step.
    pub(super) fn refused_kill(&self) -> Option<&'a Said> {
        let said = self.last_of(&[Component::Kubelet])?;
        // What the runtime does not have is stopped.
        let is_gone = said::is_not_found(&said.text);
        let is_kill = !is_gone && KILLS.iter().any(|words| said.text.contains(words));
        let lasts = said.level == Level::Error && said.times > 1;
        (lasts && is_kill && said.volume.is_empty() && said::answered(&said.text).is_some())
            .then_some(said)
    }

    /// The container that a process belongs to, by the ID in its control group and in the pod's record.
    pub(super) fn container_of(&self, task: &Task) -> Option<&str> {
        let mut containers = self.record?.containers.as_ref()?.iter();
        let is_its =
            |it: &&ContainerRecord| it.docker_and_id().is_some_and(|(_, id)| task.is_in(id));
        containers.find(is_its).map(|its| its.name.as_str())
    }

    /// The container that kubelet last failed to stop, if no process of the pod is left but the sandbox's own. Of a
    /// sandbox with a kernel of its own, that is not visible.
    pub(crate) fn ended_container(&self, uid: &str) -> Option<&ContainerRecord> {
        let text = &self.last_of(&[Component::Kubelet])?.text;
        let (_, rest) = text.split_once("failed to \"KillContainer\" for \"")?;
        let (name, _) = rest.split_once('"')?;
        let its = self.record?.containers.as_ref()?.iter().find(|it| it.name == name)?;
        let group = self.sample.cgroups.iter().find(|group| group.uid == uid)?;
        let is_bare =
            group.outside.is_empty() && group.tasks.iter().all(|it| group.is_sandboxs(it));
        (is_bare && !group.shims.iter().any(Shim::has_own_kernel)).then_some(its)
    }
}

/// The most significant complaint: a repeated or recent one before a single old one, then an error before a warning,
/// then the latest.
pub(crate) fn weightiest<'a>(said: impl Iterator<Item = &'a Said> + Clone) -> Option<&'a Said> {
    let said = said.filter(|said| said.report.is_none());
    let last = said.clone().map(|said| said.at).max()?;
    let is_lasting = |said: &Said| {
        let ago = last.duration_since(said.at).unsigned_abs();
        said.times > 1 || ago <= backoff::CAP * 2
    };
    said.max_by_key(|said| (is_lasting(said), said.level, said.at))
}
