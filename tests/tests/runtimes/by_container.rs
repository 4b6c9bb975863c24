//! One container is asked about, by what is left of it, after the attempt to remove it has failed.

use std::{
    env, fs,
    process::{Command, Output},
    thread,
    time::Duration,
};

use podstuck_tests::{diagnose, of_type, run};
use serde_json::Value;

use super::{Ending, Runtimes, chattr, obey_nth, output};

/// The answer about a container, and the exit status. `PODSTUCK_LATE_BY=300` waits for 300 seconds before: by hand.
pub(crate) fn ask(container: &str, more: &[&str]) -> (Value, Option<i32>) {
    let late_by = env::var("PODSTUCK_LATE_BY").ok().map_or(0, |seconds| seconds.parse().unwrap());
    thread::sleep(Duration::from_secs(late_by));
    let asked = [["--container", container].as_slice(), more].concat();
    let (lines, status) = diagnose(&asked).finish();
    let answer = of_type(&lines, "diagnosis").last().copied().cloned();
    (answer.unwrap(), status.code())
}

#[test]
fn an_immutable_file_is_found_in_what_is_left_of_it() {
    let Some(runtimes) = Runtimes::start() else { return };
    runtimes.run_docker("kept");
    let id = runtimes.inspect("kept", "{{.Id}}");
    output(runtimes.docker(&["exec", "kept", "sh", "-c", "mkdir /d; touch /d/f"]));
    let layer = runtimes.inspect("kept", "{{.GraphDriver.Data.UpperDir}}");
    let (answer, status) = ask(&id[..12], &["--timeout", "4s"]);
    let stage = |answer: &Value| answer["containers"][0]["stage"].clone();
    assert_eq!((stage(&answer), status), ("running".into(), Some(5)), "{answer:#}");
    assert_eq!(answer["target"], format!("container {id} (kept)"));

    chattr("+i", &format!("{layer}/d/f"));
    assert!(!runtimes.docker(&["rm", "-f", "kept"]).output().unwrap().status.success());
    let (answer, status) = ask("kept", &["--timeout", "60s"]);
    assert_eq!((stage(&answer), status), ("layer".into(), Some(1)), "{answer:#}");
    let found = &answer["causes"][0];
    assert_eq!(
        (&found["id"], &found["certainty"]),
        (&"immutable-attribute".into(), &"firm".into())
    );
    assert_eq!(
        (&found["container"], &found["container_name"]),
        (&id.clone().into(), &"kept".into())
    );
    assert_eq!(found["call"]["path"], format!("{layer}/d/f"));
    obey_nth(found, 0);
    runtimes.obey(found, 1);
    assert!(!fs::exists(layer).unwrap());
    let said = run(&["diagnose", "--container", &id]);
    assert_eq!(said.status.code(), Some(2), "{said:?}");
}

#[test]
fn who_holds_its_root_file_system_is_found() {
    let Some(runtimes) = Runtimes::start() else { return };
    let (uid, id) = ("5e0c8a1e-7a35-4c52-8a5b-2f4f0b1d9c02", "c2".repeat(32));
    let root = runtimes.run_ctr_in_pod(uid, &id);
    let plain = runtimes.run_ctr("plain");
    let mut holders = [&root, &plain].map(|root| {
        let mut holder = Command::new("sleep");
        Ending::start(holder.arg("3600").current_dir(root))
    });
    for (name, pod) in [(id.as_str(), Some(uid)), ("plain", None)] {
        runtimes.kill_ctr(name);
        assert!(!runtimes.ctr(&["task", "delete", name]).output().unwrap().status.success());
        let (answer, _) = ask(name, &["--timeout", "60s"]);
        assert_eq!(answer["containers"][0]["stage"], "mounted", "{answer:#}");
        let found = &answer["causes"][0];
        assert_eq!((&found["id"], &found["container"]), (&"shim-rootfs-busy".into(), &name.into()));
        assert_eq!(found["pod"]["uid"].as_str(), pod, "{found:#}");
        let holder = holders[usize::from(pod.is_none())].id();
        let evidence = found["evidence"].to_string();
        assert!(evidence.contains(&format!("pid {holder}")), "{evidence}");
        assert_eq!(
            answer["causes"].as_array().unwrap().len(),
            1,
            "the other one is not asked about"
        );
        obey_nth(found, 0);
        runtimes.delete_ctr_again(name);
    }
    holders.iter_mut().for_each(|holder| drop(holder.wait()));
}

#[test]
fn an_unknown_container_is_an_error_that_names_the_searched_directory() {
    let Some(runtimes) = Runtimes::start() else { return };
    runtimes.run_docker("first");
    let data = runtimes.top().join("data/docker");
    for unknown in ["0123456789ab-nobody", ""] {
        let Output { status, stderr, .. } = run(&["diagnose", "--container", unknown]);
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(2), "{said}");
        assert!(said.contains("no container") && said.contains(data.to_str().unwrap()), "{said}");
    }
}
