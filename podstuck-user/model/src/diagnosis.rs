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
    said::Said,
};

/// What `diagnose` found out.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Diagnosis {
    /// What was asked about; `null` for the whole node.
    pub target: Option<String>,
    /// How far the pods in question have come.
    pub stages: Vec<PodStage>,
    /// How far the container in question has come.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<ContainerProgress>,
    /// Whether the first cause is beyond reasonable doubt.
    pub firm: bool,
    /// Since when the pod is to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<Terminating>,
    /// That the pod went while it was watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone: Option<Gone>,
    /// How far deletions of very many entries have come.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub progress: Vec<Progress>,
    /// How long was looked, in seconds.
    pub window_s: f64,
    /// What holds now, the most likely cause first.
    pub causes: Vec<Finding>,
    /// What matters whatever the cause is, and however it is cured: most of it keeps the pod here.
    pub notes: Vec<String>,
    /// What was found and is over.
    pub over: Vec<Finding>,
    /// What components say in their logs about the pods, the last of each kind.
    pub said: Vec<Said>,
    /// What it is not, each with the fact that says so.
    pub ruled_out: Vec<RuledOut>,
    /// Where to look next; empty when the verdict is firm.
    pub next: Vec<String>,
}

/// Since when a pod is `Terminating`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Terminating {
    /// When somebody asked for it.
    pub since: Timestamp,
    /// Who says so.
    pub by: String,
}

/// A pod of which nothing is left on this node.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Gone {
    /// The pod.
    pub pod: Pod,
    /// How long after the run's begin, in seconds.
    pub after_s: f64,
}

/// How far a pod's deletion has come on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PodStage {
    /// The pod.
    pub pod: Pod,
    /// How far.
    pub stage: Stage,
    /// The fact that says so.
    pub fact: String,
    /// Who waits for whom, from the API server to the last one that is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<Link>,
}

/// The stages of a deletion, in kubelet's order since 1.27: `SyncTerminatingPod`, then
/// `SyncTerminatedPod` with its wait for volumes, then the pod's cgroup.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Processes of the pod live: its containers run, or do not die.
    Containers,
    /// None lives, and something is mounted or lies in its volumes.
    Volumes,
    /// Its volumes are gone, its cgroup is not.
    Cgroup,
    /// Nothing of it is left but directories: what is missing now is the API's to say.
    Directories,
    /// This node has nothing of it.
    Gone,
    /// The same, and the API server still has its record, which is to go.
    Api,
}

impl Stage {
    /// What a person is told.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Containers => "its containers run or do not die",
            Self::Volumes => "its containers are gone, its volumes are not",
            Self::Cgroup => "its volumes are gone, its cgroup is not",
            Self::Directories => {
                "nothing of it is left in kubelet's directory but empty directories"
            }
            Self::Gone => "there is nothing of it on this node",
            Self::Api => {
                "there is nothing of it on this node, and the API server still has its record"
            }
        }
    }
}
