//! Writes many objects.

use std::{path::Path, sync::Arc, time::Duration};

use kube::{
    Client,
    api::{Api, DeleteParams, DynamicObject, PostParams, PropagationPolicy},
    config::{KubeConfigOptions, Kubeconfig},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;
use tokio::{sync::Semaphore, task::JoinSet};

/// Concurrent writes.
const WRITES: usize = 48;

/// Writes objects, some at a time.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) client: Client,
    turns: Arc<Semaphore>,
}

/// The type, namespace and name of an object.
pub(crate) fn kind(object: &Value) -> (ApiResource, Option<String>, String) {
    let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let version = text("/apiVersion");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, text("/kind"));
    let namespace = object.pointer("/metadata/namespace").map(|it| it.as_str().unwrap().to_owned());
    (ApiResource::from_gvk(&kind), namespace, text("/metadata/name").to_owned())
}

impl Writer {
    /// With the rights of a kubeconfig.
    pub(crate) async fn of(kubeconfig: &Path) -> Self {
        let config = Kubeconfig::read_from(kubeconfig).unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(config, &options).await.unwrap();
        let client = Client::try_from(config).unwrap();
        Self { client, turns: Arc::new(Semaphore::new(WRITES)) }
    }

    /// How an object is reached, and its name.
    pub(crate) fn api(&self, object: &Value) -> (Api<DynamicObject>, String) {
        let (resource, namespace, name) = kind(object);
        let client = self.client.clone();
        let api = match namespace {
            Some(namespace) => Api::namespaced_with(client, &namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        (api, name)
    }

    /// Does something with each object; repeats what fails.
    pub(crate) async fn each<F>(
        &self,
        objects: Vec<Value>,
        act: impl Fn(Api<DynamicObject>, String, Value) -> F + Clone + Send + 'static,
    ) where
        F: Future<Output = kube::Result<()>> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        for object in objects {
            let turn = self.turns.clone().acquire_owned().await.unwrap();
            let (api, name) = self.api(&object);
            let act = act.clone();
            tasks.spawn(async move {
                let _turn = turn;
                let mut tries = 0;
                while let Err(error) = act(api.clone(), name.clone(), object.clone()).await {
                    tries += 1;
                    assert!(tries < 20, "{name}: {error}");
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
            });
            while let Some(done) = tasks.try_join_next() {
                done.unwrap();
            }
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    }

    /// Creates objects.
    pub(crate) async fn create(&self, objects: Vec<Value>) {
        let create = |api: Api<DynamicObject>, _, object| async move {
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            match api.create(&PostParams::default(), &object).await {
                Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
                other => other.map(drop),
            }
        };
        self.each(objects, create).await;
    }

    /// Deletes objects, and what they own as this policy has it.
    pub(crate) async fn delete(&self, objects: Vec<Value>, policy: PropagationPolicy) {
        let how = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        let delete = move |api: Api<DynamicObject>, name: String, _| {
            let how = how.clone();
            async move { api.delete(&name, &how).await.map(drop) }
        };
        self.each(objects, delete).await;
    }
}
