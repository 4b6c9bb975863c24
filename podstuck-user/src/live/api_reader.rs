//! Asks the API server while the node's logs are read and the probes are loaded.

use std::{
    path::{Path, PathBuf},
    thread::JoinHandle,
};

use super::record_news::whose;
use crate::{
    cli,
    model::{identity::Pod, node_record::NodeRecord, path::safe, pod_record::PodRecord},
};
use podstuck_confine::role::Role;
use podstuck_node::{
    identity::{NameSource, PodNames, wanted::WantedError},
    state::{
        api::{self, Api, Asked, Known, OfNode},
        kubelet::Kubelet,
    },
};

/// A query of the API server on a thread of its own, until its answer is needed.
pub(crate) struct ApiReader {
    asking: Option<JoinHandle<Api>>,
    answer: Api,
}

impl ApiReader {
    /// Starts the query, if it is permitted.
    pub(crate) fn start(
        host_root: PathBuf,
        choice: &cli::Api,
        kubelets: Vec<Kubelet>,
        target: &cli::Target,
    ) -> Self {
        let whose = whose(choice);
        let about = about(target);
        let asking = whose.and_then(|whose| {
            let ask = std::thread::Builder::new().name("api".into());
            let asking = ask.spawn(move || {
                Role::AskApi.assume();
                api::ask(&host_root, &whose, &kubelets, &about)
            });
            asking.inspect_err(|error| tracing::warn!("the API server is not asked: {error}")).ok()
        });
        Self { asking, answer: Api::default() }
    }

    /// Waits for the answer, once, and takes the names of this node's pods.
    pub(crate) fn name_pods(&mut self, names: &mut PodNames) {
        let Some(answer) = self.asking.take().and_then(|asking| asking.join().ok()) else { return };
        self.answer = answer;
        let Some(place) = self.place() else { return };
        tracing::info!("{place}");
        names.looked_in([place]);
        let asked = match &self.answer.pod {
            Some(Known::Pod(record)) if self.is_here(record) => Some(&**record),
            _ => None,
        };
        let all = self.answer.pods.iter().chain(asked).filter_map(|record| {
            let Pod { uid, namespace, name } = record.pod.clone();
            Some((namespace?, name?, uid))
        });
        names.learn(NameSource::Api, all);
    }

    /// The server that was asked, or why there is no answer; `None` when none was asked.
    pub(crate) fn outcome(&self) -> Option<&Result<String, String>> {
        self.answer.place.as_ref()
    }

    /// The outcome as a sentence.
    pub(crate) fn place(&self) -> Option<String> {
        Some(match self.outcome()? {
            Ok(place) => place.clone(),
            Err(why) => format!("no answer from the API server: {why}"),
        })
    }

    fn is_here(&self, record: &PodRecord) -> bool {
        self.answer.nodes.iter().any(|node| Some(&node.record.node) == record.node.as_ref())
    }

    /// Whether a record is of none of this machine's nodes, all of which are known.
    fn is_elsewhere(&self, record: &PodRecord) -> bool {
        let Api { nodes, unasked, .. } = &self.answer;
        !nodes.is_empty() && unasked.is_empty() && !self.is_here(record)
    }

    /// The latest record of a pod.
    pub(crate) fn record(&self, uid: &str) -> Option<&PodRecord> {
        let asked = match &self.answer.pod {
            Some(Known::Pod(record)) => Some(&**record),
            _ => None,
        };
        asked.into_iter().chain(&self.answer.pods).find(|record| record.pod.uid == uid)
    }

    /// The records of this node's pods that are to be deleted.
    pub(crate) fn deleted(&self) -> Vec<PodRecord> {
        let all = self.answer.pods.iter();
        all.filter(|record| record.deletion.is_some()).cloned().collect()
    }

    /// The API's data about this node, and whether it has this pod, which has left traces here: in that root of a
    /// kubelet, if it is known. Each node record applies to the pods of its own kubelet. A static pod may be unknown
    /// to the API (`kubetypes.IsStaticPod`), and is named by a hash.
    pub(super) fn nodes_about(&self, pod: Option<&Pod>, root: Option<&Path>) -> Vec<NodeRecord> {
        let Api { nodes, unasked, .. } = &self.answer;
        let is_its = |node: &OfNode| node.root.is_none() || node.root.as_deref() == root;
        let lacks =
            |node: &OfNode, pod: &Pod| node.all.as_ref().is_some_and(|all| !all.contains(&pod.uid));
        let is_missing = |pod: &&Pod| {
            let all_speak = nodes.iter().all(|node| !is_its(node) || lacks(node, pod))
                && !unasked.iter().any(|silent| Some(silent.as_path()) == root);
            all_speak && root.is_some() && self.record(&pod.uid).is_none() && pod.uid.contains('-')
        };
        let missing: Vec<Pod> = pod.filter(is_missing).cloned().into_iter().collect();
        let about = nodes.iter().filter(|node| root.is_none() || is_its(node));
        let about = about.map(|OfNode { record, .. }| NodeRecord {
            missing: missing.clone(),
            // Without a root it is not known which of several nodes is meant.
            drivers: record.drivers.clone().filter(|_| root.is_some() || nodes.len() == 1),
            ..record.clone()
        });
        about.collect()
    }

    /// Adds the API's data to the error about a pod without traces on this node.
    pub(crate) fn explain(&self, error: WantedError) -> WantedError {
        let WantedError::Unknown { wanted, looked, mut hint } = error else { return error };
        match &self.answer.pod {
            Some(Known::Pod(record)) if self.is_elsewhere(record) => {
                let place = record.node.as_deref().map_or_else(
                    || "it is not on a node yet".to_owned(),
                    |node| format!("it is on {}", safe(node.as_bytes())),
                );
                let (record, was_here) = (record.clone(), false);
                WantedError::Elsewhere { wanted, place, record, was_here }
            }
            Some(Known::Pod(record)) if record.deletion.is_some() && self.is_here(record) => {
                let place =
                    "it is being deleted, and nothing of it remains on this node".to_owned();
                let (record, was_here) = (record.clone(), true);
                WantedError::Elsewhere { wanted, place, record, was_here }
            }
            Some(Known::Missing) => {
                // There is nothing left to ask it about.
                hint = "the API server has no pod of that name".into();
                WantedError::Unknown { wanted, looked, hint }
            }
            _ => WantedError::Unknown { wanted, looked, hint },
        }
    }
}

fn about(target: &cli::Target) -> Asked {
    let by_name = target.pod.as_deref().and_then(|pod| pod.split_once('/'));
    match (&target.pod_uid, by_name) {
        (Some(uid), _) => Asked::Uid(uid.to_ascii_lowercase().replace('_', "-")),
        (None, Some((namespace, name))) => {
            Asked::Name { namespace: namespace.into(), name: name.into() }
        }
        (None, None) => Asked::NoPod,
    }
}
