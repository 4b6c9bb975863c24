//! A stand-in for kubelet's port: HTTPS with its own certificate, `/pods` and `/healthz`. The test supplies the list
//! of pods, so it does not show that a real kubelet has such a list.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned, crypto::ring, pki_types::PrivatePkcs8KeyDer,
};
use serde_json::{Value, json};

/// Serves until the test ends.
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
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::<Mutex<State>>::default();
        let (config, shared) = (config(), state.clone());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (config, state) = (config.clone(), shared.clone());
                // A closed connection does not fail the test.
                thread::spawn(move || answer(config, client, &state));
            }
        });
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

fn config() -> Arc<ServerConfig> {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let builder = ServerConfig::builder_with_provider(ring::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    Arc::new(builder.with_single_cert(vec![cert.der().clone()], key.into()).unwrap())
}

fn answer(config: Arc<ServerConfig>, client: TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut stream = BufReader::new(StreamOwned::new(ServerConnection::new(config).ok()?, client));
    let mut request = String::new();
    stream.read_line(&mut request).ok()?;
    let mut header = String::new();
    while stream.read_line(&mut header).ok()? > 2 {
        header.clear();
    }
    let (status, body) = match request.split_whitespace().nth(1)?.trim_end_matches('/') {
        "/pods" => {
            let mut state = state.lock().unwrap();
            state.reads += 1;
            let list =
                json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": state.pods});
            ("200 OK", list.to_string())
        }
        "/healthz" => ("200 OK", "ok".to_owned()),
        _ => ("404 Not Found", "404 page not found".to_owned()),
    };
    let stream = stream.get_mut();
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()
}
