//! Serves `/metrics`, `/healthz` and `/readyz`, read-only. Every other path is 404.

use std::{convert::Infallible, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::CONTENT_TYPE,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
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
                let answer = answer(request.method(), request.uri().path(), &pages.borrow());
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

fn answer(method: &Method, path: &str, pages: &Pages) -> Response<Full<Bytes>> {
    const TEXT: &str = "text/plain; charset=utf-8";
    const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
    let (status, kind, body): (_, _, Bytes) = match path {
        _ if method != Method::GET => (StatusCode::METHOD_NOT_ALLOWED, TEXT, "GET only\n".into()),
        "/metrics" => (StatusCode::OK, METRICS, pages.metrics.clone()),
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
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_the_watchs_and_no_command_is_taken() {
        let mut pages = Pages::default();
        let status =
            |method: Method, path: &str, pages: &Pages| answer(&method, path, pages).status();
        assert_eq!(status(Method::GET, "/healthz", &pages), 200);
        assert_eq!(status(Method::GET, "/readyz", &pages), 503);
        (pages.is_ready, pages.unhealthy) = (true, Some("deaf".into()));
        assert_eq!(status(Method::GET, "/healthz", &pages), 503);
        assert_eq!(status(Method::GET, "/readyz", &pages), 200);
        assert_eq!(status(Method::POST, "/metrics", &pages), 405);
        assert_eq!(status(Method::GET, "/debug/pprof", &pages), 404);
    }
}
