//! Requests about podstuck's own pod.

use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::OwnPod;
use crate::read::page::{self, Response, whole};

/// Timeout of a request.
const DEADLINE: Duration = Duration::from_secs(30);
/// Timeout of the removal, for which a user may wait after Ctrl-C.
const REMOVAL: Duration = Duration::from_secs(10);

/// The requests about one pod.
pub(super) struct Requests<'a> {
    client: &'a Client,
    /// Path of the pods of its namespace.
    all: String,
    /// Path of the pod itself.
    own: String,
}

/// The pod's log, as a stream.
pub(super) struct Log(Body);

/// The string at a JSON pointer; empty without one.
pub(super) fn text<'a>(of: &'a Value, place: &str) -> &'a str {
    of.pointer(place).and_then(Value::as_str).unwrap_or_default()
}

impl<'a> Requests<'a> {
    pub(super) fn about(client: &'a Client, pod: &OwnPod) -> Self {
        let all = format!("/api/v1/namespaces/{}/pods", pod.namespace);
        let own = format!("{all}/{}", pod.name);
        Self { client, all, own }
    }

    async fn json(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response, String> {
        let sent = page::send(self.client, method, path, "application/json", body);
        let limit = format!("no answer within {} s", DEADLINE.as_secs());
        timeout(DEADLINE, sent).await.map_err(|_| limit)?
    }

    /// Creates the pod. An error contains the reason and whether the pod may exist nevertheless.
    pub(super) async fn create(&self, pod: &Value) -> Result<(), (String, bool)> {
        let response = self.json(Method::POST, &self.all, Some(pod)).await;
        let response = response.map_err(|why| (why, true))?;
        let is_refused = (400..500).contains(&response.status);
        done(response).map(drop).map_err(|why| (why, !is_refused))
    }

    pub(super) async fn state(&self) -> Result<Value, String> {
        let response = done(self.json(Method::GET, &self.own, None).await?)?;
        response.json().map_err(|error| error.to_string())
    }

    /// Deletes the pod. A missing pod is not an error: the request to create it may have failed.
    pub(super) async fn delete(&self) -> Result<(), String> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        let sent = self.json(Method::DELETE, &self.own, Some(&options));
        let response = timeout(REMOVAL, sent).await.map_err(|_| "no answer".to_owned())??;
        if response.status == 404 { Ok(()) } else { done(response).map(drop) }
    }

    pub(super) async fn log(&self) -> Result<Log, String> {
        let path = format!("{}/log?container=podstuck&follow=true", self.own);
        let response = page::open(self.client, Method::GET, &path, "*/*", None).await?;
        if response.status().is_success() {
            return Ok(Log(response.into_body()));
        }
        Err(done(page::read(response).await?).err().unwrap_or_default())
    }
}

fn done(response: Response) -> Result<Response, String> {
    if (200..300).contains(&response.status) { Ok(response) } else { Err(response.message()) }
}

impl Log {
    /// The next part of the log; `None` at its end.
    pub(super) async fn next(&mut self) -> Option<Result<Vec<u8>, String>> {
        loop {
            match self.0.frame().await? {
                // Trailers are not part of the log.
                Ok(frame) => match frame.into_data() {
                    Ok(data) => return Some(Ok(data.to_vec())),
                    Err(_) => continue,
                },
                Err(error) => return Some(Err(whole(&error))),
            }
        }
    }
}
