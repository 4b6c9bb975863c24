//! Asks the API server while the node's logs are read and the probes are loaded.

use std::{path::PathBuf, thread::JoinHandle};

use crate::{
    cli,
    identity::{NameSource, PodNames, wanted::WantedError},
    kernel::role::Role,
    model::{identity::Pod, node_record::NodeRecord, path::safe, pod_record::PodRecord},
    state::{
        api::{self, Api, As, Asked, Known},
        kubelet::Kubelet,
    },
};

/// On a thread of its own, until somebody wants what it was told.
pub(super) struct ApiReader {
    asking: Option<JoinHandle<Api>>,
    told: Api,
}

impl ApiReader {
    /// Begins, if it may.
    pub(super) fn start(
        host_root: PathBuf,
        choice: &cli::Api,
        kubelets: Vec<Kubelet>,
        target: &cli::Target,
    ) -> Self {
        let whose = match choice {
            cli::Api::Never => None,
            cli::Api::Auto => Some(As::Kubelet),
            cli::Api::File(path) => Some(As::File(path.clone())),
        };
        let about = about(target);
        let asking = whose.and_then(|whose| {
            let ask = std::thread::Builder::new().name("api".into());
            let asking = ask.spawn(move || {
                Role::AskApi.assume();
                api::ask(&host_root, &whose, &kubelets, &about)
            });
            asking.inspect_err(|error| tracing::warn!("the API server is not asked: {error}")).ok()
        });
        Self { asking, told: Api::default() }
    }

    /// Waits for the answer, once, and has this node's pods named.
    pub(super) fn name_pods(&mut self, names: &mut PodNames) {
        let Some(told) = self.asking.take().and_then(|asking| asking.join().ok()) else { return };
        self.told = told;
        let Some(place) = self.place() else { return };
        tracing::info!("{place}");
        names.looked_in([place]);
        let asked = match &self.told.pod {
            Some(Known::Pod(record)) if self.is_here(record) => Some(&**record),
            _ => None,
        };
        let all = self.told.pods.iter().chain(asked).filter_map(|record| {
            let Pod { uid, namespace, name } = record.pod.clone();
            Some((namespace?, name?, uid))
        });
        names.learn(NameSource::Api, all);
    }

    /// Who was asked, or why there is no answer; `None` when nobody was.
    pub(super) fn outcome(&self) -> Option<&Result<String, String>> {
        self.told.place.as_ref()
    }

    /// The same as a sentence.
    pub(super) fn place(&self) -> Option<String> {
        Some(match self.outcome()? {
            Ok(place) => place.clone(),
            Err(why) => format!("no answer of the API server: {why}"),
        })
    }

    /// What it says about this node, or about several on this machine.
    fn nodes(&self) -> &[NodeRecord] {
        &self.told.nodes
    }

    fn is_here(&self, record: &PodRecord) -> bool {
        self.nodes().iter().any(|node| Some(&node.node) == record.node.as_ref())
    }

    /// The record of a pod, the latest.
    pub(super) fn record(&self, uid: &str) -> Option<&PodRecord> {
        let asked = match &self.told.pod {
            Some(Known::Pod(record)) => Some(&**record),
            _ => None,
        };
        asked.into_iter().chain(&self.told.pods).find(|record| record.pod.uid == uid)
    }

    /// The records of this node's pods that are to go.
    pub(super) fn deleted(&self) -> Vec<PodRecord> {
        let all = self.told.pods.iter();
        all.filter(|record| record.deletion.is_some()).cloned().collect()
    }

    /// Its words about this node, and whether it has this pod, of which there is a trace here. A static pod
    /// may be unknown to it (`kubetypes.IsStaticPod`), and is named by a hash.
    pub(super) fn nodes_about(&self, pod: Option<&Pod>) -> Vec<NodeRecord> {
        let is_missing = |pod: &&Pod| {
            let listed = |all: &Vec<String>| all.contains(&pod.uid);
            let unknown = self.told.all.as_ref().is_some_and(|all| !listed(all));
            unknown && self.record(&pod.uid).is_none() && pod.uid.contains('-')
        };
        let missing: Vec<Pod> = pod.filter(is_missing).cloned().into_iter().collect();
        let with = |node: &NodeRecord| NodeRecord { missing: missing.clone(), ..node.clone() };
        self.nodes().iter().map(with).collect()
    }

    /// What it knows of a pod of which there is nothing here.
    pub(super) fn explain(&self, error: WantedError) -> WantedError {
        let WantedError::Unknown { wanted, looked, mut hint } = error else { return error };
        match &self.told.pod {
            Some(Known::Pod(record)) if !self.nodes().is_empty() && !self.is_here(record) => {
                let place = record.node.as_deref().map_or_else(
                    || "it is on no node yet".to_owned(),
                    |node| format!("it is on {}", safe(node.as_bytes())),
                );
                let (record, was_here) = (record.clone(), false);
                WantedError::Elsewhere { wanted, place, record, was_here }
            }
            Some(Known::Pod(record)) if record.deletion.is_some() && self.is_here(record) => {
                let place = "it is to go, and this node has nothing of it any more".to_owned();
                let (record, was_here) = (record.clone(), true);
                WantedError::Elsewhere { wanted, place, record, was_here }
            }
            Some(Known::Missing) => {
                // There is nothing left to ask it for.
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
        (None, None) => Asked::Nobody,
    }
}
