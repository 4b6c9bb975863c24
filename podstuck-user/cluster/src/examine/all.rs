//! Examines many nodes: a limited number concurrently, with one pod at a time on each node. An answer is used when it
//! is complete.

use std::{collections::BTreeMap, sync::Arc};

use kube::Client;
use podstuck_model::path::safe;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
};

use super::{About, End, NodesAnswer, OwnPod, examine};
use podstuck_model::exit::Failure;

/// The result of one examination.
pub struct Done {
    own: OwnPod,
    said: Vec<u8>,
    ended: Result<u8, Failure>,
}

/// The same for a program.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Said {
    pub(crate) node: String,
    /// The pod that is stuck, as namespace and name; `null` where it was asked about by its UID.
    pub(crate) pod: Option<String>,
    uid: Option<String>,
    /// With which podstuck ended there; `null` where it did not.
    exit_status: Option<u8>,
    /// Its answer: the line of that type, as `podstuck diagnose --output json` writes it.
    diagnosis: Option<Value>,
    /// Why it has no answer.
    pub(crate) error: Option<String>,
    #[serde(skip)]
    pub(crate) answer: Option<NodesAnswer>,
}

/// Examines all pods and passes each result to `take`, until it returns false. The exit status is 1 if a node has
/// found a cause; otherwise it is `exit`.
pub async fn all(
    client: &Client,
    own: Vec<OwnPod>,
    at_a_time: usize,
    seconds_to_start: u32,
    exit: u8,
    mut take: impl AsyncFnMut(Done) -> bool,
) -> End {
    let mut nodes: BTreeMap<String, Vec<OwnPod>> = BTreeMap::new();
    for own in own {
        nodes.entry(own.node.clone()).or_default().push(own);
    }
    let turns = Arc::new(Semaphore::new(at_a_time));
    let (sender, mut done) = mpsc::channel(1);
    let mut tasks = JoinSet::new();
    for of_node in nodes.into_values() {
        let (client, turns, sender) = (client.clone(), turns.clone(), sender.clone());
        tasks.spawn(async move {
            let _turn = turns.acquire().await;
            for own in of_node {
                // If the receiver is closed, no further examination begins.
                if sender.is_closed() {
                    return;
                }
                let mut said = Vec::new();
                let ended =
                    examine(&client, &own, seconds_to_start, &mut said, sender.closed()).await;
                let is_over = matches!(ended, Ok(End::Interrupted(_) | End::Unread));
                if sender.send((own, said, ended)).await.is_err() || is_over {
                    return;
                }
            }
        });
    }
    drop(sender);
    let mut end = End::Answered(exit);
    while let Some((own, said, ended)) = done.recv().await {
        let ended = match ended {
            Ok(End::Answered(status)) => Ok(status),
            Err(failure) => Err(failure),
            Ok(early) => {
                done.close();
                if matches!(end, End::Answered(_)) {
                    end = early;
                }
                continue;
            }
        };
        if ended.as_ref().is_ok_and(|status| *status == 1) && end == End::Answered(exit) {
            end = End::Answered(1);
        }
        if !take(Done { own, said, ended }).await {
            done.close();
            if matches!(end, End::Answered(_)) {
                end = End::Unread;
            }
        }
    }
    // Each task removes its own pod before it ends.
    while tasks.join_next().await.is_some() {}
    end
}

impl Done {
    /// The result of one examination.
    pub fn new(own: OwnPod, said: Vec<u8>, ended: Result<u8, Failure>) -> Self {
        Self { own, said, ended }
    }

    /// Whether podstuck gave no answer there.
    pub fn has_failed(&self) -> bool {
        self.ended.is_err()
    }

    /// The output below a heading.
    pub fn text(self) -> Vec<u8> {
        let about = match &self.own.about {
            About::Name { name, .. } => name,
            About::Uid(uid) => uid,
        };
        let (about, node) = (safe(about.as_bytes()), safe(self.own.node.as_bytes()));
        let mut text = format!("\n== {about} on {node} ==\n").into_bytes();
        text.extend(self.said);
        if let Err(failure) = self.ended {
            text.extend(format!("{}\n", safe(failure.to_string().as_bytes())).bytes());
        }
        text
    }

    /// The result, if podstuck wrote JSON lines there.
    pub fn read(self) -> Said {
        let lines = self.said.split(|byte| *byte == b'\n');
        let lines: Vec<Value> = lines.filter_map(|it| serde_json::from_slice(it).ok()).collect();
        let (answer, why) = match NodesAnswer::of(&lines) {
            Ok(answer) => (answer, None),
            Err(error) => {
                let version = env!("CARGO_PKG_VERSION");
                let why = format!("it cannot be read, use the image of version {version}: {error}");
                (None, Some(why))
            }
        };
        let diagnosis = lines.into_iter().rfind(|line| line["type"] == "diagnosis");
        let (exit_status, error) = match self.ended {
            Ok(status) => {
                (Some(status), why.or_else(|| diagnosis.is_none().then(|| last_words(&self.said))))
            }
            Err(failure) => (None, Some(failure.to_string())),
        };
        let (pod, uid) = match self.own.about {
            About::Name { name, .. } => (Some(name), None),
            About::Uid(uid) => (None, Some(uid)),
        };
        Said { node: self.own.node, pod, uid, exit_status, diagnosis, error, answer }
    }
}

/// The last line of the output: without an answer, it contains podstuck's reason.
fn last_words(said: &[u8]) -> String {
    let last = said.trim_ascii().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    safe(last).into_owned()
}
