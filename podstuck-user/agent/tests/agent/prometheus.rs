//! A Prometheus that scrapes a real agent and evaluates the chart's rules.

use std::{fs, path::Path, process::Command};

use podstuck_tests::Ending;
use serde_json::json;

use super::common::{Agent, free_port, said};

/// A running Prometheus.
pub(crate) struct Prometheus {
    _child: Ending,
    url: String,
}

impl Prometheus {
    /// Starts Prometheus, which scrapes the agent every second. `alerts` are a file of rules and the port of the
    /// Alertmanager that it sends them to. `features` are those that Prometheus does not have by default.
    pub(crate) fn start(
        top: &Path,
        agent: &Agent,
        alerts: Option<(&str, u16)>,
        features: &[&str],
    ) -> Self {
        let (rules, alertmanager) = alerts.unzip();
        let alertmanager = alertmanager.map(|port| format!("127.0.0.1:{port}"));
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": Vec::from_iter(rules),
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": Vec::from_iter(alertmanager)}]}]},
            "scrape_configs": [{
                "job_name": "podstuck-agent",
                "static_configs": [{"targets": [format!("127.0.0.1:{}", agent.port)], "labels": {"node": "n1"}}],
            }],
        });
        let port = free_port();
        let (file, data) = (format!("prometheus-{port}.yaml"), format!("data-{port}"));
        fs::write(top.join(&file), config.to_string()).unwrap();
        let address = format!("127.0.0.1:{port}");
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={file}"))
            .arg(format!("--storage.tsdb.path={data}"))
            .arg(format!("--web.listen-address={address}"))
            .args(features.iter().map(|feature| format!("--enable-feature={feature}")))
            .arg("--log.level=warn")
            .current_dir(top);
        Self { _child: Ending::start(&mut command), url: format!("http://{address}") }
    }

    /// The current values of a query, with their labels; empty without data.
    pub(crate) fn query(&self, query: &str) -> Vec<String> {
        let (is_done, text) =
            said(Command::new("promtool").args(["query", "instant", &self.url, query]));
        // Prometheus may not listen yet, or may still read its stored data.
        let is_early = ["connection refused", "503"].iter().any(|why| text.contains(why));
        assert!(is_done || is_early, "{query}: {text}");
        let has_value = |line: &&str| line.contains(" => ") && !line.contains(" => NaN ");
        text.lines().filter(has_value).map(str::to_owned).collect()
    }
}
