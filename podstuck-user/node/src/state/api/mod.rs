//! What the API server says about this node and its pods: read-only, within two seconds, and never needed.
//!
//! It is asked as kubelet, by the credentials that the running kubelet has, or by a kubeconfig that the user
//! named. Everything happens in the helper process, so that no key or token is ever in another,
//! and a disk, a resolver or a server that hangs is left behind. Only what the node authorizer allows is
//! asked (`plugin/pkg/auth/authorizer/node`): the node's own objects, its pods by
//! `fieldSelector=spec.nodeName`, from the server's cache as kubelet does (`resourceVersion=0`), since a
//! consistent list would be read from etcd for the whole cluster; and by their names the pod that is asked
//! about, its claims, and their volumes, drivers and attachments.

mod claims;
mod client;
mod conversation;
mod kubeconfig;
mod kubelets_list;
mod objects;
mod program;
mod proven;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

pub use super::asked::As;
pub(in crate::state) use kubelets_list::AskKubelet;

use self::{
    client::{Client, node_of},
    conversation::Conversation,
    kubeconfig::{Access, Files, access},
};
use super::{as_process::enter, kubelet::Kubelet};
use crate::identity::{kubelet::Settings, trust::Belief};
use podstuck_confine::helper::{Question, Teller, ask_in_parts};
use podstuck_confine::{
    facts,
    role::{Role, only_talk},
};
use podstuck_model::{
    claim::Claim,
    identity::Pod,
    node_record::NodeRecord,
    path::{safe, safe_path},
    pod_record::PodRecord,
    query::NoAnswer,
};

/// For all requests together. A bit less than how long the helper is waited for, so that it can say what
/// went wrong.
const LIMIT: Duration = Duration::from_millis(1800);

/// The pod that is asked about in particular.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asked {
    /// None.
    NoPod,
    /// The one of this UID.
    Uid(String),
    /// The one of this name.
    Name {
        /// Its namespace.
        namespace: String,
        /// Its name in it.
        name: String,
    },
    /// These, during a run: nothing is asked of the others.
    Those(Vec<Pod>),
}

/// What it said.
#[derive(Debug, Default)]
pub struct Api {
    /// The server and the user that it was asked as, or why there is no answer; `None` without credentials.
    pub place: Option<Result<String, String>>,
    /// The pods of this node.
    pub pods: Vec<PodRecord>,
    /// The pod that was asked about.
    pub pod: Option<Known>,
    /// The node; several where several kubelets run on one machine.
    pub nodes: Vec<OfNode>,
    /// kubelets' roots whose pods were not asked about, or whose API server did not answer.
    pub unasked: Vec<PathBuf>,
    /// Of those that were asked about during a run, the ones that it does not have.
    pub gone: Vec<Pod>,
}

/// What it said of a node. What it does not have, it does not have of that kubelet's pods: another kubelet on this machine
/// may be of another cluster.
#[derive(Debug)]
pub struct OfNode {
    /// Its record.
    pub record: NodeRecord,
    /// Where its pods are; `None` where no kubelet runs.
    pub root: Option<PathBuf>,
    /// UIDs of all its pods; `None` when it did not say, or says it of another machine.
    pub all: Option<Vec<String>>,
}

/// What it said about the pod that was asked about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Known {
    /// Its record.
    Pod(Box<PodRecord>),
    /// It has no pod of that name.
    Missing,
}

impl Api {
    /// Takes what is known of the pod that was asked about: of several servers, one that has it counts.
    fn know(&mut self, known: Known) {
        if !matches!(self.pod, Some(Known::Pod(_))) {
            self.pod = Some(known);
        }
    }

    /// Takes what is known of a claim of the pod that was asked about.
    fn learn(&mut self, claim: Claim) {
        let Some(Known::Pod(record)) = &mut self.pod else { return };
        let same = |known: &&mut Claim| known.volume_name == claim.volume_name;
        if let Some(known) = record.claims.iter_mut().find(same) {
            *known = claim;
        }
    }
}

/// Asks. Takes two seconds at most for each kubelet.
pub fn ask(host_root: &Path, whose: &As, kubelets: &[Kubelet], about: &Asked) -> Api {
    let mut api = Api::default();
    let asked = match whose {
        As::File(path) => vec![of_file(path, kubelets)],
        As::Kubelet => {
            let (asked, why_none) = of_services(kubelets);
            api.place = why_none.map(Err);
            asked.into_iter().map(Some).collect()
        }
    };
    // What starts a kubelet, and a lab, have no credentials, and no pods of a server's.
    let with_credentials = kubelets.iter().filter(|it| it.settings.kubeconfig.is_some());
    let is_asked = |pid| asked.iter().flatten().any(|kubelet| kubelet.pid == pid);
    let unasked = with_credentials.filter(|it| !is_asked(it.pid)).map(|it| it.root().to_owned());
    api.unasked = unasked.collect();
    let (mut answers, questions) = (0, asked.len());
    for kubelet in asked {
        // A kubeconfig that may be of several kubelets does not show which pods are theirs.
        let root = kubelet.map(|it| it.root().to_owned());
        let is_known = root.is_some() || kubelets.is_empty();
        let question = AskApi {
            host_root: host_root.into(),
            whose: whose.clone(),
            kubelet: kubelet.or(kubelets.first()).map(|it| (it.pid, it.settings.clone())),
            about: about.clone(),
        };
        let before = api.nodes.len();
        let place = ask_in_parts(question, |part| match part {
            Part::Pods(pods) => api.pods.extend(pods),
            Part::Pod(known) => {
                answers += 1;
                api.know(known);
            }
            Part::Claim(claim) => api.learn(claim),
            Part::Gone(pod) => api.gone.push(pod),
            Part::Node(record, all) => {
                let all = all.filter(|_| is_known);
                api.nodes.push(OfNode { record, root: root.clone(), all });
            }
        });
        if api.nodes.len() == before {
            api.unasked.extend(root);
        }
        let place = place.map_err(|failure| NoAnswer::from(failure).to_string());
        // Of several the one that has an answer.
        if !matches!(api.place, Some(Ok(_))) {
            api.place = Some(place);
        }
    }
    // Of several kubelets it is not known whose a pod is, that one of their servers does not have.
    if kubelets.len() > 1 {
        api.gone.clear();
    }
    // One that did not answer, or was not asked, may have it.
    if matches!(api.pod, Some(Known::Missing)) && (answers < questions || !api.unasked.is_empty()) {
        api.pod = None;
    }
    api
}

/// The kubelet that a named kubeconfig is of: the only one, or the one that was started with it.
fn of_file<'a>(path: &Path, kubelets: &'a [Kubelet]) -> Option<&'a Kubelet> {
    match kubelets {
        [only] => Some(only),
        several => several.iter().find(|it| it.settings.kubeconfig.as_deref() == Some(path)),
    }
}

/// Those whose credentials are used, or why there are none; `None` where there is no kubelet.
fn of_services(kubelets: &[Kubelet]) -> (Vec<&Kubelet>, Option<String>) {
    let with_credentials = || kubelets.iter().filter(|it| it.settings.kubeconfig.is_some());
    let is_service = |it: &&Kubelet| it.standing.belief == Belief::Service;
    let asked: Vec<&Kubelet> = with_credentials().filter(is_service).collect();
    let why = match (with_credentials().next(), kubelets.first()) {
        _ if !asked.is_empty() => None,
        (Some(it), _) => Some(format!(
            "kubelet (pid {}) is not a service of the node: {}; podstuck uses its credentials only if you \
             name the file: --api KUBECONFIG",
            it.pid, it.standing.why
        )),
        (None, Some(it)) => {
            Some(format!("kubelet (pid {}) was started without --kubeconfig", it.pid))
        }
        (None, None) => None,
    };
    (asked, why)
}

/// The question to the helper.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct AskApi {
    host_root: PathBuf,
    whose: As,
    kubelet: Option<(u32, Settings)>,
    about: Asked,
}

/// A part of the answer, sent as soon as it is known.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) enum Part {
    Pods(Vec<PodRecord>),
    Pod(Known),
    /// A claim of the pod that is asked about, with all that was said of it.
    Claim(Claim),
    /// There is no pod of this UID.
    Gone(Pod),
    /// With the UIDs of its pods, if it is this machine.
    Node(NodeRecord, Option<Vec<String>>),
}

impl Question for AskApi {
    const ROLE: Role = Role::HelperApi;
    type Step = String;
    type Part = Part;
    /// Who was asked, and as whom.
    type Answer = String;

    fn answer(self, tell: &mut Teller<String, Part>) -> Result<String> {
        let end = Instant::now() + LIMIT;
        tell.at(&"reading the credentials".into())?;
        let access = self.access(end)?;
        // From here on the process can only talk to the server: it reads data from the network.
        only_talk();
        tell.at(&"asking the API server".into())?;
        self.converse(access, end, &mut |part| tell.part(&part))
    }
}

impl AskApi {
    /// Asks until that time.
    fn converse(
        self,
        (access, file): (Access, String),
        end: Instant,
        tell: &mut dyn FnMut(Part) -> Result<()>,
    ) -> Result<String> {
        let node = self.node_name(&access);
        let place = format!("API server {}, asked by {file}", safe(access.server.as_bytes()));
        let client = Client::new(access, end).context(file)?;
        let pods = Conversation { client, node, about: self.about, tell }.run();
        let pods = pods.map_err(|error| anyhow::anyhow!("{place}: {error:#}"))?;
        Ok(format!("{place}: {pods}"))
    }

    /// The credentials and the file that they are from.
    fn access(&self, end: Instant) -> Result<(Access, String)> {
        let kubelet = self.kubelet.as_ref().map(|(pid, settings)| (*pid, settings));
        credentials(&self.host_root, &self.whose, kubelet, end)
    }

    /// The node's name: by kubelet's settings, else by its certificate, else the host name
    /// (`nodeutil.GetHostname`).
    fn node_name(&self, access: &Access) -> String {
        let configured = self.kubelet.as_ref().and_then(|(_, settings)| settings.node_name.clone());
        let host = || {
            // A container has a name of its own.
            let file = Files::Named.read(Path::new("/etc/hostname")).unwrap_or_default();
            let name = if file.trim().is_empty() { facts::node_name() } else { file };
            name.trim().to_lowercase()
        };
        configured.or_else(|| node_of(&access.user)).unwrap_or_else(host)
    }
}

/// The credentials and the file that they are from.
fn credentials(
    host_root: &Path,
    whose: &As,
    kubelet: Option<(u32, &Settings)>,
    end: Instant,
) -> Result<(Access, String)> {
    let (mut access, file) = match (whose, kubelet) {
        (As::File(path), _) => (access(path, &Files::Named)?, safe_path(path).into_owned()),
        (As::Kubelet, Some((pid, Settings { kubeconfig: Some(path), .. }))) => {
            let inside = enter(host_root, pid)?;
            let access = access(path, &Files::OnlyRoots(inside.only_roots()))?;
            (access, format!("kubelet's {}", safe_path(path)))
        }
        (As::Kubelet, _) => bail!("no kubelet has credentials"),
    };
    if let Some(program) = access.user.program.take() {
        let command = safe_path(&program.command).into_owned();
        if *whose == As::Kubelet {
            bail!(
                "{file}: its credentials come from a program, {command}, which podstuck runs only if \
                 you name the file: --api KUBECONFIG"
            );
        }
        access.user = program::run(&program, end)?;
    }
    Ok((access, file))
}

#[cfg(test)]
mod tests;
