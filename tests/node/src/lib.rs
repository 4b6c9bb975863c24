//! A real Kubernetes node on this machine: etcd, an API server, the controllers of volumes, kubelet, and
//! containerd or dockerd, on loopback and below one directory. Its kubelet has the standard root
//! directory. [`Node::down`] ends everything, from any process: what runs is noted in a file.

mod alone;
pub mod build;
mod cgroups;
mod containers;
mod control_plane;
mod credentials;
mod daemons;
mod image;
mod kubelet;
mod network;
mod place;
mod programs;
mod settings;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{daemons::Daemons, place::Place, programs::Programs};

pub use alone::ControlPlane;
pub use containers::Runtime;

/// Name of the node.
pub const NAME: &str = "podstuck-node";
/// What all containers are made from: a static busybox, and the programs that the node was given.
pub const IMAGE: &str = "docker.io/library/podstuck-node:1";
/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often it is looked whether something has happened.
const LOOK: Duration = Duration::from_millis(100);

/// A running node.
pub struct Node {
    place: Place,
    kubectl: PathBuf,
}

impl Node {
    /// Starts one. These programs are in all containers, in `/bin`.
    ///
    /// # Errors
    ///
    /// When something is missing, does not start, or a node is running here already. Nothing is left
    /// then.
    pub fn up(runtime: Runtime, in_containers: &[&Path]) -> Result<Self> {
        let programs = Programs::find(runtime)?;
        let place = Place::make()?;
        let node = Self { place, kubectl: programs.kubectl.clone() };
        match node.start(&programs, runtime, in_containers) {
            Ok(()) => Ok(node),
            Err(error) => {
                let log = node.place.logs();
                eprintln!("{}", last_lines(&log));
                node.down().context("removing what was started of a node")?;
                Err(error)
            }
        }
    }

    /// The one that is running here, if any.
    ///
    /// # Errors
    ///
    /// When what is noted about it cannot be read.
    pub fn running() -> Result<Option<Self>> {
        let Some(place) = Place::there() else { return Ok(None) };
        Ok(Some(Self { place, kubectl: programs::kubectl()? }))
    }

    fn start(&self, programs: &Programs, runtime: Runtime, in_containers: &[&Path]) -> Result<()> {
        let place = &self.place;
        settings::save(place)?;
        place.mount_disk()?;
        cgroups::make()?;
        let ports = control_plane::OF_NODE;
        let keys = credentials::make(place, &ports.address())?;
        let mut daemons = Daemons::new(place);
        control_plane::start(programs, place, &keys, &mut daemons, ports)?;
        let image = image::make(place, in_containers)?;
        containers::start(runtime, place, &image, &mut daemons)?;
        self.wait_for("the API server", || self.kubectl(&["get", "--raw", "/readyz"]).is_ok())?;
        let port = ports.controllers;
        control_plane::start_controllers(programs, place, &mut daemons, port, &[])?;
        kubelet::start(runtime, programs, place, &mut daemons)?;
        self.wait_for("the node to be ready", || {
            let ready = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
            self.kubectl(&["get", "node", NAME, "-o", ready]).is_ok_and(|text| text == "True")
        })
    }

    /// Ends everything and removes all files. Goes on whatever fails, and says then what did.
    ///
    /// # Errors
    ///
    /// When something is left.
    pub fn down(self) -> Result<()> {
        let mut wrong = Vec::new();
        let mut step = |result: Result<()>| wrong.extend(result.err().map(|e| format!("{e:#}")));
        step(cgroups::thaw());
        // kubelet first: what is killed while it runs, it starts again.
        step(Daemons::end(&self.place));
        step(containers::end_shims(&self.place));
        step(cgroups::end());
        step(self.place.unmount());
        step(settings::restore(&self.place));
        step(self.place.remove());
        if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
    }

    /// Where its files are.
    pub fn top(&self) -> &Path {
        self.place.top()
    }

    /// Credentials that may do everything, for kubectl.
    pub fn kubeconfig(&self) -> PathBuf {
        self.place.kubeconfig("admin")
    }

    /// A log of one of its daemons.
    pub fn log(&self, daemon: &str) -> PathBuf {
        self.place.log(daemon)
    }

    /// Process id of one of its daemons.
    ///
    /// # Errors
    ///
    /// When none of this name runs.
    pub fn pid(&self, daemon: &str) -> Result<u32> {
        Daemons::pid(&self.place, daemon)
    }

    /// Where the root file system of a container is mounted.
    ///
    /// # Errors
    ///
    /// When the runtime cannot be asked.
    pub fn rootfs(&self, container: &str) -> Result<PathBuf> {
        containers::rootfs(&self.place, container)
    }

    /// What makes the network plugin fail when it is to take down the network of this pod, as long as the
    /// file is there.
    pub fn failing_network(&self, pod: &str) -> PathBuf {
        network::failing(&self.place).join(pod)
    }

    /// Gives an image to the runtime, which must be containerd.
    ///
    /// # Errors
    ///
    /// When it does not take it.
    pub fn import(&self, image: &Path) -> Result<()> {
        containers::import(&self.place, image)
    }

    /// Ends kubelet and starts it again, as an upgrade does.
    ///
    /// # Errors
    ///
    /// When it was not running, or does not start.
    pub fn restart_kubelet(&self) -> Result<()> {
        self.end("kubelet")?;
        self.start_kubelet()
    }

    /// Starts kubelet after it has ended.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn start_kubelet(&self) -> Result<()> {
        let mut daemons = Daemons::noted(&self.place)?;
        let runtime = containers::running(&self.place);
        kubelet::start(runtime, &Programs::find(runtime)?, &self.place, &mut daemons)
    }

    /// Starts the runtime's daemon again after that has ended.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn start_runtime(&self) -> Result<()> {
        containers::restart(&self.place, &mut Daemons::noted(&self.place)?)
    }

    /// Starts a daemon after it has ended, with the words that it had.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn start_again(&self, daemon: &str, words: &[String]) -> Result<()> {
        Daemons::start_again(&self.place, daemon, words)
    }

    /// Kills one of its daemons; returns the words to start it again with.
    ///
    /// # Errors
    ///
    /// When none of this name runs.
    pub fn kill(&self, daemon: &str) -> Result<Vec<String>> {
        Daemons::kill(&self.place, daemon)
    }

    /// Ends one of its daemons.
    ///
    /// # Errors
    ///
    /// When it was not started.
    pub fn end(&self, daemon: &str) -> Result<()> {
        Daemons::noted(&self.place)?.end_one(daemon)
    }

    /// Runs kubectl with a file for its standard input; its output, without the last line's end.
    ///
    /// # Errors
    ///
    /// When it fails.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.output(args, None)
    }

    /// Makes objects from their description.
    ///
    /// # Errors
    ///
    /// When the API server does not take them.
    pub fn apply(&self, objects: &Value) -> Result<()> {
        let path = self.place.top().join("objects.json");
        std::fs::write(&path, objects.to_string()).context("writing objects")?;
        self.output(&["apply", "-f"], Some(&path)).map(drop)
    }

    fn output(&self, args: &[&str], file: Option<&Path>) -> Result<String> {
        kubectl(&self.kubectl, &self.kubeconfig(), args, file)
    }

    /// A command that runs a program in a container of a pod, as the runtime does it for `kubectl exec`; the
    /// API server itself does not reach this kubelet, which has no address that it may tell. `name` is that
    /// of the process, which no two at a time may have.
    pub fn exec(&self, container: &str, name: &str) -> Command {
        containers::exec(&self.place, container, name)
    }

    /// Waits until something is so.
    ///
    /// # Errors
    ///
    /// When it is not after two minutes.
    pub fn wait_for(&self, what: &str, is_so: impl Fn() -> bool) -> Result<()> {
        wait_for(what, is_so)
    }
}

/// Runs kubectl; its output, without the last line's end.
fn kubectl(
    program: &Path,
    kubeconfig: &Path,
    args: &[&str],
    file: Option<&Path>,
) -> Result<String> {
    let mut command = Command::new(program);
    command.arg("--kubeconfig").arg(kubeconfig).args(args).args(file);
    let Output { status, stdout, stderr } =
        command.output().with_context(|| format!("starting {}", program.display()))?;
    if !status.success() {
        let why = String::from_utf8_lossy(&stderr);
        bail!("kubectl {}: {}", args.join(" "), why.trim_end());
    }
    Ok(String::from_utf8_lossy(&stdout).trim_end().to_owned())
}

pub(crate) fn wait_for(what: &str, is_so: impl Fn() -> bool) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        if Instant::now() > end {
            bail!("waited {} s for {what}", PATIENCE.as_secs());
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// The end of each log, for the message when the node did not start.
fn last_lines(folder: &Path) -> String {
    const LINES: usize = 12;
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let log = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        text.push_str(&format!("== {}\n", entry.path().display()));
        text.push_str(&lines[lines.len().saturating_sub(LINES)..].join("\n"));
        text.push('\n');
    }
    text
}
