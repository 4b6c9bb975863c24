//! kubelet's own list of its pods (`/pods` on its port): what it shows about pods in deletion.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Meta;

/// Annotation that kubelet sets on each pod in its list: `api`, or for a static pod `file` or `http`.
const CONFIG_SOURCE: &str = "kubernetes.io/config.source";

/// One read of the list, reduced to the pods in question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeletsList {
    /// The pods in question that it has.
    pub pods: Vec<Listed>,
    /// The latest change in it that came from the API server.
    pub latest: Option<Change>,
    /// Whether kubelet's health check succeeded right after. It fails if the sync loop has not completed a round within
    /// the last five minutes.
    pub is_well: bool,
}

/// A pod in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Its UID.
    pub uid: String,
    /// Its `deletionTimestamp`; `None` if kubelet has not received the deletion.
    pub deletion: Option<Timestamp>,
}

/// The creation of a pod, or the request to delete it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Change {
    /// Its time, by the API server.
    pub at: Timestamp,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
}

impl KubeletsList {
    /// Reduces a list to the pods that `is_asked` accepts by their UID.
    pub fn of<'a>(
        all: impl IntoIterator<Item = &'a Meta>,
        is_asked: impl Fn(&str) -> bool,
    ) -> Self {
        let mut list = Self::default();
        for pod in all {
            if is_asked(&pod.uid) {
                list.pods.push(Listed { uid: pod.uid.clone(), deletion: pod.deletion_timestamp });
            }
            list.latest = list.latest.max(latest(pod));
        }
        list
    }

    /// The entry of a pod.
    pub fn entry(&self, uid: &str) -> Option<&Listed> {
        self.pods.iter().find(|it| it.uid == uid)
    }
}

fn latest(pod: &Meta) -> Option<Change> {
    let source = pod.annotations.get(CONFIG_SOURCE);
    let is_of_api = source.is_none_or(|source| source == "api");
    // kubelet's own final deletion has a grace period of 0, and so hides when the deletion was requested.
    let requested = pod.requested().filter(|_| pod.deletion_grace_period_seconds > Some(0));
    let at = pod.creation_timestamp.max(requested).filter(|_| is_of_api)?;
    let namespace = pod.namespace.clone().unwrap_or_default();
    Some(Change { at, namespace, name: pod.name.clone() })
}

/// Why kubelet's list was not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NotRead {
    /// The user permits no request.
    NotAsked,
    /// kubelet listens on no port where it serves the list.
    NoPort,
    /// kubelet did not accept the connection, or another process did.
    NotKubelet,
    /// kubelet does not know the credentials, or there are none (401).
    Unknown,
    /// The credentials lack the right (403).
    Forbidden,
    /// Another reason.
    Other(String),
}

impl NotRead {
    /// What is not known before it is asked for.
    pub const UNREAD: &str = "what kubelet's own list of its pods says (its /pods was not read)";

    /// What is not known, and the reason.
    pub const fn doubt(&self) -> &'static str {
        match self {
            Self::NotAsked => {
                "what kubelet's own list of its pods says: no request to kubelet is permitted (--api never)"
            }
            Self::NoPort => {
                "what kubelet's own list of its pods says: kubelet does not listen on the port of its configuration, or \
                 on 10250"
            }
            Self::NotKubelet => {
                "what kubelet's own list of its pods says: kubelet has not accepted the connection to its port"
            }
            Self::Unknown => {
                "what kubelet's own list of its pods says: kubelet refuses its /pods to the credentials of this run \
                 (401). With --api KUBECONFIG, podstuck uses other ones"
            }
            Self::Forbidden => {
                "what kubelet's own list of its pods says: kubelet refuses its /pods to the credentials of this run \
                 (403). They need `get` on `nodes/pods`; before Kubernetes 1.36 on `nodes/proxy`, which also permits \
                 commands in all pods of the node"
            }
            Self::Other(_) => Self::UNREAD,
        }
    }
}
