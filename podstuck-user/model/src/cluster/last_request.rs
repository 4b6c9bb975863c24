//! The requests with which kubelet ends its part in a pod's deletion.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Key, Object};

/// The group of all nodes' users.
pub const NODES: &str = "system:nodes";

/// One of kubelet's last requests about a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct LastRequest {
    /// The pod.
    pub key: Key,
    /// Which one.
    pub what: Last,
    node: String,
    uid: String,
    resource_version: String,
}

/// What kubelet requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Last {
    /// The update of the pod's status, with the states of its containers.
    Status,
    /// The deletion of the pod's record, after nothing of the pod is left on the node.
    Deletion,
}

impl Last {
    /// The operation and the resource, as admission names them.
    pub const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Status => ("UPDATE", "pods/status"),
            Self::Deletion => ("DELETE", "pods"),
        }
    }

    /// The request in a few words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Status => "the update of the pod's status",
            Self::Deletion => "the deletion of the pod's record",
        }
    }
}

impl LastRequest {
    /// The request of the kubelet on the pod's node.
    pub fn new(key: &Key, pod: &Object, what: Last) -> Self {
        Self {
            key: key.clone(),
            what,
            node: pod.spec.node_name.clone(),
            uid: pod.metadata.uid.clone(),
            resource_version: pod.metadata.resource_version.clone(),
        }
    }

    /// kubelet's user name.
    pub fn user(&self) -> String {
        format!("system:node:{}", self.node)
    }

    /// The body of the request, which changes nothing: the options of a deletion in a dry run, or a patch without a new
    /// status. The API server refuses it with 409 if the pod is another one or has changed.
    pub fn body(&self) -> Value {
        let Self { uid, resource_version, .. } = self;
        match self.what {
            Last::Status => json!({"metadata": {"uid": uid, "resourceVersion": resource_version}}),
            Last::Deletion => {
                json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"], "gracePeriodSeconds": 0,
                "preconditions": {"uid": uid, "resourceVersion": resource_version}})
            }
        }
    }
}
