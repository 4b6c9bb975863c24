//! Sends one HTTP request and reads its response.

use std::{fmt::Write, time::Duration};

use http::{Method, Request, header};
use jiff::{Timestamp, fmt::rfc2822};
use kube::{Client, client::Body};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

/// A response of the API server.
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Its `Date` header.
    pub(super) date: Option<Timestamp>,
    /// Its `Retry-After` header.
    pub(super) retry_after: Option<Duration>,
    body: Vec<u8>,
}

/// One page of a list.
#[derive(Deserialize)]
pub(super) struct Page {
    #[serde(default)]
    pub(super) metadata: ListMeta,
    /// Empty if the response has `null`.
    #[serde(default, deserialize_with = "or_empty")]
    pub(super) items: Vec<Value>,
}

#[derive(Default, Deserialize)]
pub(super) struct ListMeta {
    #[serde(rename = "continue")]
    pub(super) next: Option<String>,
}

fn or_empty<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Value>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl Response {
    pub(crate) fn json(&self) -> serde_json::Result<Value> {
        self.parse()
    }

    /// Whether the body is `ok`, the answer of a health endpoint.
    pub(super) fn is_ok(&self) -> bool {
        self.body.trim_ascii() == b"ok"
    }

    pub(crate) fn parse<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.body)
    }

    /// The continue token of a response that says that a list's token has expired (410).
    pub(super) fn next(&self) -> Option<String> {
        let status: Page = self.parse().ok()?;
        status.metadata.next.filter(|next| !next.is_empty())
    }

    /// The message of a `Status` response; otherwise the HTTP status.
    pub(crate) fn message(&self) -> String {
        let said = self.json().ok().and_then(|it| Some(it.get("message")?.as_str()?.to_owned()));
        said.unwrap_or_else(|| format!("HTTP status {}", self.status))
    }
}

/// Sends a request and reads the whole response. The error text describes a missing response.
pub(crate) async fn send(
    client: &Client,
    method: Method,
    path: &str,
    accept: &str,
    body: Option<&Value>,
) -> Result<Response, String> {
    read(open(client, method, path, accept, body).await?).await
}

/// A request as another user.
pub(super) struct As<'a> {
    pub(super) user: &'a str,
    pub(super) group: Option<&'a str>,
    pub(super) method: Method,
    pub(super) path: &'a str,
    /// The type of the body.
    pub(super) content: &'a str,
    pub(super) body: &'a Value,
}

impl As<'_> {
    /// Sends it; the response has only metadata of an object.
    pub(super) async fn send(&self, client: &Client, accept: &str) -> Result<Response, String> {
        let mut request = Request::builder()
            .method(&self.method)
            .uri(self.path)
            .header(header::ACCEPT, accept)
            .header(header::CONTENT_TYPE, self.content)
            .header("Impersonate-User", self.user);
        if let Some(group) = self.group {
            request = request.header("Impersonate-Group", group);
        }
        let request = request.body(Body::from(self.body.to_string().into_bytes()));
        let request = request.map_err(|error| error.to_string())?;
        read(client.send(request).await.map_err(|error| whole(&error))?).await
    }
}

/// Sends a request; returns the response after reading its headers.
pub(crate) async fn open(
    client: &Client,
    method: Method,
    path: &str,
    accept: &str,
    body: Option<&Value>,
) -> Result<http::Response<Body>, String> {
    let request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
    let request = match body {
        Some(body) => {
            let json = request.header(header::CONTENT_TYPE, "application/json");
            json.body(Body::from(body.to_string().into_bytes()))
        }
        None => request.body(Body::empty()),
    };
    let request = request.map_err(|error| error.to_string())?;
    client.send(request).await.map_err(|error| whole(&error))
}

/// Reads the body of a response.
pub(crate) async fn read(response: http::Response<Body>) -> Result<Response, String> {
    let (head, body) = response.into_parts();
    let text = |name| head.headers.get(name).and_then(|it| it.to_str().ok());
    let date = text(header::DATE).and_then(|it| rfc2822::parse(it).ok());
    let seconds = text(header::RETRY_AFTER).and_then(|it| it.parse().ok());
    let (status, date) = (head.status.as_u16(), date.map(|it| it.timestamp()));
    let retry_after = seconds.map(Duration::from_secs);
    let body = body.collect_bytes().await.map_err(|error| whole(&error))?;
    Ok(Response { status, date, retry_after, body: body.to_vec() })
}

/// An error with its chain of sources.
pub(crate) fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            // Writing to a string cannot fail.
            let _ = write!(text, ": {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// Percent-encodes a text for a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_may_be_empty_and_may_go_on() {
        let of = |text: &str| serde_json::from_str::<Page>(text).unwrap();
        assert!(of(r#"{"metadata":{},"items":null}"#).items.is_empty());
        let page = of(
            r#"{"metadata":{"continue":"x","resourceVersion":"1"},"items":[{"metadata":{"name":"a"}}]}"#,
        );
        assert_eq!((page.items.len(), page.metadata.next.as_deref()), (1, Some("x")));
    }

    #[test]
    fn a_date_is_the_servers() {
        let date = rfc2822::parse("Sat, 28 Nov 2026 10:00:00 GMT").unwrap();
        assert_eq!(date.timestamp().to_string(), "2026-11-28T10:00:00Z");
    }
}
