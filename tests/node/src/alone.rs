//! A control plane without a node: etcd, an API server and controllers below a directory of their own, on free ports. It
//! mounts nothing, starts no container, and leaves a node that runs beside it alone.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{
    control_plane::{self, Ports},
    credentials,
    daemons::Daemons,
    place::Place,
    programs::Programs,
};

/// Beside those of a node: what deletes namespaces, what says that a node is not heard, within seconds, and what replaces
/// pods.
const CONTROLLERS: [&str; 4] = [
    "--controllers=namespace,garbagecollector,pv-protection,pvc-protection,persistentvolume-binder,nodelifecycle,deployment,replicaset,statefulset",
    "--node-monitor-period=1s",
    "--node-monitor-grace-period=6s",
    "--node-startup-grace-period=6s",
];

/// A running control plane. It ends when it is dropped.
pub struct ControlPlane {
    place: Place,
    kubectl: PathBuf,
}

impl ControlPlane {
    /// Starts one below an empty directory.
    ///
    /// # Errors
    ///
    /// When something is missing or does not start.
    pub fn up(top: &Path) -> Result<Self> {
        let programs = Programs::of_control_plane()?;
        let own = Self { place: Place::below(top)?, kubectl: programs.kubectl.clone() };
        own.start(&programs)?;
        Ok(own)
    }

    /// Whether the programs are here; else what is missing.
    ///
    /// # Errors
    ///
    /// When something is missing.
    pub fn is_possible() -> Result<()> {
        Programs::of_control_plane().map(drop)
    }

    fn start(&self, programs: &Programs) -> Result<()> {
        let (place, ports) = (&self.place, Ports::free()?);
        let keys = credentials::make(place, &ports.address())?;
        let mut daemons = Daemons::new(place);
        control_plane::start(programs, place, &keys, &mut daemons, ports)?;
        self.wait_for("the API server", || self.kubectl(&["get", "--raw", "/readyz"]).is_ok())?;
        control_plane::start_controllers(
            programs,
            place,
            &mut daemons,
            ports.controllers,
            &CONTROLLERS,
        )
    }

    /// Credentials that may do everything.
    pub fn kubeconfig(&self) -> PathBuf {
        self.place.kubeconfig("admin")
    }

    /// Credentials with a token of a service account, which may do what the account may.
    ///
    /// # Errors
    ///
    /// When there is no such account.
    pub fn account(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let request = self.place.at("token-request.json");
        let asked =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        std::fs::write(&request, asked.to_string()).context("writing a request")?;
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = request.to_str().context("a path that is no text")?;
        let token = self.kubectl(&["create", "--raw", &path, "-f", request])?;
        let token: Value = serde_json::from_str(&token).context("reading a token")?;
        let token = token["status"]["token"].as_str().context("an answer without a token")?;
        let kubeconfig = self.place.kubeconfig(name);
        std::fs::copy(self.kubeconfig(), &kubeconfig).context("copying a kubeconfig")?;
        let set = |words: &[&str]| {
            crate::kubectl(&self.kubectl, &kubeconfig, &[&["config"], words].concat(), None)
        };
        set(&["set-credentials", name, &format!("--token={token}")])?;
        set(&["set-context", "--current", &format!("--user={name}")])?;
        Ok(kubeconfig)
    }

    /// Process id of one of its daemons.
    ///
    /// # Errors
    ///
    /// When none of this name runs.
    pub fn pid(&self, daemon: &str) -> Result<u32> {
        Daemons::pid(&self.place, daemon)
    }

    /// Kills one of its daemons; returns the words to start it again with.
    ///
    /// # Errors
    ///
    /// When none of this name runs.
    pub fn kill(&self, daemon: &str) -> Result<Vec<String>> {
        Daemons::kill(&self.place, daemon)
    }

    /// Starts a daemon after it has ended, with the words that it had.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn start_again(&self, daemon: &str, words: &[String]) -> Result<()> {
        Daemons::start_again(&self.place, daemon, words)
    }

    /// Runs kubectl; its output, without the last line's end.
    ///
    /// # Errors
    ///
    /// When it fails.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        crate::kubectl(&self.kubectl, &self.kubeconfig(), args, None)
    }

    /// Makes objects from their description, or changes them.
    ///
    /// # Errors
    ///
    /// When the API server does not take them.
    pub fn apply(&self, objects: &Value) -> Result<()> {
        let path = self.place.at("objects.json");
        std::fs::write(&path, objects.to_string()).context("writing objects")?;
        crate::kubectl(&self.kubectl, &self.kubeconfig(), &["apply", "-f"], Some(&path)).map(drop)
    }

    /// Waits until something is so.
    ///
    /// # Errors
    ///
    /// When it is not after two minutes.
    pub fn wait_for(&self, what: &str, is_so: impl Fn() -> bool) -> Result<()> {
        crate::wait_for(what, is_so)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if let Err(error) = Daemons::end(&self.place) {
            eprintln!("ending a control plane: {error:#}");
        }
    }
}
