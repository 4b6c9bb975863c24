//! From a stuck pod to the notification that a person gets: a real agent, Prometheus with the chart's rules, and a real
//! Alertmanager with a webhook.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use nix::sys::signal::Signal;
use podstuck_tests::{Ending, lab, podstuck, requires, root_and_btf};
use serde_json::{Value, json};

use super::{
    command,
    common::{Agent, CHART, done, free_port, has, wait_for},
    prometheus::Prometheus,
};

/// The pages of the causes, from which the book is made.
const PAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/causes");

/// A running Alertmanager, and the notifications that it has sent.
struct Alertmanager {
    _child: Ending,
    port: u16,
    notifications: Receiver<Value>,
}

impl Alertmanager {
    /// Starts it on loopback alone, without a cluster. It notifies at once.
    fn start(top: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let (sender, notifications) = channel();
        // Ends with the test.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = sender.send(receive(stream.unwrap()));
            }
        });
        let config = json!({
            "route": {
                "receiver": "webhook", "group_by": ["..."],
                "group_wait": "0s", "group_interval": "1s", "repeat_interval": "1h",
            },
            "receivers": [{"name": "webhook", "webhook_configs": [{"url": url, "send_resolved": true}]}],
        });
        fs::write(top.join("alertmanager.yaml"), config.to_string()).unwrap();
        let port = free_port();
        let mut command = Command::new("prometheus-alertmanager");
        command
            .args([
                "--config.file=alertmanager.yaml",
                "--storage.path=alertmanager",
                "--log.level=warn",
            ])
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--cluster.listen-address=")
            .current_dir(top);
        Self { _child: Ending::start(&mut command), port, notifications }
    }

    /// The next alert about the lab's pod in a notification, if there is one.
    fn alert(&self) -> Option<Value> {
        let notification = self.notifications.recv_timeout(Duration::from_millis(100)).ok()?;
        let mut alerts = notification["alerts"].as_array().unwrap().iter();
        alerts.find(|alert| alert["labels"]["pod"] == "immutable-attribute").cloned()
    }

    /// The names of the alerts about the lab's pod that fire, by Alertmanager's own client.
    fn firing(&self) -> Vec<String> {
        let url = format!("--alertmanager.url=http://127.0.0.1:{}", self.port);
        let words = ["alert", "query", "--output=json", "pod=immutable-attribute", &url];
        let alerts: Vec<Value> =
            serde_json::from_str(&done(Command::new("amtool").args(words))).unwrap();
        let names = alerts.iter().map(|alert| alert["labels"]["alertname"].as_str().unwrap());
        names.map(str::to_owned).collect()
    }
}

/// Reads the body of a request, and answers it.
fn receive(mut stream: TcpStream) -> Value {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().unwrap(),
            None if line.trim().is_empty() => break,
            _ => (),
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    serde_json::from_slice(&body).unwrap()
}

#[test]
fn a_person_is_notified_with_the_causes_page_and_when_it_is_over() {
    requires!(has("prometheus"), has("prometheus-alertmanager"), has("amtool"), root_and_btf());
    let top = tempfile::tempdir().unwrap();
    let rules = fs::read_to_string(format!("{CHART}/files/alerts.yaml")).unwrap();
    // promtool's tests hold the rule's own ten minutes.
    let rules = rules.replace("for: 10m", "for: 2s");
    let rules =
        rules.replace("RUNBOOKS", "https://runbooks.example/causes").replace("SUFFIX", ".md");
    fs::write(top.path().join("rules.yaml"), rules).unwrap();
    let alertmanager = Alertmanager::start(top.path());

    let (pod, ready) = lab("immutable-attribute", &[]);
    let [uid, root] = ["pod_uid", "kubelet_root"].map(|key| ready[key].as_str().unwrap());
    let options = ["--no-events", "--", "--kubelet-root", root, "--api", "never"];
    let agent = Agent::with(top.path(), &podstuck(), &options);
    let alerts = Some(("rules.yaml", alertmanager.port));
    let prometheus = Prometheus::start(top.path(), &agent, alerts, &[]);
    wait_for("ready agent", || (agent.get("/readyz").0 == 200).then_some(()));
    assert_eq!(alertmanager.firing(), [""; 0]);
    pod.resume();

    let alert = wait_for("notification", || alertmanager.alert());
    println!("{alert:#}");
    assert_eq!(
        (&alert["status"], &alert["labels"]["alertname"]),
        (&json!("firing"), &json!("PodstuckPodStuck"))
    );
    assert_eq!(
        (&alert["labels"]["node"], &alert["labels"]["severity"]),
        (&json!("n1"), &json!("warning"))
    );
    let page = alert["annotations"]["runbook_url"].as_str().unwrap();
    let page = page.strip_prefix("https://runbooks.example/causes/").unwrap();
    let text = fs::read_to_string(format!("{PAGES}/{page}")).unwrap();
    assert!(text.contains(alert["labels"]["cause"].as_str().unwrap()), "{page}: {text}");
    assert_eq!(alertmanager.firing(), ["PodstuckPodStuck"]);

    let released = Command::new("sh").args(["-c", &command(&agent, uid)]).status().unwrap();
    assert!(released.success());
    let alert = wait_for("end of the alert", || alertmanager.alert());
    assert_eq!(
        (&alert["status"], &alert["labels"]["alertname"]),
        (&json!("resolved"), &json!("PodstuckPodStuck"))
    );
    assert_eq!(alertmanager.firing(), [""; 0]);
    drop((prometheus, alertmanager));
    assert_eq!(agent.end(Signal::SIGTERM), Some(0));
    pod.stop();
}
