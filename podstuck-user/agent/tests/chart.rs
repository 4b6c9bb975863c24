//! The chart with its users' tools: Helm, the schemas of Kubernetes' versions, promtool, and a real API server, where
//! the agent writes with the rights of the chart's manifest. No test here needs BPF.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod common;
#[path = "chart/policies.rs"]
mod policies;
#[path = "chart/readme.rs"]
mod readme;

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use common::{Agent, CHART, done, has, said, wait_for};
use nix::sys::signal::Signal;
use podstuck_test_node::ControlPlane;
use podstuck_testing::{requires, skip};
use serde_json::json;

/// The manifest that the chart generates with default values.
const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/podstuck-agent.yaml");

const ALERTS: &str = include_str!("chart/alerts.yaml");
/// Namespace of the stuck pods.
const NAMESPACE: &str = "shop";
/// Values with which the chart generates all its objects.
const ALL: [&str; 4] = [
    "alerts.enabled=true",
    "alerts.runbooks=https://runbooks.example/causes",
    "serviceMonitor.enabled=true",
    "dashboard.enabled=true",
];

/// The Python that `cargo xtask test` has prepared.
fn python() -> Command {
    Command::new(std::env::var_os("PODSTUCK_PYTHON").unwrap_or_else(|| "python3".into()))
}

fn has_schemas() -> Result<(), &'static str> {
    let mut python = python();
    let found = python.args(["-c", "import kubernetes_validate"]).stderr(Stdio::null()).status();
    let missing = "no kubernetes-validate for Python: `cargo xtask test` gets it";
    found.ok().filter(|status| status.success()).map(drop).ok_or(missing)
}

/// A `helm` command with these values.
fn helm(words: &[&str], values: &[&str]) -> Command {
    let mut helm = Command::new("helm");
    helm.args(words).args(values.iter().flat_map(|value| ["--set", value]));
    helm
}

fn template(values: &[&str], more: &[&str]) -> Command {
    let mut helm =
        helm(&["template", "podstuck-agent", CHART, "--namespace", "kube-system"], values);
    helm.args(more);
    helm
}

#[test]
fn each_version_of_kubernetes_takes_what_the_chart_makes() {
    requires!(has("helm"), has_schemas());
    let top = tempfile::tempdir().unwrap();
    let file = top.path().join("all.yaml");
    let fewest =
        ["events.enabled=false", "watch.api=never", "priorityClassName=", "tolerations=null"];
    let others = [
        "image.tag=x",
        "image.pullSecrets[0].name=s",
        "nodeSelector.disk=ssd",
        "maxUnavailable=1",
        "address=[::]",
        "podLabels.team=a",
        "podAnnotations.a=b",
        "watch.extraArgs={--kubelet-root=/k}",
        "dashboard.enabled=true",
        "openshift.enabled=true",
        "pins=keep",
        "seccompProfile.type=Localhost",
        "seccompProfile.localhostProfile=podstuck/seccomp.json",
        "appArmorProfile.type=Localhost",
        "appArmorProfile.localhostProfile=podstuck-agent",
    ];
    let policy = ["admissionPolicy.enabled=true"];
    for values in [&[][..], &ALL, &fewest, &others, &["pins=remove"], &policy] {
        done(helm(&["lint", "--strict", CHART], values).arg("--quiet"));
        // Before and after the AppArmor profile became a field (1.30).
        for version in ["1.25", "1.29", "1.30", "1.37"] {
            // Before 1.30 a token does not name its node: the chart refuses the policy.
            if values == policy && version < "1.30" {
                let (is_made, text) = said(&mut template(values, &["--kube-version", version]));
                assert!(!is_made && text.contains("needs Kubernetes 1.30"), "{text}");
                continue;
            }
            let made = done(&mut template(values, &["--kube-version", version]));
            fs::write(&file, made).unwrap();
            let mut validate = python();
            validate
                .args(["-m", "kubernetes_validate", "--strict", "--quiet", "-k", version])
                .arg(&file);
            let text = done(&mut validate);
            // Only the objects of the Prometheus operator and of OpenShift have no schema.
            let of_others = |line: &str| {
                ["monitoring.coreos.com/v1", "security.openshift.io/v1"]
                    .iter()
                    .any(|group| line.contains(group))
            };
            assert!(text.lines().all(of_others), "{values:?} {version}: {text}");
        }
    }
    // Validation can fail: an old schema rejects the new field.
    fs::write(&file, done(&mut template(&[], &["--kube-version", "1.30"]))).unwrap();
    let mut old = python();
    let (is_valid, text) =
        said(old.args(["-m", "kubernetes_validate", "--strict", "-k", "1.25"]).arg(&file));
    assert!(!is_valid && text.contains("appArmorProfile"), "{text}");
}

#[test]
fn contradictory_values_are_refused() {
    requires!(has("helm"));
    for (value, why) in [
        ("alerts.enabled=true", "alerts.runbooks, the address of the pages"),
        ("watch.extraArgs={--export=/x}", "--export=/x is set by the chart"),
        ("watch.extraArgs={--pin=/x}", "--pin=/x is set by the chart"),
        ("watch.api=always", "/watch/api"),
        ("pins=always", "/pins"),
        ("port=0", "/port"),
        ("alerts.runbooks=runbooks/", "/alerts/runbooks"),
        ("event.enabled=true", "'event' not allowed"),
        ("seccompProfile.type=Localhost", "missing property 'localhostProfile'"),
        ("seccompProfile.localhostProfile=a", "/seccompProfile/localhostProfile"),
        ("appArmorProfile.type=Localhost", "missing property 'localhostProfile'"),
        ("admissionPolicy.enabled=true,events.enabled=false", "events.enabled is false"),
    ] {
        let (is_taken, text) = said(&mut template(&[value], &[]));
        assert!(!is_taken && text.contains(why), "{value}: {text}");
    }
}

#[test]
fn the_plain_manifest_is_what_the_chart_makes() {
    requires!(has("helm"));
    let head = "# Written by `PODSTUCK_BLESS=1 cargo test -p podstuck-agent --test chart`, of the chart beside it.\n";
    let made = head.to_owned() + &done(&mut template(&[], &["--kube-version", "1.37"]));
    if std::env::var_os("PODSTUCK_BLESS").is_some() {
        fs::write(MANIFEST, &made).unwrap();
    }
    assert_eq!(fs::read_to_string(MANIFEST).unwrap_or_default(), made);
}

/// Writes the chart's alerts as a file of rules below this directory.
fn rules(top: &Path) {
    let made = done(&mut template(&ALL, &["--show-only", "templates/prometheusrule.yaml"]));
    let (_, spec) = made.split_once("\nspec:\n").unwrap();
    fs::write(top.join("rules.yaml"), spec).unwrap();
}

#[test]
fn alerts_fire_lead_to_the_causes_page_and_clear() {
    requires!(has("helm"), has("promtool"));
    let top = tempfile::tempdir().unwrap();
    rules(top.path());
    fs::write(top.path().join("test.yaml"), ALERTS).unwrap();
    let text = done(
        Command::new("promtool").args(["check", "rules", "rules.yaml"]).current_dir(top.path()),
    );
    let alerts = fs::read_to_string(top.path().join("rules.yaml")).unwrap();
    let alerts: Vec<&str> =
        alerts.lines().filter_map(|line| line.split_once("- alert: ")).map(|it| it.1).collect();
    assert!(text.contains(&format!("{} rules found", alerts.len())), "{text}");
    let is_tested = |alert: &&str| ALERTS.contains(&format!("alertname: {alert}\n"));
    assert!(alerts.iter().all(is_tested), "each has a test: {alerts:?}");
    done(Command::new("promtool").args(["test", "rules", "test.yaml"]).current_dir(top.path()));
}

/// A finding as the watch prints it, about a pod with this UID, whose name ends with it.
fn finding(pod: &str, state: &str) -> String {
    let line = json!({
        "schema": "podstuck/v1", "type": "finding", "time": "2026-11-28T13:13:05Z", "id": "nfs-server-unreachable",
        "instance": pod, "state": state, "severity": "warning", "certainty": "firm", "stage": "volumes",
        "blocks_deletion": true, "pod": {"uid": pod, "namespace": NAMESPACE, "name": format!("cart-{pod}")},
        "explanation": "The server does not answer.", "evidence": [], "remedies": [],
    });
    format!("{line}\n")
}

/// Needs no BPF: a file replaces the watch. The API server and the manifest's rights are real.
#[test]
fn of_pods_that_one_cause_holds_the_node_has_an_event() {
    if let Err(missing) = ControlPlane::is_possible() {
        return skip(format!("{missing:#}"));
    }
    let top = tempfile::tempdir().unwrap();
    let plane = ControlPlane::up(top.path()).unwrap();
    for object in [
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
    ] {
        plane.apply(&object).unwrap();
    }
    // kubectl 1.20 does not know the AppArmor field.
    plane.kubectl(&["apply", "--validate=false", "-f", MANIFEST]).unwrap();
    let kubeconfig = plane.account("kube-system", "podstuck-agent").unwrap();
    let kubeconfig = kubeconfig.to_str().unwrap();
    let may = |verb, what| {
        let asked = ["--kubeconfig", kubeconfig, "auth", "can-i", verb, what, "--all-namespaces"];
        plane.kubectl(&asked).is_ok_and(|answer| answer == "yes")
    };
    assert!(may("create", "events.events.k8s.io") && may("delete", "events.events.k8s.io"));
    assert!(!may("list", "pods") && !may("get", "secrets") && !may("list", "events.events.k8s.io"));

    let (lines, watch) = (top.path().join("lines"), top.path().join("watch"));
    fs::write(&lines, [finding("a", "new"), finding("b", "new")].concat()).unwrap();
    let script = format!("#!/bin/sh\nexec tail -n +1 -f {}\n", lines.display());
    fs::write(&watch, script).unwrap();
    fs::set_permissions(&watch, PermissionsExt::from_mode(0o755)).unwrap();
    let agent = Agent::with(top.path(), &watch, &["--kubeconfig", kubeconfig]);

    let described = || plane.kubectl(&["describe", "node", "n1"]).unwrap();
    let said = "2 pods are stuck by nfs-server-unreachable: shop/cart-a, shop/cart-b";
    let text = wait_for("Event about the node", || {
        Some(described()).filter(|text| text.contains("podstuck-agent"))
    });
    assert!(text.contains("NfsServerUnreachable") && text.contains(said), "{text}");
    let (_, metrics) = agent.get("/metrics");
    assert!(metrics.contains("podstuck_events_suppressed_total{why=\"refused\"} 0"), "{metrics}");

    let mut lines = File::options().append(true).open(&lines).unwrap();
    lines.write_all(finding("b", "cleared").as_bytes()).unwrap();
    wait_for("end of the Event", || (!described().contains("podstuck-agent")).then_some(()));
    assert_eq!(agent.end(Signal::SIGTERM), Some(0));
}
