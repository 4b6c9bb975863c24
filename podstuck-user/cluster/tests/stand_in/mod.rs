//! Stand-ins that the API server calls by HTTPS, each with its own certificate: kubelet's port, with `/pods` and
//! `/healthz`, and a webhook. The test supplies the list of pods, so it does not show that a real kubelet has such a list.

use std::sync::{Arc, Mutex};

use podstuck_testing::api_server::{Answer, ApiServer, Request};
use serde_json::{Value, json};

/// kubelet's port, until the test ends.
pub(crate) struct Kubelet {
    server: ApiServer,
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
        Self { server: ApiServer::serve(move |request| answer(request, &shared)), state }
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.server.port()
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

fn answer(request: &Request, state: &Mutex<State>) -> Answer {
    match request.path.split('?').next().unwrap().trim_end_matches('/') {
        "/pods" => {
            let mut state = state.lock().unwrap();
            state.reads += 1;
            let list =
                json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": state.pods});
            Answer::Text(200, list.to_string())
        }
        "/healthz" => Answer::Text(200, "ok".to_owned()),
        _ => Answer::Text(404, "404 page not found".to_owned()),
    }
}

/// Starts a validating webhook that denies each request.
pub(crate) fn denying_webhook() -> ApiServer {
    ApiServer::serve(|request| {
        let review: Value = serde_json::from_str(&request.body).unwrap();
        let uid = &review["request"]["uid"];
        let response =
            json!({"uid": uid, "allowed": false, "status": {"message": "no owner label"}});
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        Answer::Text(200, review.to_string())
    })
}
