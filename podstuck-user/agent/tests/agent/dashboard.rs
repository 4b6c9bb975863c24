//! The chart's dashboard with a Prometheus that scrapes a real agent.

use std::fs;

use nix::sys::signal::Signal;
use podstuck_tests::{lab, podstuck, requires, root_and_btf};
use serde_json::Value;

use super::{
    common::{Agent, CHART, has, wait_for},
    prometheus::Prometheus,
};

#[test]
fn each_panel_of_the_dashboard_has_data() {
    requires!(has("promtool"), has("prometheus"), root_and_btf());
    let top = tempfile::tempdir().unwrap();
    let (pod, ready) = lab("immutable-attribute", &[]);
    let root = ready["kubelet_root"].as_str().unwrap();
    let mut options = vec!["--no-events", "--"];
    options.extend(["--kubelet-root", root, "--api", "never"]);
    let agent = Agent::with(top.path(), &podstuck(), &options);
    let prometheus = Prometheus::start(top.path(), &agent, None, &[]);
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
    drop(prometheus);
    assert_eq!(agent.end(Signal::SIGTERM), Some(0));
    pod.stop();
}
