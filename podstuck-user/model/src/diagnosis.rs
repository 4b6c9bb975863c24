//! The answer to "why is this stuck?". The shape is a part of the contract `podstuck/v1`.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    chain::Link,
    container::ContainerProgress,
    evidence::RuledOut,
    finding::{Finding, Progress},
    identity::Pod,
    remedy::Remedy,
    said::Said,
};

/// The answer of `diagnose`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Diagnosis {
    /// The target of the question; `null` for the whole node.
    pub target: Option<String>,
    /// The stage of each pod in question.
    pub stages: Vec<PodStage>,
    /// The stage of the container in question.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<ContainerProgress>,
    /// Whether the first cause is certain enough to act on.
    pub firm: bool,
    /// The requested deletion of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<Terminating>,
    /// Set if the pod was removed during the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone: Option<Gone>,
    /// The progress of mass deletions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub progress: Vec<Progress>,
    /// Duration of the observation in seconds.
    pub window_s: f64,
    /// Current findings, the most likely cause first.
    pub causes: Vec<Finding>,
    /// Facts that matter whatever the cause and its remedy are; most of them keep the pod on the node.
    pub notes: Vec<String>,
    /// Findings that no longer hold.
    pub over: Vec<Finding>,
    /// Log messages of components about the pods, the last of each kind.
    pub said: Vec<Said>,
    /// Causes that are ruled out, each with the fact that does so.
    pub ruled_out: Vec<RuledOut>,
    /// What may release the pod where no cause was recognised: the usual acts on the last link of its chain, the least
    /// harmful first. None is proven to help.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<Remedy>,
    /// Further checks; empty if the verdict is firm.
    pub next: Vec<String>,
}

/// The requested deletion of a pod that is `Terminating`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Terminating {
    /// When it was requested.
    pub since: Timestamp,
    /// The source of that time.
    pub by: String,
}

/// A pod that has left this node.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Gone {
    /// The pod.
    pub pod: Pod,
    /// Seconds since the start of the run.
    pub after_s: f64,
}

/// The progress of a pod's deletion on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PodStage {
    /// The pod.
    pub pod: Pod,
    /// The stage.
    pub stage: Stage,
    /// The evidence, as a sentence.
    pub fact: String,
    /// The chain of waits, from the API server to the last known link.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<Link>,
    /// Whether the chain ends with a wait, a state or a cause that is known; absent without a chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// Why the last link's wait is not visible, and what makes it visible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_visible: Option<String>,
}

impl PodStage {
    /// A pod at a stage, without its chain.
    pub fn new(pod: Pod, stage: Stage, fact: impl Into<String>) -> Self {
        let fact = fact.into();
        Self { pod, stage, fact, chain: Vec::new(), complete: None, not_visible: None }
    }

    /// Sets the chain.
    pub fn follow(&mut self, chain: Vec<Link>) {
        self.not_visible = chain.last().and_then(|link| link.not_visible.clone());
        self.complete = (!chain.is_empty()).then_some(self.not_visible.is_none());
        self.chain = chain;
    }
}

/// The stages of a deletion, in kubelet's order since 1.27: `SyncTerminatingPod`, then `SyncTerminatedPod` with its
/// wait for volumes, then the pod's cgroup.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Processes of the pod are alive.
    Containers,
    /// No process is alive; a volume is mounted or has files.
    Volumes,
    /// Its volumes are gone, its cgroup exists.
    Cgroup,
    /// Only directories are left; the rest is visible in the API only.
    Directories,
    /// Nothing is left on this node.
    Gone,
    /// Nothing is left on this node; the API server still has the pod's record, which is being deleted.
    Api,
}

impl Stage {
    /// The text in output.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Containers => "its containers run or do not end",
            Self::Volumes => "its containers are gone, its volumes are not",
            Self::Cgroup => "its volumes are gone, its cgroup is not",
            Self::Directories => "only empty directories of it are left in kubelet's directory",
            Self::Gone => "nothing of it is left on this node",
            Self::Api => {
                "nothing of it is left on this node, but the API server still has its record"
            }
        }
    }
}
