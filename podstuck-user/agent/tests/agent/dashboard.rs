//! The chart's dashboard and alerts with a Prometheus that scrapes a real agent.

use std::{
    fs,
    path::Path,
    process::{Child, Command},
};

use podstuck_tests::{lab, podstuck, requires, root_and_btf};
use serde_json::{Value, json};

use super::common::{Agent, CHART, free_port, has, said, wait_for};

/// A running Prometheus.
struct Prometheus {
    child: Child,
    url: String,
}

impl Prometheus {
    /// Starts Prometheus with the chart's rules. It scrapes the agent every second.
    fn start(top: &Path, agent: &Agent) -> Self {
        let rules = fs::read_to_string(format!("{CHART}/files/alerts.yaml")).unwrap();
        fs::write(top.join("rules.yaml"), rules).unwrap();
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{
                "job_name": "podstuck-agent",
                "static_configs": [{"targets": [format!("127.0.0.1:{}", agent.port)], "labels": {"node": "n1"}}],
            }],
        });
        fs::write(top.join("prometheus.yaml"), config.to_string()).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let child = Command::new("prometheus")
            .args(["--config.file=prometheus.yaml", "--storage.tsdb.path=data", "--log.level=warn"])
            .arg(format!("--web.listen-address={address}"))
            .current_dir(top)
            .spawn()
            .unwrap();
        Self { child, url: format!("http://{address}") }
    }

    /// The current values of a query, with their labels; empty without data.
    fn query(&self, query: &str) -> Vec<String> {
        let (is_done, text) =
            said(Command::new("promtool").args(["query", "instant", &self.url, query]));
        // Prometheus may not listen yet, or may still read its stored data.
        let is_early = ["connection refused", "503"].iter().any(|why| text.contains(why));
        assert!(is_done || is_early, "{query}: {text}");
        let has_value = |line: &&str| line.contains(" => ") && !line.contains(" => NaN ");
        text.lines().filter(has_value).map(str::to_owned).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn each_panel_of_the_dashboard_has_data_and_the_alert_fires() {
    requires!(has("promtool"), has("prometheus"), root_and_btf());
    let top = tempfile::tempdir().unwrap();
    let (pod, ready) = lab("immutable-attribute", &[]);
    let root = ready["kubelet_root"].as_str().unwrap();
    let mut options = vec!["--no-events", "--"];
    options.extend(["--kubelet-root", root, "--api", "never"]);
    let agent = Agent::with(top.path(), &podstuck(), &options);
    let prometheus = Prometheus::start(top.path(), &agent);
    pod.resume();

    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(format!("{CHART}/files/dashboard.json")).unwrap())
            .unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    for panel in panels {
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap().replace("$__rate_interval", "1m");
            let what = format!("data of \"{}\": {query}", panel["title"].as_str().unwrap());
            let data =
                wait_for(&what, || Some(prometheus.query(&query)).filter(|it| !it.is_empty()));
            println!("  {}", data.join("\n  "));
        }
    }
    let alert = "ALERTS{alertname=\"PodstuckPodStuck\", alertstate=\"pending\", pod=\"immutable-attribute\"}";
    wait_for("alert", || prometheus.query(alert).pop());
    drop((prometheus, agent));
    pod.stop();
}
