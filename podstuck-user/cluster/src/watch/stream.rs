//! Watches the metadata of one type, and restarts the watch when it ends.

use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use kube::Client;
use podstuck_model::cluster::{Kind, Meta};
use serde::Deserialize;
use serde_json::Value;
use tokio::{sync::mpsc::Sender, time::sleep};

use super::followed::Event;
use crate::read::page;

const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// Delay before a watch is restarted.
const AGAIN: Duration = Duration::from_secs(2);

/// A message from a watch.
pub(super) enum Heard {
    /// An object was added, modified or deleted.
    Event(Event, Kind, Box<Meta>),
    /// The API server refused the watch, which is not retried.
    Refused(String),
}

#[derive(Deserialize)]
struct Raw {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

/// Runs until the receiver is closed or the API server refuses the watch.
pub(super) async fn read(
    client: Client,
    kind: Kind,
    path: String,
    labels: Option<String>,
    sender: Sender<Heard>,
) {
    let labels =
        labels.map(|it| format!("&labelSelector={}", page::encoded(&it))).unwrap_or_default();
    let mut version = String::new();
    while !sender.is_closed() {
        let from =
            if version.is_empty() { String::new() } else { format!("&resourceVersion={version}") };
        let path = format!("{path}?watch=1{labels}{from}");
        match page::open(&client, Method::GET, &path, METADATA, None).await {
            Ok(response) if response.status().is_success() => {
                hear(response.into_body(), &kind, &mut version, &sender).await;
            }
            Ok(response) if [401, 403, 404].contains(&response.status().as_u16()) => {
                let said = page::read(response).await.map(|it| it.message());
                let why = format!("{}: {}", kind.for_rights(), said.unwrap_or_else(|why| why));
                drop(sender.send(Heard::Refused(why)).await);
                return;
            }
            // The resource version has expired, or the API server is unavailable.
            Ok(_) => version.clear(),
            Err(_) => {}
        }
        sleep(AGAIN).await;
    }
}

/// Reads one watch until its response ends.
async fn hear(
    mut body: kube::client::Body,
    kind: &Kind,
    version: &mut String,
    sender: &Sender<Heard>,
) {
    let mut rest = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        rest.extend_from_slice(&data);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let text: Vec<u8> = rest.drain(..=end).collect();
            let Ok(Raw { kind: what, mut object }) = serde_json::from_slice(&text) else {
                continue;
            };
            let event = match what.as_str() {
                "ADDED" | "MODIFIED" => Event::There,
                "DELETED" => Event::Gone,
                // The resource version is too old: the next watch starts without one.
                "ERROR" => return version.clear(),
                _ => continue,
            };
            let meta = object.get_mut("metadata").map(Value::take);
            let Some(Ok(meta)) = meta.map(serde_json::from_value::<Meta>) else { continue };
            version.clone_from(&meta.resource_version);
            if sender.send(Heard::Event(event, kind.clone(), Box::new(meta))).await.is_err() {
                return;
            }
        }
    }
}
