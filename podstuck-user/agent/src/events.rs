//! Writes Events to the API server (`events.k8s.io/v1`).

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{
    board::{OF_NODES, Outcome, Write},
    stuck::{Pod, event_name, reason},
};

/// The reporting controller in the Events.
const CONTROLLER: &str = "podstuck-agent";
/// Timeout of a request.
const LIMIT: Duration = Duration::from_secs(10);

/// A client for the API server.
#[derive(Clone)]
pub(crate) struct Events {
    client: Client,
    node: String,
}

impl Events {
    /// For this node. Connects with the kubeconfig; without one, with the pod's service account.
    ///
    /// # Errors
    /// Fails without a usable configuration.
    pub(crate) async fn of(node: &str, kubeconfig: Option<&Path>) -> Result<Self> {
        let mut config = match kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path)
                    .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
                let options = KubeConfigOptions::default();
                Config::from_custom_kubeconfig(file, &options)
                    .await
                    .context("cannot use the kubeconfig")?
            }
            None => Config::incluster().context(
                "no service account: the agent runs in no pod, or without a \
                token; name a kubeconfig with --kubeconfig",
            )?,
        };
        // `Board` decides when a write is retried.
        config.default_retry = false;
        (config.connect_timeout, config.read_timeout) = (Some(LIMIT), Some(LIMIT));
        let client = Client::try_from(config).context("cannot use these credentials")?;
        Ok(Self { client, node: node.into() })
    }

    /// Performs a write. Returns its outcome and, if it failed, the error as text.
    pub(crate) async fn write(self, write: Write) -> (Write, Outcome, Option<String>) {
        let answer = match tokio::time::timeout(LIMIT, self.ask(&write)).await {
            Ok(answer) => answer,
            Err(_) => {
                return (write, Outcome::Later, Some("the API server does not answer".into()));
            }
        };
        match answer {
            Ok(()) => (write, Outcome::Done, None),
            Err(error) => {
                let outcome = match &error {
                    kube::Error::Api(status)
                        if status.code == 404 && matches!(write, Write::Renew { .. }) =>
                    {
                        Outcome::Gone
                    }
                    // A retry cannot succeed: the namespace is being deleted, or the right is missing.
                    kube::Error::Api(status) if [403, 404, 422].contains(&status.code) => {
                        Outcome::Refused
                    }
                    _ => Outcome::Later,
                };
                (write, outcome, Some(error.to_string()))
            }
        }
    }

    async fn ask(&self, write: &Write) -> kube::Result<()> {
        match write {
            Write::Pod { stuck, replaces } => {
                let (regarding, name) = (of_pod(&stuck.pod), stuck.event_name());
                let text = (reason(&stuck.cause), stuck.stage.clone(), stuck.note.clone());
                self.create(self.event(&stuck.pod.namespace, name, "Warning", regarding, text))
                    .await?;
                self.delete(&stuck.pod.namespace, replaces.as_deref()).await
            }
            Write::Node { cause, name, note, replaces } => {
                let text = (reason(cause), "node".into(), note.clone());
                self.create(self.event(OF_NODES, name.clone(), "Warning", self.of_node(), text))
                    .await?;
                self.delete(OF_NODES, replaces.as_deref()).await
            }
            Write::Renew { namespace, name, count } => {
                let now = MicroTime(Timestamp::now());
                let series =
                    serde_json::json!({"series": {"count": count, "lastObservedTime": now}});
                let params = PatchParams::default();
                self.api(namespace).patch(name, &params, &Patch::Merge(&series)).await.map(drop)
            }
            Write::Over { namespace, name, released, cause } => {
                self.delete(namespace, Some(name)).await?;
                let Some(pod) = released else { return Ok(()) };
                let name = event_name(&pod.name, &[&pod.uid, cause, "released"]);
                let note = format!("{cause} no longer holds this pod");
                let text = ("Released".into(), "released".into(), note);
                let event = self.event(namespace, name, "Normal", of_pod(pod), text);
                match self.create(event).await {
                    // The namespace is being deleted, and the Event with it.
                    Err(kube::Error::Api(status)) if [403, 404].contains(&status.code) => Ok(()),
                    done => done,
                }
            }
        }
    }

    fn api(&self, namespace: &str) -> Api<Event> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Creates the Event. An existing one has the same content, because the name is derived from it.
    async fn create(&self, event: Event) -> kube::Result<()> {
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        match self.api(&namespace).create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            done => done.map(drop),
        }
    }

    async fn delete(&self, namespace: &str, name: Option<&str>) -> kube::Result<()> {
        let Some(name) = name else { return Ok(()) };
        let deleted = self.api(namespace).delete(name, &DeleteParams::default()).await;
        gone_is_fine(deleted.map(drop))
    }

    fn event(
        &self,
        namespace: &str,
        name: String,
        kind: &str,
        regarding: ObjectReference,
        (reason, action, note): (String, String, String),
    ) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace.into()),
                ..ObjectMeta::default()
            },
            action: Some(action),
            event_time: Some(MicroTime(Timestamp::now())),
            note: Some(note),
            reason: Some(reason),
            regarding: Some(regarding),
            related: Some(self.of_node()),
            reporting_controller: Some(CONTROLLER.into()),
            reporting_instance: Some(self.node.clone()),
            type_: Some(kind.into()),
            ..Event::default()
        }
    }

    /// Refers to the node as kubelet does: with the name in place of the UID, which `kubectl describe` searches for.
    fn of_node(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Node".into()),
            name: Some(self.node.clone()),
            uid: Some(self.node.clone()),
            ..ObjectReference::default()
        }
    }
}

fn of_pod(pod: &Pod) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: Some(pod.namespace.clone()),
        name: Some(pod.name.clone()),
        uid: Some(pod.uid.clone()),
        ..ObjectReference::default()
    }
}

fn gone_is_fine(done: kube::Result<()>) -> kube::Result<()> {
    match done {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        done => done,
    }
}
