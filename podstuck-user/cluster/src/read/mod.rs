//! Read-only requests to the API server, in pages and within a budget.

mod connect;
mod discovery;
pub(crate) mod page;
mod together;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use http::Method;
use jiff::Timestamp;
use kube::Client;
use podstuck_model::cluster::{
    AGAIN, Answer, Key, Kind, Kubelet, Last, LastRequest, NODES, Object, Question, Refusal,
    Removal, Survey, Why,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Semaphore;

pub use connect::{Connection, connect};
use discovery::Discovered;
use page::{As, Page, Response};

/// Maximum number of objects per page.
const PAGE: usize = 500;
/// Maximum number of concurrent requests.
const AT_A_TIME: usize = 8;
/// Maximum number of attempts of a request that the API server defers.
const TRIES: u32 = 4;
/// Maximum delay between two attempts.
const LONGEST: Duration = Duration::from_secs(8);
/// Timeout of a request.
const DEADLINE: Duration = Duration::from_secs(30);

const WHOLE: &str = "application/json";
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Answers questions, from the API server or from a recording.
#[derive(Clone)]
pub struct Reader {
    source: Source,
    max: u32,
    made: Arc<AtomicU32>,
    listed: Arc<AtomicU64>,
    turns: Arc<Semaphore>,
    discovered: Arc<Discovered>,
}

#[derive(Clone)]
enum Source {
    Server(Client),
    Recording(Arc<BTreeMap<Question, Answer>>),
}

/// The API server's identity.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Server {
    /// Its version.
    pub version: String,
    /// Its time.
    pub now: Timestamp,
}

impl Reader {
    /// A reader that makes at most `max` requests.
    pub fn new(client: Client, max: u32) -> Self {
        let turns = Arc::new(Semaphore::new(AT_A_TIME));
        let (made, listed, discovered) = (Arc::default(), Arc::default(), Arc::default());
        Self { source: Source::Server(client), max, made, listed, turns, discovered }
    }

    /// A reader that makes no requests and answers from a recording.
    pub fn of_recording(answers: BTreeMap<Question, Answer>) -> Self {
        let source = Source::Recording(Arc::new(answers));
        let (made, listed, discovered) = (Arc::default(), Arc::default(), Arc::default());
        let turns = Arc::new(Semaphore::new(AT_A_TIME));
        Self { source, max: 0, made, listed, turns, discovered }
    }

    /// Number of requests that were made.
    pub fn made(&self) -> u32 {
        self.made.load(Relaxed).min(self.max)
    }

    /// Maximum number of requests.
    pub fn max(&self) -> u32 {
        self.max
    }

    /// Number of objects in the lists that were read.
    pub fn listed(&self) -> u64 {
        self.listed.load(Relaxed)
    }

    /// Counts objects of a list.
    pub(crate) fn count(&self, objects: usize) {
        self.listed.fetch_add(u64::try_from(objects).unwrap_or_default(), Relaxed);
    }

    /// Reads the API server's version and time. All ages use this clock: the clocks of nodes and of this machine may
    /// differ.
    ///
    /// # Errors
    ///
    /// Fails with the message if the API server does not answer.
    pub async fn server(&self) -> Result<Server, String> {
        let response = self.request("/version", WHOLE).await.map_err(|why| why.to_string())?;
        if response.status >= 400 {
            return Err(response.message());
        }
        let version =
            response.json().ok().and_then(|it| Some(it.get("gitVersion")?.as_str()?.to_owned()));
        let now = response.date.unwrap_or_else(Timestamp::now);
        Ok(Server { version: version.unwrap_or_else(|| "unknown".into()), now })
    }

    fn is_of_recording(&self) -> bool {
        matches!(self.source, Source::Recording(_))
    }

    async fn answer(&self, question: &Question) -> Answer {
        if let Source::Recording(answers) = &self.source {
            let unread = || Answer::Unread(Why::Failed("the recording has no answer".into()));
            return answers.get(question).cloned().unwrap_or_else(unread);
        }
        let answer = match question {
            Question::Object(key) => self.object(&key.path(), key.kind.is_known()).await,
            Question::Deleted { kind, namespace, labels } => {
                self.deleted(kind, namespace.as_deref(), labels.as_deref()).await
            }
            Question::Owned { kind, namespace } => {
                let mut all = Vec::new();
                let path = kind.path(namespace.as_deref());
                let read = self.list(&path, METADATA_LIST, |item| all.extend(metadata(item))).await;
                read.map(|()| Answer::Objects(all.into()))
            }
            Question::All { kind, namespace, labels, fields } => {
                self.all(kind, namespace.as_deref(), labels.as_deref(), fields.as_deref()).await
            }
            Question::Types(group) => self.types(group).await,
            Question::Groups => self.groups().await,
            Question::Kubelet { node, about } => self.kubelet(node, *about).await,
            Question::Removal(removal) => self.removal(removal).await,
            Question::LastRequest(request) => self.last_request(request).await,
        };
        answer.unwrap_or_else(|failure| match failure {
            Failure::Missing => Answer::Missing,
            Failure::Unread(why) => Answer::Unread(why),
        })
    }

    async fn object(&self, path: &str, is_known: bool) -> Result<Answer, Failure> {
        let accept = if is_known { WHOLE } else { METADATA };
        let value = self.get(path, accept).await?;
        let object = if is_known { whole(&value) } else { metadata(value) };
        object
            .map(|object| Answer::Object(Arc::new(object)))
            .ok_or_else(|| failed("an object in an unknown format"))
    }

    async fn deleted(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        labels: Option<&str>,
    ) -> Result<Answer, Failure> {
        let mut survey = Survey::default();
        let mut unreadable = false;
        let path = selected(kind.path(namespace), labels, None);
        self.list(&path, METADATA_LIST, |item| match metadata(item) {
            Some(object) => take(&mut survey, object),
            None => unreadable = true,
        })
        .await?;
        if unreadable {
            Err(failed("an object without readable metadata"))
        } else {
            Ok(Answer::Survey(Arc::new(survey)))
        }
    }

    async fn all(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        labels: Option<&str>,
        fields: Option<&str>,
    ) -> Result<Answer, Failure> {
        // The Leases of nodes do not identify a controller.
        let but_nodes = (*kind == Kind::LEASE && namespace.is_none())
            .then_some("metadata.namespace!=kube-node-lease");
        let path = selected(kind.path(namespace), labels, fields.or(but_nodes));
        let mut all = Vec::new();
        let mut unreadable = false;
        self.list(&path, WHOLE, |item| match whole(&item) {
            Some(object) => all.push(object),
            None => unreadable = true,
        })
        .await?;
        // Conclusions from an absent object require the complete list.
        if unreadable {
            Err(failed("an object in an unknown format"))
        } else {
            Ok(Answer::Objects(all.into()))
        }
    }

    /// Reads a kubelet through the API server, which uses its own credentials.
    async fn kubelet(&self, node: &str, about: Kubelet) -> Result<Answer, Failure> {
        let path = format!("{}/proxy", Key::global(Kind::NODE, node).path());
        if about == Kubelet::Health {
            let response =
                self.request(&format!("{path}/healthz"), WHOLE).await.map_err(Failure::Unread)?;
            response.check().map_err(of_kubelet)?;
            return if response.is_ok() {
                Ok(Answer::Well)
            } else {
                Err(failed("kubelet is not healthy"))
            };
        }
        if about == Kubelet::PodsAgain {
            tokio::time::sleep(AGAIN).await;
        }
        let list = self.get(&format!("{path}/pods"), WHOLE).await.map_err(of_kubelet)?;
        let page: Page =
            serde_json::from_value(list).map_err(|error| failed(&error.to_string()))?;
        let pods: Option<Vec<Object>> = page.items.into_iter().map(metadata).collect();
        pods.map(|pods| Answer::Objects(pods.into()))
            .ok_or_else(|| failed("kubelet's list has a pod without readable metadata"))
    }

    /// Makes the request that removes a finalizer as its controller, in a dry run.
    async fn removal(&self, removal: &Removal) -> Result<Answer, Failure> {
        let path = format!("{}?dryRun=All", removal.key.path());
        self.tried(As {
            user: &removal.user(),
            group: None,
            method: Method::PATCH,
            path: &path,
            content: "application/merge-patch+json",
            body: &removal.patch(),
        })
        .await
    }

    /// Makes one of kubelet's last requests about a pod as its node, in a dry run.
    async fn last_request(&self, request: &LastRequest) -> Result<Answer, Failure> {
        let path = request.key.path();
        let (method, path, content) = match request.what {
            Last::Status => (
                Method::PATCH,
                format!("{path}/status?dryRun=All"),
                "application/strategic-merge-patch+json",
            ),
            // The API server ignores the query of a deletion that has a body.
            Last::Deletion => (Method::DELETE, path, "application/json"),
        };
        self.tried(As {
            user: &request.user(),
            group: Some(NODES),
            method,
            path: &path,
            content,
            body: &request.body(),
        })
        .await
    }

    async fn tried(&self, request: As<'_>) -> Result<Answer, Failure> {
        let response = self.send(|client| request.send(client, METADATA)).await;
        let response = response.map_err(Failure::Unread)?;
        if let Some(refusal) = Refusal::of(response.status, &response.message()) {
            return Ok(Answer::Refused(refusal));
        }
        // A controller or a node that lacks the right is another fault than one of the caller.
        response.check().map(|()| Answer::Admitted).map_err(|failure| match failure {
            Failure::Unread(Why::Forbidden)
                if !response.message().contains(" cannot impersonate ") =>
            {
                failed(&response.message())
            }
            failure => failure,
        })
    }

    async fn get(&self, path: &str, accept: &str) -> Result<Value, Failure> {
        let response = self.request(path, accept).await.map_err(Failure::Unread)?;
        response.check()?;
        response.json().map_err(|error| failed(&error.to_string()))
    }

    /// Passes each object of a list to `take`, page by page.
    async fn list(&self, path: &str, accept: &str, take: impl FnMut(Value)) -> Result<(), Failure> {
        self.pages(path, accept, usize::MAX, take).await
    }

    /// Passes each object of the first pages of a list to `take`.
    async fn pages(
        &self,
        path: &str,
        accept: &str,
        most: usize,
        mut take: impl FnMut(Value),
    ) -> Result<(), Failure> {
        let mark = if path.contains('?') { '&' } else { '?' };
        let mut next = String::new();
        for _ in 0..most {
            let rest = if next.is_empty() {
                String::new()
            } else {
                format!("&continue={}", page::encoded(&next))
            };
            let request = format!("{path}{mark}limit={PAGE}{rest}");
            let response = self.request(&request, accept).await.map_err(Failure::Unread)?;
            // 410: the token has expired. The list continues, inconsistently, with the token in the response.
            if response.status == 410 {
                match response.next() {
                    Some(token) => next = token,
                    None => return response.check(),
                }
                continue;
            }
            response.check()?;
            let page: Page = response.parse().map_err(|error| failed(&error.to_string()))?;
            self.count(page.items.len());
            page.items.into_iter().for_each(&mut take);
            match page.metadata.next.filter(|next| !next.is_empty()) {
                Some(token) => next = token,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Sends a GET request.
    async fn request(&self, path: &str, accept: &str) -> Result<Response, Why> {
        self.send(|client| page::send(client, Method::GET, path, accept, None)).await
    }

    /// Sends a request; repeats it if the API server is overloaded.
    async fn send<'a, F>(&'a self, send: impl Fn(&'a Client) -> F) -> Result<Response, Why>
    where
        F: Future<Output = Result<Response, String>>,
    {
        let Source::Server(client) = &self.source else { return Err(Why::Budget) };
        let _turn = self.turns.acquire().await;
        let mut wait = Duration::from_millis(500);
        for last in 1..=TRIES {
            if self.made.fetch_add(1, Relaxed) >= self.max {
                return Err(Why::Budget);
            }
            let response = match tokio::time::timeout(DEADLINE, send(client)).await {
                Ok(response) => response.map_err(Why::Failed)?,
                Err(_) => {
                    return Err(Why::Failed(format!("no answer within {} s", DEADLINE.as_secs())));
                }
            };
            let is_deferred = matches!(response.status, 429 | 503 | 504);
            if !is_deferred || last == TRIES {
                return Ok(response);
            }
            tokio::time::sleep(response.retry_after.unwrap_or(wait).min(LONGEST)).await;
            wait = (wait * 2).min(LONGEST);
        }
        Err(Why::Failed("the API server defers the request".into()))
    }
}

/// Why there is no answer.
enum Failure {
    /// The object or the type does not exist.
    Missing,
    /// The object was not read.
    Unread(Why),
}

fn failed(why: &str) -> Failure {
    Failure::Unread(Why::Failed(why.to_owned()))
}

/// A 404 of kubelet is not evidence that an object is absent: it comes from another server.
fn of_kubelet(failure: Failure) -> Failure {
    match failure {
        Failure::Missing => failed("kubelet does not have it"),
        unread => unread,
    }
}

impl Response {
    fn check(&self) -> Result<(), Failure> {
        match self.status {
            404 => Err(Failure::Missing),
            403 => Err(Failure::Unread(Why::Forbidden)),
            200..300 => Ok(()),
            _ => Err(failed(&self.message())),
        }
    }
}

/// Appends the selectors to a path.
fn selected(path: String, labels: Option<&str>, fields: Option<&str>) -> String {
    let each = [("labelSelector", labels), ("fieldSelector", fields)];
    let words =
        each.iter().filter_map(|(name, it)| Some(format!("{name}={}", page::encoded((*it)?))));
    let query = words.collect::<Vec<_>>().join("&");
    if query.is_empty() { path } else { format!("{path}?{query}") }
}

fn whole(value: &Value) -> Option<Object> {
    Object::deserialize(value).ok()
}

fn metadata(mut value: Value) -> Option<Object> {
    let metadata = serde_json::from_value(value.get_mut("metadata")?.take()).ok()?;
    Some(Object { metadata, ..Object::default() })
}

fn take(survey: &mut Survey, object: Object) {
    let writers: &mut BTreeMap<String, Timestamp> = &mut survey.writers;
    for written in &object.metadata.managed_fields {
        let Some(time) = written.time else { continue };
        match writers.get_mut(&written.manager) {
            Some(last) => *last = time.max(*last),
            None => drop(writers.insert(written.manager.clone(), time)),
        }
    }
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    *survey.totals.entry(namespace).or_default() += 1;
    if object.metadata.deletion_timestamp.is_some() {
        survey.deleted.push(object.metadata);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_selected_by_labels_and_fields() {
        let path = || "/api/v1/pods".to_owned();
        assert_eq!(selected(path(), None, None), "/api/v1/pods");
        assert_eq!(
            selected(path(), Some("app in (a,b)"), Some("metadata.namespace!=x")),
            "/api/v1/pods?labelSelector=app%20in%20%28a%2Cb%29&fieldSelector=metadata.namespace%21%3Dx"
        );
    }

    #[test]
    fn of_a_list_what_is_being_deleted_is_kept_and_who_wrote_last() {
        let mut survey = Survey::default();
        for (name, deletion, time) in [
            ("a", None, "2026-11-28T09:00:00Z"),
            ("b", Some("2026-11-28T09:30:00Z"), "2026-11-28T09:10:00Z"),
            ("c", None, "2026-11-28T09:05:00Z"),
        ] {
            let value = serde_json::json!({"metadata": {"name": name, "deletionTimestamp": deletion,
                "managedFields": [{"manager": "m", "time": time}]}});
            take(&mut survey, metadata(value).unwrap());
        }
        assert_eq!((survey.deleted.len(), survey.totals[""]), (1, 3));
        assert_eq!(survey.writers["m"].to_string(), "2026-11-28T09:10:00Z");
    }
}
