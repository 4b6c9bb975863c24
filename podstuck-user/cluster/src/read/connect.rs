//! Connects to the API server with kubectl's configuration.

use std::{error::Error, path::Path};

use anyhow::{Context, Result, anyhow};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use super::page;

/// A client and its configuration.
pub struct Connection {
    /// The client.
    pub client: Client,
    /// The address of the API server.
    pub server: String,
    /// The namespace of the context.
    pub namespace: String,
}

/// Connects with a kubeconfig; without one, with the service account of the pod that the program runs in. Sends no
/// request, but may run a credential plugin.
///
/// # Errors
///
/// Fails without a usable configuration.
pub async fn connect(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
    as_user: Option<&str>,
    as_groups: &[String],
) -> Result<Connection> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..Default::default() };
    let mut config = match (kubeconfig, context) {
        (Some(path), _) => {
            let file = Kubeconfig::read_from(path).map_err(unusable)?;
            Config::from_custom_kubeconfig(file, &options).await.map_err(unusable)?
        }
        (None, Some(_)) => Config::from_kubeconfig(&options).await.map_err(unusable)?,
        (None, None) => Config::infer().await.map_err(|error| {
            // The other half of the error is about the service account of a pod.
            let why = error.source().map(page::whole).unwrap_or_default();
            anyhow!(
                "no kubeconfig can be used: {why}; name one that kubectl works with by --kubeconfig or KUBECONFIG"
            )
        })?,
    };
    let server = config.cluster_url.to_string();
    // `Reader` retries requests itself, because it counts them.
    config.default_retry = false;
    if let Some(user) = as_user {
        config.auth_info.impersonate = Some(user.to_owned());
        config.auth_info.impersonate_groups = None;
    }
    if !as_groups.is_empty() {
        config.auth_info.impersonate_groups = Some(as_groups.to_vec());
    }
    let namespace = config.default_namespace.clone();
    let client =
        Client::try_from(config).context("cannot use the credentials of the kubeconfig")?;
    Ok(Connection { client, server, namespace })
}

fn unusable(error: KubeconfigError) -> anyhow::Error {
    match error {
        KubeconfigError::LoadContext(name) => anyhow!(
            "the kubeconfig has no context {name:?}; `kubectl config get-contexts` lists those that it has"
        ),
        error => anyhow!("cannot use the kubeconfig: {}", page::whole(&error)),
    }
}
