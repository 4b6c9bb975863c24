//! The questions to an API server, in their order.

use std::fs;

use anyhow::{Result, bail};
use jiff::Timestamp;

use super::{
    Asked, Known, Part, claims,
    client::{Client, Refusal},
    objects::{RawCsiNode, RawNode},
};
use crate::identity::{
    dns_name::{is_label, is_subdomain},
    pod_record::{RawPod, RawPods},
};
use podstuck_model::{
    identity::Pod,
    node_record::{NodeRecord, Ready},
    path::safe,
    pod_record::PodRecord,
};

/// What is asked of whom.
pub(super) struct Conversation<'a> {
    pub(super) client: Client,
    /// The node's name.
    pub(super) node: String,
    pub(super) about: Asked,
    /// Takes what is known.
    pub(super) tell: &'a mut dyn FnMut(Part) -> Result<()>,
}

impl Conversation<'_> {
    /// Asks everything; what it comes to.
    ///
    /// # Errors
    /// Fails when there is no answer, or none about the pods.
    pub(super) fn run(&mut self) -> Result<String> {
        if !is_subdomain(&self.node) {
            bail!("{} is not a valid node name", safe(self.node.as_bytes()));
        }
        if let Asked::Those(pods) = self.about.clone() {
            return self.those(&pods);
        }
        // By its name first: that is read from etcd and not from a cache, and says whether there is one.
        let mut asked = None;
        if let Asked::Name { namespace, name } = self.about.clone() {
            asked = self.pod(&namespace, &name)?;
        }
        let read = Timestamp::now();
        let selector =
            format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}&resourceVersion=0", self.node);
        let pods = match self.client.get::<RawPods>(&selector) {
            Ok(pods) => Ok(pods.records(read)),
            Err(error @ Refusal::Unreachable(_)) => return Err(error.into()),
            Err(refusal) => Err(refusal),
        };
        if let (Asked::Uid(uid), Ok(pods)) = (&self.about, &pods)
            && let Some(record) = pods.iter().find(|record| record.pod.uid == *uid)
        {
            let pod = record.pod.clone();
            let (namespace, name) = pod.namespace.zip(pod.name).unwrap_or_default();
            // The list may be a moment old.
            asked = self.pod(&namespace, &name)?;
        }
        let uids = pods.as_ref().ok().map(|pods| {
            let mut uids: Vec<String> = pods.iter().map(|record| record.pod.uid.clone()).collect();
            uids.sort();
            uids
        });
        let found = pods.map(|pods| {
            let noun = if pods.len() == 1 { "pod" } else { "pods" };
            let count = format!("{} {noun} of node {}", pods.len(), self.node);
            (self.tell)(Part::Pods(pods)).map(|()| count)
        });
        let (ready, _) = self.node(read, uids)?;
        let unknown = match &asked {
            Some(record) => claims::ask(&self.client, &self.node, record, self.tell)?,
            None => Vec::new(),
        };
        let unknown = match unknown.as_slice() {
            [] => String::new(),
            unknown => format!("; not known: {}", unknown.join("; ")),
        };
        match found {
            Ok(count) => count.map(|count| count + &ready + &unknown),
            Err(refusal) => bail!("the pods of node {}: {refusal}", self.node),
        }
    }

    /// Of each of these pods its record, or that there is no pod of its UID. Another machine's node says nothing of
    /// what this one has.
    fn those(&mut self, pods: &[Pod]) -> Result<String> {
        let (ready, is_this) = self.node(Timestamp::now(), None)?;
        for pod in pods {
            let (Some(namespace), Some(name)) = (&pod.namespace, &pod.name) else { continue };
            if !is_label(namespace) || !is_subdomain(name) {
                continue;
            }
            let read = Timestamp::now();
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
            let known = match self.client.get::<RawPod>(&path) {
                // What cannot be read is not missing.
                Ok(raw) => match raw.record(Some(read)) {
                    Ok(record) => Some(record),
                    Err(_) => continue,
                },
                Err(Refusal::NotFound) => None,
                Err(Refusal::Refused(_) | Refusal::Unrelated) => continue,
                Err(error @ Refusal::Unreachable(_)) => return Err(error.into()),
            };
            match known.filter(|record| record.pod.uid == pod.uid) {
                Some(record) => (self.tell)(Part::Pods(vec![record]))?,
                None if is_this => (self.tell)(Part::Gone(pod.clone()))?,
                None => {}
            }
        }
        Ok(format!("{} of the pods of node {}{ready}", pods.len(), self.node))
    }

    /// Its record, if there is one and it may be read.
    fn pod(&mut self, namespace: &str, name: &str) -> Result<Option<PodRecord>> {
        if !is_label(namespace) || !is_subdomain(name) {
            return Ok(None);
        }
        let read = Timestamp::now();
        let found =
            self.client.get::<RawPod>(&format!("/api/v1/namespaces/{namespace}/pods/{name}"));
        let known = match found {
            Ok(raw) => raw.record(Some(read)).ok().map(|record| Known::Pod(Box::new(record))),
            Err(Refusal::NotFound) => Some(Known::Missing),
            // The node authorizer refuses a kubelet pods of other nodes.
            Err(Refusal::Refused(_) | Refusal::Unrelated) => None,
            Err(error @ Refusal::Unreachable(_)) => return Err(error.into()),
        };
        let record = match &known {
            Some(Known::Pod(record)) => Some(PodRecord::clone(record)),
            _ => None,
        };
        known.map_or(Ok(()), |known| (self.tell)(Part::Pod(known)))?;
        Ok(record)
    }

    /// What the node's own objects say, in words if it is not ready, and whether it is this machine. Which pods it has
    /// is believed of this very machine only.
    fn node(&mut self, read: Timestamp, pods: Option<Vec<String>>) -> Result<(String, bool)> {
        let node = match self.client.get::<RawNode>(&format!("/api/v1/nodes/{}", self.node)) {
            Ok(node) => node,
            Err(Refusal::NotFound | Refusal::Refused(_) | Refusal::Unrelated) => {
                return Ok((String::new(), false));
            }
            Err(error @ Refusal::Unreachable(_)) => return Err(error.into()),
        };
        let drivers = format!("/apis/storage.k8s.io/v1/csinodes/{}", self.node);
        let drivers = self.client.get::<RawCsiNode>(&drivers).ok().map(RawCsiNode::names);
        let own = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let is_this = node.boot_id() == own.trim();
        let record = NodeRecord {
            node: self.node.clone(),
            read,
            kubelet: node.kubelet(),
            ready: node.ready(),
            drivers,
            missing: Vec::new(),
        };
        let ready = record.ready.as_ref().filter(|ready| ready.status != "True").map(not_ready);
        (self.tell)(Part::Node(record, pods.filter(|_| is_this)))?;
        Ok((ready.unwrap_or_default(), is_this))
    }
}

/// The text for a node whose kubelet does not report: its pods' records may show an earlier state.
fn not_ready(ready: &Ready) -> String {
    let since = ready.since.map(|since| format!(" since {since}")).unwrap_or_default();
    let [status, reason] = [&ready.status, &ready.reason].map(|text| safe(text.as_bytes()));
    format!(", whose condition Ready is {status}{since} ({reason})")
}
