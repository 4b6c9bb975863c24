//! Connects to the API server with kubectl's configuration.

use std::path::Path;

use anyhow::{Context, Result};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// A client and its configuration.
pub struct Connection {
    /// The client.
    pub client: Client,
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
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &options)
                .await
                .context("cannot use the kubeconfig")?
        }
        (None, Some(_)) => {
            Config::from_kubeconfig(&options).await.context("cannot use the kubeconfig")?
        }
        (None, None) => Config::infer().await.context("cannot find a kubeconfig")?,
    };
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
    Ok(Connection { client, namespace })
}
