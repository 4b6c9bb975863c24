//! Stand-ins that the API server calls by HTTPS, each with its own certificate: kubelet's port, with `/pods` and
//! `/healthz`, and a webhook. The test supplies the list of pods, so it does not show that a real kubelet has such a list.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned, crypto::ring, pki_types::PrivatePkcs8KeyDer,
};
use serde_json::{Value, json};

/// kubelet's port, until the test ends.
pub(crate) struct Kubelet {
    port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    pods: Vec<Value>,
    reads: usize,
}

impl Kubelet {
    /// Listens on a free loopback port.
    pub(crate) fn start() -> Self {
        let state = Arc::<Mutex<State>>::default();
        let shared = state.clone();
        let (port, _) = serve(move |path, _| answer(path, &shared));
        Self { port, state }
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Sets its list of pods, and resets the count of reads.
    pub(crate) fn has(&self, pods: &[Value]) {
        let mut pods = pods.to_vec();
        for pod in &mut pods {
            // As kubelet does.
            pod["metadata"]["annotations"]["kubernetes.io/config.source"] = json!("api");
        }
        *self.state.lock().unwrap() = State { pods, reads: 0 };
    }

    /// Number of reads of the list.
    pub(crate) fn reads(&self) -> usize {
        self.state.lock().unwrap().reads
    }
}

fn answer(path: &str, state: &Mutex<State>) -> Option<String> {
    match path.trim_end_matches('/') {
        "/pods" => {
            let mut state = state.lock().unwrap();
            state.reads += 1;
            let list =
                json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": state.pods});
            Some(list.to_string())
        }
        "/healthz" => Some("ok".to_owned()),
        _ => None,
    }
}

/// Starts a validating webhook that denies each request; returns its port and its certificate, as PEM.
pub(crate) fn denying_webhook() -> (u16, String) {
    serve(|_, body| {
        let review: Value = serde_json::from_str(body).unwrap();
        let uid = &review["request"]["uid"];
        let response =
            json!({"uid": uid, "allowed": false, "status": {"message": "no owner label"}});
        Some(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).to_string())
    })
}

/// Serves HTTPS on a free loopback port until the test ends: a path and a body give a body, or 404. Returns the port and
/// the certificate, as PEM.
fn serve(answer: impl Fn(&str, &str) -> Option<String> + Send + Sync + 'static) -> (u16, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let builder = ServerConfig::builder_with_provider(ring::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = Arc::new(builder.with_single_cert(vec![cert.der().clone()], key.into()).unwrap());
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (config, answer) = (config.clone(), answer.clone());
            // A closed connection does not fail the test.
            thread::spawn(move || exchange(config, client, &*answer));
        }
    });
    (port, cert.pem())
}

fn exchange(
    config: Arc<ServerConfig>,
    client: TcpStream,
    answer: impl Fn(&str, &str) -> Option<String>,
) -> Option<()> {
    let mut stream = BufReader::new(StreamOwned::new(ServerConnection::new(config).ok()?, client));
    let mut request = String::new();
    stream.read_line(&mut request).ok()?;
    let (mut header, mut length) = (String::new(), 0);
    while stream.read_line(&mut header).ok()? > 2 {
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        header.clear();
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let path = request.split_whitespace().nth(1)?;
    let path = path.split('?').next()?;
    let (status, body) = match answer(path, &String::from_utf8(body).ok()?) {
        Some(body) => ("200 OK", body),
        None => ("404 Not Found", "404 page not found".to_owned()),
    };
    let stream = stream.get_mut();
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()
}
