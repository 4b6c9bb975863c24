//! The wall clock is set while a pod is stuck: forward by an hour, back by two. Only the agent and its watch see it,
//! through libfaketime (Debian: `libfaketime`). By hand, in four minutes:
//! `cargo test -p podstuck-agent --test agent the_clock -- --ignored --nocapture`.

use std::{fs, path::Path, process::Command, thread, time::Duration};

use nix::sys::signal::Signal;
use podstuck_test_node::ControlPlane;
use podstuck_tests::{lab, requires, root_and_btf};
use serde_json::{Value, json};

use super::{
    NAMESPACE, command,
    common::{Agent, wait_for},
    events, info,
};

const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

fn has_library() -> Result<(), &'static str> {
    if Path::new(LIBRARY).exists() {
        Ok(())
    } else {
        Err("no libfaketime: `apt-get install libfaketime`")
    }
}

#[test]
#[ignore = "by hand: four minutes"]
fn the_clock_is_set_and_nothing_is_doubled_or_lost() {
    requires!(root_and_btf(), has_library());
    let top = tempfile::tempdir().unwrap();
    let plane = ControlPlane::up(top.path()).unwrap();
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    plane.apply(&namespace).unwrap();
    let clock = top.path().join("clock");
    let set = |offset: &str| fs::write(&clock, offset).unwrap();
    set("+0");
    let (pod, ready) = lab("immutable-attribute", &[]);
    let [uid, root] = ["pod_uid", "kubelet_root"].map(|key| ready[key].as_str().unwrap());
    let start = || {
        let environment = [
            ("LD_PRELOAD", LIBRARY),
            ("FAKETIME_TIMESTAMP_FILE", clock.to_str().unwrap()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("FAKETIME_CACHE_DURATION", "1"),
        ];
        Agent::start_with(top.path(), &plane, root, &environment)
    };
    let agent = start();
    pod.resume();
    let first = wait_for("Event", || events(&plane, uid).pop()).1;
    let is_same = |event: &Value| event["metadata"]["uid"] == first["metadata"]["uid"];
    for offset in ["+3600", "-3600"] {
        set(offset);
        thread::sleep(Duration::from_secs(75));
        let now = events(&plane, uid);
        assert!(matches!(&now[..], [(_, event)] if is_same(event)), "{now:#?}");
        assert_eq!(agent.get("/healthz").0, 200);
    }
    let (_, metrics) = agent.get("/metrics");
    assert!(info(&metrics).is_some(), "{metrics}");
    let own = metrics.lines().filter(|line| line.starts_with("podstuck_process_"));
    println!("measured: {}", own.collect::<Vec<_>>().join(", "));
    assert!(metrics.contains("podstuck_events_written_total 1\n"), "{metrics}");
    assert!(metrics.contains("podstuck_api_errors_total 0\n"), "{metrics}");

    // The next agent renews the Event, by a clock that is an hour late.
    agent.end(Signal::SIGKILL);
    let agent = start();
    let renewed = wait_for("renewal", || {
        events(&plane, uid).pop().filter(|(_, event)| event["series"]["count"] == 2)
    });
    assert!(is_same(&renewed.1), "{renewed:#?}");
    let times = [&first["eventTime"], &renewed.1["series"]["lastObservedTime"]];
    let times = times.map(|time| time.as_str().unwrap().parse::<jiff::Timestamp>().unwrap());
    assert!(times[1] < times[0], "the clock was not set: {times:?}");

    set("+0");
    let released = Command::new("sh").args(["-c", &command(&agent, uid)]).status().unwrap();
    assert!(released.success());
    wait_for("release", || {
        let now = events(&plane, uid);
        matches!(&now[..], [(reason, _)] if reason == "Released").then_some(())
    });
    assert_eq!(agent.end(Signal::SIGTERM), Some(0));
    let (lines, status) = pod.stop();
    assert!(status.success(), "{lines:#?}");
}
