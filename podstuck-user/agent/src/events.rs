//! Writes Events to the API server (`events.k8s.io/v1`).

use std::{path::PathBuf, time::Duration};

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
    core::Status,
};

use crate::{
    board::{OF_NODES, Outcome, Over, Write},
    stuck::{Pod, event_name, reason},
};

/// The reporting controller in the Events.
const CONTROLLER: &str = "podstuck-agent";
/// Timeout of a request.
const LIMIT: Duration = Duration::from_secs(10);

/// What writes Events about one node.
#[derive(Clone)]
pub(crate) struct Events {
    node: String,
    kubeconfig: Option<PathBuf>,
}

/// The connection of one write.
struct Connection<'a> {
    client: Client,
    node: &'a str,
}

impl Events {
    /// For this node. Connects with the kubeconfig; without one, with the pod's service account.
    ///
    /// # Errors
    /// Fails without a usable configuration.
    pub(crate) async fn of(node: &str, kubeconfig: Option<PathBuf>) -> Result<Self> {
        let events = Self { node: node.into(), kubeconfig };
        events.connection().await?;
        Ok(events)
    }

    /// Reads the credentials for each write, which is at most one a minute. A client that stays would read the token
    /// again by the wall clock, which may be set, and would never read the authority's certificate again.
    async fn connection(&self) -> Result<Connection<'_>> {
        let mut config = match &self.kubeconfig {
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
        Ok(Connection { client, node: &self.node })
    }

    /// Performs a write. Returns its outcome and, if it failed, the error as text.
    pub(crate) async fn write(self, write: Write) -> (Write, Outcome, Option<String>) {
        let asked = async { self.connection().await?.ask(&write).await.map_err(Into::into) };
        let answer: Result<bool> = match tokio::time::timeout(LIMIT, asked).await {
            Ok(answer) => answer,
            Err(_) => {
                return (write, Outcome::Later, Some("the API server does not answer".into()));
            }
        };
        match answer {
            Ok(true) => (write, Outcome::Done, None),
            Ok(false) => (write, Outcome::Gone, None),
            Err(error) => {
                let outcome =
                    error.downcast_ref().map_or(Outcome::Later, |why| failed(&write, why));
                (write, outcome, Some(format!("{error:#}")))
            }
        }
    }
}

fn failed(write: &Write, why: &kube::Error) -> Outcome {
    let kube::Error::Api(status) = why else { return Outcome::Later };
    match status.code {
        404 if matches!(write, Write::Renew { .. }) => Outcome::Gone,
        403 if !is_in_dying_namespace(status) => Outcome::Denied,
        // Credentials, and what is true of this moment only.
        401 | 408 | 409 | 429 => Outcome::Later,
        400..=499 => Outcome::Refused,
        _ => Outcome::Later,
    }
}

/// Whether an object was refused because its namespace is being deleted.
fn is_in_dying_namespace(status: &Status) -> bool {
    let details = status.details.iter().flat_map(|details| &details.causes);
    status.code == 403 && details.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

impl Connection<'_> {
    /// Whether what the write is about was there.
    async fn ask(&self, write: &Write) -> kube::Result<bool> {
        match write {
            Write::Pod { stuck, replaces } => {
                let (regarding, name) = (of_pod(&stuck.pod), stuck.event_name());
                let text = (reason(&stuck.cause), stuck.stage.clone(), stuck.note.clone());
                self.create(self.event(&stuck.pod.namespace, name, "Warning", regarding, text))
                    .await?;
                self.delete(&stuck.pod.namespace, replaces).await?;
                Ok(true)
            }
            Write::Node { cause, name, note, replaces } => {
                let text = (reason(cause), "node".into(), note.clone());
                self.create(self.event(OF_NODES, name.clone(), "Warning", self.of_node(), text))
                    .await?;
                self.delete(OF_NODES, replaces).await?;
                Ok(true)
            }
            Write::Renew { namespace, name, count } => {
                let now = MicroTime(Timestamp::now());
                let series =
                    serde_json::json!({"series": {"count": count, "lastObservedTime": now}});
                let params = PatchParams::default();
                self.api(namespace).patch(name, &params, &Patch::Merge(&series)).await.map(|_| true)
            }
            Write::Over(Over { cause, namespace, names, is_sure, pod, is_released, .. }) => {
                let was_there = self.delete(namespace, names).await? || *is_sure;
                let released = pod.as_ref().filter(|_| *is_released && was_there);
                let Some(pod) = released else { return Ok(was_there) };
                let name = event_name(&pod.name, &[&pod.uid, cause, "released"]);
                let note = format!("{cause} no longer holds this pod");
                let text = ("Released".into(), "released".into(), note);
                let event = self.event(namespace, name, "Normal", of_pod(pod), text);
                match self.create(event).await {
                    // The namespace is being deleted, and the Event with it.
                    Err(kube::Error::Api(status))
                        if status.code == 404 || is_in_dying_namespace(&status) =>
                    {
                        Ok(true)
                    }
                    done => done.map(|()| true),
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

    /// Deletes Events; whether any was there.
    async fn delete(&self, namespace: &str, names: &[String]) -> kube::Result<bool> {
        let mut were_there = false;
        for name in names {
            match self.api(namespace).delete(name, &DeleteParams::default()).await {
                Ok(_) => were_there = true,
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(were_there)
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
            reporting_instance: Some(self.node.into()),
            type_: Some(kind.into()),
            ..Event::default()
        }
    }

    /// Refers to the node as kubelet does: with the name in place of the UID, which `kubectl describe` searches for.
    fn of_node(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Node".into()),
            name: Some(self.node.into()),
            uid: Some(self.node.into()),
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
