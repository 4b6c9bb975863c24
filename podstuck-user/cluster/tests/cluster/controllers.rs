//! Controllers that do not run, and objects that the API server cannot read.

use std::fs;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::{Case, Workstation, is, released_by_what_is_printed, stuck::lease};

/// The store has an object of another kind under the key of a ConfigMap: the API server can neither list nor delete the
/// ConfigMaps of the namespace.
pub(super) fn an_object_that_cannot_be_read_keeps_its_namespace(at: &Workstation) {
    let server = at.plane.pid("kube-apiserver").unwrap();
    let words = fs::read_to_string(format!("/proc/{server}/cmdline")).unwrap();
    let mut words = words.split('\0').skip_while(|word| *word != "--etcd-servers");
    let store = words.nth(1).unwrap();
    let ask_store = |path: &str, body: &Value| {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), body.to_string()).unwrap();
        let body = file.path().to_str().unwrap();
        at.kubectl(&["--server", store, "create", "--raw", path, "--filename", body]);
    };
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let key = bytes("/registry/configmaps/damaged/left");
    at.kubectl(&["create", "namespace", "damaged"]);
    at.kubectl(&["create", "configmap", "left", "--namespace=damaged"]);
    let other = r#"{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"left"}}"#;
    ask_store("/v3/kv/put", &json!({"key": key, "value": bytes(other)}));
    at.delete(&["namespace", "damaged"]);
    let ask = ["ns/damaged"];
    let cause = || at.json(&ask)["items"][0]["causes"].clone();
    let is_firm = || {
        let causes = cause();
        (&causes[0]["id"], &causes[0]["certainty"])
            == (&json!("stored-object-unreadable"), &json!("firm"))
    };
    at.plane.wait_for("the namespace to be overdue", is_firm).unwrap();
    let (text, status) = at.podstuck(&ask);
    println!("$ kubectl podstuck {}\n{text}", ask.join(" "));
    assert_eq!((status, cause().as_array().unwrap().len()), (1, 1), "{text}");
    assert!(
        text.contains("the list of configmaps in damaged fails with the same message"),
        "{text}"
    );
    ask_store("/v3/kv/deleterange", &json!({"key": key}));
    at.wait_until_gone(&["namespace", "damaged"]);
}

/// kube-controller-manager runs without the garbage collector of pods and without the DaemonSet controller, then not at
/// all, and is started again with both.
pub(super) fn controllers_that_do_not_run_are_named(at: &Workstation) {
    let until = |what: &str, ask: &[&str], cause: &str| {
        let is_firm = || {
            let document = at.json(ask);
            let first = &document["items"][0]["causes"][0];
            (&first["id"], &first["certainty"]) == (&json!(cause), &json!("firm"))
        };
        at.plane.wait_for(what, is_firm).unwrap();
    };
    let ask = ["ds/agent", "-n", "operators"];
    until("a minute after the change", &ask, "daemonset-not-synced");
    let (text, status) = at.podstuck(&ask);
    println!("$ kubectl podstuck {}\n{text}", ask.join(" "));
    assert!(status == 1 && text.contains("status.observedGeneration 0"), "{text}");
    let document = at.json(&ask);
    let remedies = document["items"][0]["causes"][0]["remedies"].as_array().unwrap();
    for command in remedies.iter().filter_map(|it| it["command"].as_str()) {
        at.run(command).unwrap();
    }
    until("two minutes after the deletion", &["edge/stranded"], "node-object-gone");
    released_by_what_is_printed(
        at,
        &Case {
            ask: &["edge/stranded"],
            cause: "node-object-gone",
            gone: &["pod", "stranded", "--namespace=edge"],
        },
    );
    let mut words = at.plane.kill("kube-controller-manager").unwrap();
    // As it stays where the replica that held it was killed.
    at.apply(vec![lease("kube-system", "kube-controller-manager", "control-plane-1_1")]);
    at.kubectl(&["delete", "pod", "late-user", "--namespace=edge", "--force", "--grace-period=0"]);
    let late = ["pvc/late", "-n", "edge"];
    let (text, status) = at.podstuck(&late);
    println!("$ kubectl podstuck {}\n{text}", late.join(" "));
    assert_eq!(status, 1, "{text}");
    is(&at.json(&late), &[("control-plane-without-leader", "firm"), ("object-finalizer", "firm")]);
    is(&at.json(&ask), &[("control-plane-without-leader", "firm")]);
    for word in &mut words {
        *word = word.replace("--leader-elect=false", "--leader-elect=true");
        *word = word.replace("--controllers=", "--controllers=daemonset,podgc,");
    }
    for (option, value) in [
        ("resource-lock", "leases"),
        ("lease-duration", "5s"),
        ("renew-deadline", "4s"),
        ("retry-period", "1s"),
    ] {
        words.push(format!("--leader-elect-{option}={value}"));
    }
    at.plane.start_again("kube-controller-manager", &words).unwrap();
    at.wait_until_gone(&["pvc", "late", "--namespace=edge"]);
    at.plane.wait_for("the DaemonSet controller", || at.podstuck(&ask).1 == 0).unwrap();
}
