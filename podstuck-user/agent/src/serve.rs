//! Serves `/metrics`, `/healthz` and `/readyz`, read-only. Every other path is 404.

use std::{convert::Infallible, io::Write, sync::Arc, time::Duration};

use flate2::{Compression, write::GzEncoder};
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{
        ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName,
        HeaderValue, VARY,
    },
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use podstuck_exposition::PROTOBUF;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
};

/// Maximum number of concurrent connections: a scraper, kubelet and one person.
const AT_ONCE: usize = 16;
/// Timeout for reading a request's header.
const LIMIT: Duration = Duration::from_secs(10);

/// The current content of the pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    /// The text of `/metrics`.
    pub(crate) metrics: Bytes,
    /// The same as protobuf; `None` if the watch has not written it.
    pub(crate) protobuf: Option<Bytes>,
    /// For `/healthz`: the reason if the watch is unhealthy.
    pub(crate) unhealthy: Option<String>,
    /// For `/readyz`.
    pub(crate) is_ready: bool,
    /// For `/readyz`: whether the counts do not outlive the agent although they are to.
    pub(crate) begins_again: bool,
}

/// Serves until the process ends.
pub(crate) async fn serve(listener: TcpListener, pages: watch::Receiver<Pages>) {
    let room = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let Ok(seat) = room.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Usually out of file descriptors.
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        };
        let pages = pages.clone();
        tokio::spawn(async move {
            let answer = |request: Request<Incoming>| {
                let (method, path) = (request.method(), request.uri().path());
                let answer = answer(method, path, request.headers(), &pages.borrow());
                async move { Ok::<_, Infallible>(answer) }
            };
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(LIMIT).keep_alive(false);
            let served = server.serve_connection(TokioIo::new(stream), service_fn(answer));
            // A client that does not read its response must not occupy the connection.
            let _ = tokio::time::timeout(LIMIT * 3, served).await;
            drop(seat);
        });
    }
}

fn answer(
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    pages: &Pages,
) -> Response<Full<Bytes>> {
    const TEXT: &str = "text/plain; charset=utf-8";
    const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
    let (status, kind, body): (_, _, Bytes) = match path {
        _ if method != Method::GET => (StatusCode::METHOD_NOT_ALLOWED, TEXT, "GET only\n".into()),
        "/metrics" => match pages.protobuf.clone().filter(|_| prefers_protobuf(headers)) {
            Some(protobuf) => (StatusCode::OK, PROTOBUF, protobuf),
            None => (StatusCode::OK, METRICS, pages.metrics.clone()),
        },
        "/healthz" => match &pages.unhealthy {
            None => (StatusCode::OK, TEXT, "ok\n".into()),
            Some(why) => (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n").into()),
        },
        "/readyz" if pages.is_ready && pages.begins_again => (
            StatusCode::OK,
            TEXT,
            "ok, but the counts begin again with each start: the log has the reason\n".into(),
        ),
        "/readyz" if pages.is_ready => (StatusCode::OK, TEXT, "ok\n".into()),
        "/readyz" => {
            (StatusCode::SERVICE_UNAVAILABLE, TEXT, "the probes do not count yet\n".into())
        }
        _ => (StatusCode::NOT_FOUND, TEXT, "/metrics, /healthz, /readyz\n".into()),
    };
    let packed = (path == "/metrics" && accepts_gzip(headers)).then(|| gzip(&body)).flatten();
    let is_packed = packed.is_some();
    let mut response = Response::new(Full::new(packed.unwrap_or(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
    if is_packed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// `None` if there is no memory for it.
fn gzip(body: &Bytes) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::fast());
    encoder.write_all(body).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

/// Whether the client accepts gzip by its name, as Prometheus does.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    ranges(headers, ACCEPT_ENCODING).any(|it| it.kind == "gzip" && it.quality > 0)
}

/// An element of `Accept` or `Accept-Encoding`.
struct Range {
    /// In lower case.
    kind: String,
    parameters: Vec<(String, String)>,
    /// In thousandths, the finest that there is. An invalid number counts as 0.
    quality: u16,
}

impl Range {
    fn of(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        let mut parts = text.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_owned();
        let parameters = parts.filter_map(|it| it.split_once('='));
        let parameters: Vec<(String, String)> =
            parameters.map(|(name, value)| (name.into(), value.trim_matches('"').into())).collect();
        let quality = parameters.iter().find(|(name, _)| name == "q");
        let quality = quality.map_or(1.0, |(_, value)| value.parse().unwrap_or(0.0));
        Self { kind, parameters, quality: (quality * 1000.0_f32) as u16 }
    }

    fn has(&self, name: &str, value: &str) -> bool {
        self.parameters.iter().any(|it| it.0 == name && it.1 == value)
    }
}

fn ranges(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = Range> {
    let values = headers.get_all(name).into_iter().filter_map(|it| it.to_str().ok());
    values.flat_map(|it| it.split(',')).map(Range::of)
}

/// Whether the client accepts protobuf, and no text more than it. Among the ranges that include text, the most specific
/// one decides (RFC 9110, section 12.5.1).
fn prefers_protobuf(headers: &HeaderMap) -> bool {
    let (mut protobuf, mut text) = (0, (0, 0));
    for range in ranges(headers, ACCEPT) {
        let quality = range.quality;
        match range.kind.as_str() {
            "text/plain" => text = text.max((3, quality)),
            "text/*" => text = text.max((2, quality)),
            "*/*" => text = text.max((1, quality)),
            "application/vnd.google.protobuf"
                if range.has("proto", "io.prometheus.client.metricfamily")
                    && range.has("encoding", "delimited") =>
            {
                protobuf = protobuf.max(quality);
            }
            _ => {}
        }
    }
    protobuf > 0 && protobuf >= text.1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Prometheus 2.42 and 3.5 send with native histograms, and without.
    const NATIVE: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
        application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,\
        text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    const TEXT: &str = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
        text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

    fn accepting(ranges: &[&str]) -> HeaderMap {
        ranges.iter().map(|range| (ACCEPT, HeaderValue::from_str(range).unwrap())).collect()
    }

    #[test]
    fn protobuf_is_for_those_who_ask_for_it() {
        const THIS: &str = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
        let with = |rest: &str| format!("{THIS}{rest}");
        let is_protobuf = |ranges: &[&str]| prefers_protobuf(&accepting(ranges));
        for ranges in [
            NATIVE,
            THIS,
            "APPLICATION/vnd.google.protobuf;proto=\"io.prometheus.client.MetricFamily\";encoding=Delimited",
            &with(";q=0.5, text/plain;q=0.5"),
            &with(";q=0.5, */*;q=0.8, text/plain;q=0.1"),
            &with(";q=0.5, text/*;q=0.4, */*"),
        ] {
            assert!(is_protobuf(&[ranges]), "{ranges}");
        }
        assert!(is_protobuf(&["text/plain;q=0.5", THIS]));
        for ranges in [
            TEXT,
            "",
            "*/*",
            "application/json",
            "application/vnd.google.protobuf",
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
            &with(";q=0"),
            &with(";q=half"),
            &with(";q=nan"),
            &with(";q=0.4, text/plain;q=0.5"),
            &with(";q=0.4, text/*"),
        ] {
            assert!(!is_protobuf(&[ranges]), "{ranges}");
        }
        assert!(!is_protobuf(&[]));

        let mut pages = Pages { metrics: "text".into(), ..Pages::default() };
        let page = |accept: &str, pages: &Pages| {
            let answer = answer(&Method::GET, "/metrics", &accepting(&[accept]), pages);
            answer.headers()[CONTENT_TYPE].to_str().unwrap().to_owned()
        };
        assert_eq!(page(NATIVE, &pages), page(TEXT, &pages), "the watch has not written it");
        pages.protobuf = Some("protobuf".into());
        assert_eq!(page(NATIVE, &pages), PROTOBUF);
        assert_eq!(page(TEXT, &pages), "text/plain; version=0.0.4; charset=utf-8");
    }

    #[test]
    fn a_scrape_is_packed_for_those_who_accept_gzip() {
        use http_body_util::BodyExt;

        let text = "podstuck_calls_total{outcome=\"ok\"} 1\n".repeat(1000);
        let pages = Pages { metrics: text.clone().into(), ..Pages::default() };
        let get = |path: &str, encoding: &'static str| {
            let mut headers = accepting(&[TEXT]);
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(encoding));
            let response = answer(&Method::GET, path, &headers, &pages);
            let encoding = response.headers().get(CONTENT_ENCODING).cloned();
            let body = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let body = body.block_on(response.into_body().collect()).unwrap().to_bytes();
            (encoding.map(|it| it.to_str().unwrap().to_owned()), body)
        };
        for encoding in ["gzip", "deflate, GZIP;q=0.5"] {
            let (encoding, body) = get("/metrics", encoding);
            assert_eq!(encoding.as_deref(), Some("gzip"));
            assert!(body.len() * 10 < text.len(), "{}", body.len());
            let plain = std::io::read_to_string(flate2::read::GzDecoder::new(&body[..])).unwrap();
            assert_eq!(plain, text);
        }
        for encoding in ["", "identity", "gzip;q=0", "*", "x-gzip-not"] {
            assert_eq!(get("/metrics", encoding), (None, text.clone().into()), "{encoding}");
        }
        assert_eq!(get("/healthz", "gzip"), (None, "ok\n".into()));
    }

    #[test]
    fn health_is_the_watchs_and_no_command_is_taken() {
        let mut pages = Pages::default();
        let status = |method: Method, path: &str, pages: &Pages| {
            answer(&method, path, &HeaderMap::new(), pages).status()
        };
        assert_eq!(status(Method::GET, "/healthz", &pages), 200);
        assert_eq!(status(Method::GET, "/readyz", &pages), 503);
        (pages.is_ready, pages.unhealthy) = (true, Some("deaf".into()));
        assert_eq!(status(Method::GET, "/healthz", &pages), 503);
        assert_eq!(status(Method::GET, "/readyz", &pages), 200);
        assert_eq!(status(Method::POST, "/metrics", &pages), 405);
        assert_eq!(status(Method::GET, "/debug/pprof", &pages), 404);
    }
}
