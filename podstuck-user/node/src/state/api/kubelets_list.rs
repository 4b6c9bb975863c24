//! kubelet's own list of its pods, from its port on this node.
//!
//! It needs no API server. kubelet itself asks that one whether the caller may: for `get` of `nodes/pods`, before Kubernetes
//! 1.36 of `nodes/proxy`. The credentials are those with which this run asks the API server, and go to kubelet alone
//! (`proven`). Its port without TLS, where it serves one, takes none.

use std::{
    io::BufReader,
    net::TcpStream,
    sync::Mutex,
    time::{Duration, Instant},
};

use anyhow::Result;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use ureq::{
    Agent,
    tls::TlsConfig,
    unversioned::{
        resolver::DefaultResolver,
        transport::{Connector as _, RustlsConnector},
    },
};

use super::{
    As,
    client::{LONGEST, as_user, provider},
    credentials,
    kubeconfig::User,
    proven::{Process, Proven},
};
use crate::{
    identity::{kubelet::Settings, trust::Belief},
    state::{
        as_process::enter_network,
        asked::{AsWhom, Asked, in_thread},
        kubelet,
    },
};
use podstuck_confine::{
    helper::{Question, Share, Teller, ask},
    role::{Role, only_talk},
};
use podstuck_model::{
    cluster::{KubeletsList, Meta, NotRead},
    query::ReadKubeletsPods,
};

/// For all of it, a bit less than how long the helper is waited for.
const LIMIT: Duration = Duration::from_millis(1800);

impl Asked for ReadKubeletsPods {
    async fn answer(self, share: Share, whom: &AsWhom) -> Result<KubeletsList, NotRead> {
        let whom = whom.clone();
        let read = in_thread(share, move || read(self, whom)).await;
        read.unwrap_or_else(|why| Err(NotRead::Other(why.to_string())))
    }
}

fn read(asked: ReadKubeletsPods, whom: AsWhom) -> Result<KubeletsList, NotRead> {
    let AsWhom { host_root, kubelet_roots, whose } = whom;
    let whose = whose.ok_or(NotRead::NotAsked)?;
    let (kubelets, _) = kubelet::running(&host_root, &kubelet_roots);
    let its = kubelets.into_iter().find(|it| it.pid == asked.kubelet);
    let its = its.ok_or_else(|| NotRead::Other("kubelet has ended".into()))?;
    let is_service = its.standing.belief == Belief::Service;
    let ReadKubeletsPods { kubelet: pid, pods } = asked;
    let settings = its.settings;
    ask(AskKubelet { host_root, pid, settings, whose, is_service, pods })
        .unwrap_or_else(|why| Err(NotRead::Other(why.to_string())))
}

/// The question to the helper.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct AskKubelet {
    host_root: std::path::PathBuf,
    pid: u32,
    settings: Settings,
    whose: As,
    /// A kubelet that an administrator started gets no credentials.
    is_service: bool,
    pods: Vec<String>,
}

impl Question for AskKubelet {
    const ROLE: Role = Role::HelperApi;
    type Step = String;
    type Part = ();
    type Answer = Result<KubeletsList, NotRead>;

    fn answer(self, tell: &mut Teller<String, ()>) -> Result<Self::Answer> {
        let end = Instant::now() + LIMIT;
        tell.at(&"connecting to kubelet".into())?;
        enter_network(&self.host_root, self.pid)?;
        let (stream, scheme) = match self.connect() {
            Ok(connected) => connected,
            Err(why) => return Ok(Err(why)),
        };
        tell.at(&"reading the credentials".into())?;
        let user = if scheme == "https" { self.user(end) } else { User::default() };
        // From here on the process can only talk to kubelet, and has sent and received nothing before.
        only_talk();
        tell.at(&"reading kubelet's list of its pods".into())?;
        let talk = Talk::new(stream, scheme, user, end)?;
        Ok(talk.list(&self.pods))
    }
}

impl AskKubelet {
    /// The port that takes no credentials comes first.
    fn connect(&self) -> Result<(TcpStream, &'static str), NotRead> {
        let process = Process::of(&self.host_root, self.pid).ok_or(NotRead::NotKubelet)?;
        let ports = [(self.settings.read_only_port(), "http"), (self.settings.port(), "https")];
        let found = |(port, scheme)| Some((process.listens(port)?, scheme));
        let (at, scheme) = ports.into_iter().find_map(found).ok_or(NotRead::NoPort)?;
        Ok((process.connect(at)?, scheme))
    }

    /// Without credentials, kubelet may still answer: that is its configuration.
    fn user(&self, end: Instant) -> User {
        let kubelet = Some((self.pid, &self.settings));
        let found = credentials(&self.host_root, &self.whose, kubelet, end);
        let why = match found {
            Ok((access, _)) if self.is_service => return access.user,
            Ok(_) => anyhow::anyhow!("it is not a service of the node"),
            Err(why) => why,
        };
        tracing::info!("kubelet is asked for its pods without credentials: {why:#}");
        User::default()
    }
}

/// A connection to kubelet.
struct Talk {
    agent: Agent,
    base: String,
    token: Option<String>,
    end: Instant,
}

#[derive(Deserialize)]
struct List {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemMeta,
}

/// What is needed of [`Meta`]: the rest takes memory.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ItemMeta {
    name: String,
    namespace: Option<String>,
    uid: String,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
    deletion_grace_period_seconds: Option<i64>,
    annotations: std::collections::BTreeMap<String, String>,
}

impl From<Item> for Meta {
    fn from(Item { metadata: it }: Item) -> Self {
        Self {
            name: it.name,
            namespace: it.namespace,
            uid: it.uid,
            creation_timestamp: it.creation_timestamp,
            deletion_timestamp: it.deletion_timestamp,
            deletion_grace_period_seconds: it.deletion_grace_period_seconds,
            annotations: it.annotations,
            ..Self::default()
        }
    }
}

impl Talk {
    fn new(stream: TcpStream, scheme: &str, user: User, end: Instant) -> Result<Self> {
        let at = stream.peer_addr()?;
        let provider = provider();
        let tls = TlsConfig::builder().unversioned_rustls_crypto_provider(provider.clone());
        // The kernel has proven whose the other end is.
        let tls = as_user(tls.disable_verification(true), &user, &provider)?;
        let config = Agent::config_builder()
            .tls_config(tls.build())
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("podstuck/", env!("CARGO_PKG_VERSION")))
            .build();
        let connector = Proven(Mutex::new(Some(stream))).chain(RustlsConnector::default());
        let agent = Agent::with_parts(config, connector, DefaultResolver::default());
        Ok(Self { agent, base: format!("{scheme}://{at}"), token: user.token, end })
    }

    /// Its list, and whether it is well: the second over the same connection, if kubelet keeps that open.
    fn list(&self, pods: &[String]) -> Result<KubeletsList, NotRead> {
        let mut response = self.get("/pods")?;
        let body = response.body_mut().with_config().limit(LONGEST).reader();
        let list: List = serde_json::from_reader(BufReader::new(body))
            .map_err(|_| NotRead::Other("its answer is not a list of pods".into()))?;
        let all: Vec<Meta> = list.items.into_iter().map(Meta::from).collect();
        let is_well = self.get("/healthz").is_ok();
        Ok(KubeletsList {
            is_well,
            ..KubeletsList::of(&all, |uid| pods.iter().any(|it| it == uid))
        })
    }

    fn get(&self, path: &str) -> Result<ureq::http::Response<ureq::Body>, NotRead> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(NotRead::Other("no time was left".into()));
        }
        let mut request = self.agent.get(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let response = request.config().timeout_global(Some(left)).build().call();
        // Its text may quote a request.
        let response = response.map_err(|_| NotRead::Other("no valid answer".into()))?;
        match response.status().as_u16() {
            200 => Ok(response),
            401 => Err(NotRead::Unknown),
            403 => Err(NotRead::Forbidden),
            status => Err(NotRead::Other(format!("status {status}"))),
        }
    }
}

#[cfg(test)]
#[path = "kubelets_list_tests.rs"]
mod tests;
