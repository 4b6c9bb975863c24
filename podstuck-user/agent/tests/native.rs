//! The agent's metrics of a node with 200 pods, with and without native histograms, as real Prometheus servers store them.
//! The calls are made up, so their true durations are known; the agent and the form of its watch's files are real.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;
#[path = "agent/prometheus.rs"]
mod prometheus;

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use common::{Agent, CHART, has, wait_for};
use nix::{errno::Errno, sys::signal::Signal};
use podstuck_common::{bucket::bucket_of, count::CallTotals};
use podstuck_exposition::message::MetricFamily;
use podstuck_model::{
    call::{Call, Outcome},
    identity::Component,
    series::Span,
    totals::{NodeKey, Totals},
};
use podstuck_show::export::{Snapshot, replace};
use podstuck_testing::requires;
use prometheus::Prometheus;
use prost::Message;
use serde_json::{Value, json};

/// Pods of the node. Each is deleted once in a round.
const PODS: u64 = 200;
/// Of these, pods that are stuck.
const STUCK: u64 = 10;
/// What Prometheus 2.42 asks for with native histograms.
const NATIVE: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

/// What is called, with which outcome.
type Called = &'static [(Call, u16)];

/// The calls of a deletion on a node with containerd, by component and plugin.
const CALLS: [(Component, &[&str], Called); 8] = {
    use Call::{Rmdir, Umount2, Unlinkat, UnlinkatDir};
    use Component::{Containerd, ContainerdShim, CsiDriver, Kubelet, Runc, UmountHelper};
    const OK: u16 = 0;
    // Go's `RemoveAll` calls unlinkat first, and removes a directory when that fails.
    const REMOVE_ALL: [(Call, u16); 4] = [
        (Unlinkat, OK),
        (Unlinkat, Errno::EISDIR as u16),
        (UnlinkatDir, OK),
        (UnlinkatDir, Errno::ENOTEMPTY as u16),
    ];
    const IN_MEMORY: [&str; 2] = ["kubernetes.io/secret", "kubernetes.io/projected"];
    const ON_DISK: [&str; 3] = ["kubernetes.io/empty-dir", "kubernetes.io/configmap", ""];
    [
        (Kubelet, &ON_DISK, &REMOVE_ALL),
        (Kubelet, &IN_MEMORY, &[(Unlinkat, Errno::EISDIR as u16), (UnlinkatDir, OK)]),
        (
            Kubelet,
            &["kubernetes.io/csi"],
            &[(Unlinkat, OK), (Unlinkat, Errno::EISDIR as u16), (UnlinkatDir, OK)],
        ),
        (UmountHelper, &["kubernetes.io/secret", "kubernetes.io/projected"], &[(Umount2, OK)]),
        (
            CsiDriver,
            &["kubernetes.io/csi"],
            &[(Umount2, OK), (Umount2, Errno::EINVAL as u16), (Rmdir, OK)],
        ),
        (Containerd, &["container-bundle", "container-layer"], &REMOVE_ALL),
        (
            ContainerdShim,
            &["container-bundle"],
            &[(Umount2, OK), (Umount2, Errno::EINVAL as u16), (Unlinkat, OK)],
        ),
        (Runc, &["container-bundle"], &[(Unlinkat, OK), (UnlinkatDir, OK)]),
    ]
};

/// Durations of each kind of call in a round: evenly spread over eight powers of two on the logarithmic scale.
const DURATIONS: u32 = 63;

fn duration(call: Call, at: u32) -> u64 {
    let shortest = if call == Call::Umount2 { 200_000.0 } else { 20_000.0 };
    (shortest * (8.0 * f64::from(at) / f64::from(DURATIONS)).exp2()) as u64
}

fn counted(rounds: u64) -> Totals {
    let mut totals = Totals::default();
    for (component, plugins, calls) in CALLS {
        for (plugin, (call, outcome)) in
            plugins.iter().flat_map(|it| calls.iter().map(move |call| (it, call)))
        {
            for on_target in [true, false] {
                let (span, outcome) = (Span::Call(*call), Outcome(*outcome));
                let key = NodeKey { span, outcome, component, plugin: (*plugin).into(), on_target };
                for ns in (0..DURATIONS).map(|at| duration(*call, at)) {
                    totals.add(key.clone(), bucket_of(ns), CallTotals::of_equal(rounds * PODS, ns));
                }
            }
        }
    }
    totals
}

/// Writes what a watch writes.
fn write(directory: &Path, rounds: u64) {
    let snapshot = Snapshot {
        by_target: None,
        totals: &counted(rounds),
        findings: &[],
        completeness: &Default::default(),
        window: Duration::from_secs(rounds),
        start: jiff::Timestamp::now(),
    };
    for file in snapshot.files() {
        let (name, bytes) = file.unwrap();
        replace(directory, name, &bytes).unwrap();
    }
}

/// A program in place of the watch, which finds stuck pods.
fn watch(top: &Path) -> std::path::PathBuf {
    let finding = |pod: u64| {
        json!({
            "type": "finding", "id": "immutable-attribute", "state": "new", "severity": "warning",
            "certainty": "firm", "stage": "volumes", "blocks_deletion": true, "explanation": "",
            "pod": {"uid": format!("u{pod}"), "namespace": "shop", "name": format!("cart-7d4b9c6f5-{pod:05}")},
        })
    };
    let lines: String = (0..STUCK).map(|pod| format!("{}\n", finding(pod))).collect();
    let program = top.join("watch");
    fs::write(&program, format!("#!/bin/sh\ncat <<'E'\n{lines}E\nexec sleep 1000\n")).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    program
}

fn decoded(mut page: &[u8]) -> Vec<MetricFamily> {
    let mut families = Vec::new();
    while !page.is_empty() {
        families.push(MetricFamily::decode_length_delimited(&mut page).unwrap());
    }
    families
}

/// The only value of a query.
fn value(prometheus: &Prometheus, query: &str) -> f64 {
    let values = wait_for(query, || Some(prometheus.query(query)).filter(|it| !it.is_empty()));
    let value = values[0].rsplit_once(" => ").unwrap().1.split(' ').next().unwrap();
    value.parse().unwrap()
}

#[test]
fn native_histograms_are_what_the_classic_ones_are_with_the_documented_error() {
    requires!(has("promtool"), has("prometheus"));
    let top = tempfile::tempdir().unwrap();
    let export = top.path().join("run/export");
    let agent = Agent::with(top.path(), &watch(top.path()), &["--no-events"]);
    wait_for("directory", || export.parent().unwrap().is_dir().then_some(()));
    fs::create_dir_all(&export).unwrap();
    write(&export, 1);
    let [classic, native] = [&[][..], &["native-histograms"]]
        .map(|features| Prometheus::start(top.path(), &agent, None, features));

    let text = wait_for("counts and findings", || {
        let text = agent.get("/metrics").1;
        let has = |name: &str| text.lines().any(|line| line.starts_with(name));
        (has("podstuck_calls_total{") && has("podstuck_finding_info{")).then_some(text)
    });
    let of_watch = fs::read_to_string(export.join("node-metrics.txt")).unwrap();
    assert!(text.starts_with(&of_watch), "{text}");
    let mut check = Command::new("promtool");
    let check = check.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.spawn().unwrap();
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let checked = check.wait_with_output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));

    let page = agent.get_as("/metrics", NATIVE).1;
    let families = decoded(&page);
    let names: BTreeSet<_> = families.iter().map(|family| family.name.as_str()).collect();
    let of_text = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    assert_eq!(names, of_text.collect());
    let histograms: Vec<_> =
        families.iter().flat_map(|it| &it.metric).filter_map(|it| it.histogram.as_ref()).collect();
    for it in &histograms {
        assert_eq!(it.native().values().sum::<u64>() + it.zero_count, it.count);
        assert_eq!((it.count, it.schema, it.buckets.len()), (PODS * u64::from(DURATIONS), 3, 7));
        assert!(it.created.is_some());
    }
    // As Prometheus asks for it.
    let packed = agent.get_as("/metrics", "text/plain\r\nAccept-Encoding: gzip").1;
    println!(
        "measured: {} histograms; {} bytes of text, {} of it packed; {} bytes of protobuf",
        histograms.len(),
        text.len(),
        packed.len(),
        page.len()
    );

    for rounds in 2..30 {
        write(&export, rounds);
        thread::sleep(Duration::from_secs(1));
    }
    let calls = wait_for("all calls", || {
        let query = "histogram_count(sum(podstuck_call_duration_seconds))";
        let calls = value(&native, query);
        (calls as u64 == 29 * PODS * u64::from(DURATIONS) * histograms.len() as u64)
            .then_some(calls)
    });
    assert_eq!(value(&classic, "sum(podstuck_call_duration_seconds_count)"), calls);
    for (call, name) in [(Call::Umount2, "umount2"), (Call::Unlinkat, "unlinkat")] {
        for quantile in [0.5, 0.9, 0.99] {
            let rank = (quantile * f64::from(DURATIONS)).ceil() as u32;
            let exact = duration(call, rank - 1) as f64 / 1e9;
            let of = format!("{{syscall=\"{name}\"}}[30s]");
            let [of_classic, of_native] = [
                (
                    &classic,
                    format!("sum by (le) (rate(podstuck_call_duration_seconds_bucket{of}))"),
                ),
                (&native, format!("sum(rate(podstuck_call_duration_seconds{of}))")),
            ]
            .map(|(at, rate)| {
                value(at, &format!("histogram_quantile({quantile}, {rate})")) / exact
            });
            println!(
                "measured: {name} {quantile}: native {of_native:.3}, classic {of_classic:.3} of the exact value"
            );
            assert!(of_native > 0.878 && of_native < 1.108, "{of_native}");
            assert!(of_classic > 1.0 / 8.0 && of_classic < 8.0, "{of_classic}");
        }
    }
    let dashboard = fs::read_to_string(format!("{CHART}/files/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let of_durations = targets
        .map(|target| target["expr"].as_str().unwrap().replace("$__rate_interval", "30s"))
        .filter(|query| query.contains("podstuck_call_duration_seconds"));
    let of_durations: Vec<_> = of_durations.collect();
    assert_eq!(of_durations.len(), 2, "{of_durations:?}");
    for (name, prometheus) in [("classic", &classic), ("native", &native)] {
        for query in &of_durations {
            assert!(
                !prometheus.query(query).is_empty(),
                "no data of {query} with {name} histograms"
            );
        }
        let series = value(prometheus, "count({__name__=~\"podstuck_.+\"})");
        println!("measured: {series} series with {name} histograms");
        assert!(series <= 600.0, "{name}: {series}");
    }
    assert!(page.len() <= 60_000 && packed.len() <= 60_000, "{} {}", page.len(), packed.len());
    drop((classic, native));
    assert_eq!(agent.end(Signal::SIGTERM), Some(0));
}
