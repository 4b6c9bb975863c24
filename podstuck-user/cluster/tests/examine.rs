//! `kubectl podstuck --examine` against an API server stub that gives prepared answers and records the requests. The
//! same with a real API server and a real kubelet is in `tests/tests/on_node/plugin.rs`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "examine/stub.rs"]
mod stub;

use std::{
    env, fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_testing::skip;
use serde_json::{Value, json};
use stub::{Cluster, FINALIZER, LIST, LOG, lines, overdue, pending};

#[test]
fn the_answer_is_shown_and_the_pod_is_removed() {
    let cluster = Cluster::new();
    let (status, out, error) = cluster.run(&["shop/cart-0", "--", "--brief"]);
    assert_eq!((status, error.as_str()), (Some(1), ""), "{out}");
    assert!(out.starts_with("Pod shop/cart-0 was deleted ") && out.ends_with(LOG), "{out}");
    let pod = cluster.created();
    assert_eq!(pod["spec"]["nodeName"], "worker-3");
    let container = &pod["spec"]["containers"][0];
    let words = ["diagnose", "--host-root", "/host", "--output", "text"];
    let more = ["--pod", "shop/cart-0", "--pod-json", "/record/pod.json", "--brief"];
    assert_eq!(container["args"], json!([&words[..], &more[..]].concat()));
    assert_eq!(
        container["image"],
        format!("docker.io/library/podstuck:{}", env!("CARGO_PKG_VERSION"))
    );
    // The fields that matter for the deletion are passed unchanged; all others are left out.
    let record = pod["metadata"]["annotations"]["podstuck-record"].as_str().unwrap();
    let record: Value = serde_json::from_str(record).unwrap();
    assert_eq!(record["metadata"]["finalizers"], json!([FINALIZER]));
    assert!(!pod.to_string().contains("word"), "{pod}");
    assert!(!cluster.at("pwned").exists());
    assert_eq!(cluster.removed(), 1);
}

#[test]
fn what_the_api_server_decides_needs_no_node() {
    let cluster = Cluster::with(|state| {
        state.stuck[0]["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    });
    let (status, out, _) = cluster.run(&["shop/cart-0"]);
    assert!(status == Some(1) && out.contains("pod-finalizer (certain)"), "{out}");
    assert!(
        !cluster.requests().iter().any(|it| it.starts_with("POST")),
        "{:?}",
        cluster.requests()
    );
    // Unless the user names the node.
    cluster.state.lock().unwrap().log = lines();
    let (status, out, _) = cluster.run(&["shop/cart-0", "--node", "worker-9"]);
    let has_both = out.contains("\n1. pod-finalizer (certain)")
        && out.contains("\n2. volume-held-by-host-process (certain)");
    assert!(status == Some(1) && has_both, "{out}");
    assert_eq!(cluster.created()["spec"]["nodeName"], "worker-9");
}

#[test]
fn the_causes_of_both_sides_are_one_list_in_the_order_of_their_release() {
    let cluster = Cluster::with(|state| state.log = lines());
    let (status, out, error) = cluster.run(&["shop/cart-0"]);
    assert_eq!((status, error.as_str()), (Some(1), ""), "{out}");
    let args = &cluster.created()["spec"]["containers"][0]["args"];
    assert_eq!(args.as_array().unwrap()[3..5], [json!("--output"), json!("json")]);
    let expected = [
        "Pod shop/cart-0 was deleted ",
        "\nWhat waits for what\n  the API server must remove the record, and waits for kubelet: it is overdue [API]",
        "\n  sleep must release the volume: its working directory [node: /proc/7/cwd]\n",
        "\n1. volume-held-by-host-process (certain) of Pod shop/cart-0: sleep (pid 7)\n  It is busy.",
        "\n    - umount2 failed: …/volumes/x [node: syscall probe]",
        "\n         kill 7\n       where: worker-3, as root\n       risk: ends it\n       also affects pod a",
        "\n  Not stacked-mounts: there is one mount",
        "\n2. pod-finalizer (certain, later) of Pod shop/cart-0: the finalizer x.example.com/",
        "\n    - something is left [node: samples of the node]",
        "names the cause a-newer-cause, which this version",
        "\n  - a note",
        "\n  - 2026-01-01T00:00:00Z: device busy [node: log of kubelet]",
        "\n  - look at it",
        "\n  - 2 calls met a full table: not followed or not counted\n",
    ];
    let mut rest = out.as_str();
    for words in expected {
        let (_, after) = rest.split_once(words).unwrap_or_else(|| panic!("{words:?} in {out}"));
        rest = after;
    }
    let (_, document, _) = cluster.run(&["shop/cart-0", "-o", "json"]);
    let document: Value = serde_json::from_str(&document).unwrap();
    let rank = |cause: &str, certainty: &str, later: bool, found_by: &str| json!({"cause": cause, "certainty": certainty, "later": later, "found_by": found_by});
    let both = [
        rank("volume-held-by-host-process", "firm", false, "node"),
        rank("pod-finalizer", "firm", true, "both"),
    ];
    assert_eq!(document["items"][0]["ranking"], json!(both));
    let (_, list, _) = cluster.run(&["--examine"]);
    let one = "\n== shop/cart-0 on worker-3 ==\nPod shop/cart-0 was deleted ";
    assert!(list.contains(one) && list.contains("\n1. volume-held-by"), "{list}");
}

#[test]
fn a_pod_that_the_api_server_has_no_more_is_examined_where_its_user_says() {
    let cluster = Cluster::with(|state| state.stuck.clear());
    let (status, _, error) = cluster.run(&["shop/cart-0", "--examine"]);
    assert!(status == Some(2) && error.contains("has no Pod shop/cart-0"), "{error}");
    let (status, out, _) = cluster.run(&["shop/cart-0", "--examine", "--node=worker-3"]);
    assert_eq!((status, out.as_str()), (Some(1), LOG));
    let by_uid = ["--examine", "--node", "worker-3", "--pod-uid", "1-2"];
    let (status, out, _) = cluster.run(&by_uid);
    assert_eq!((status, out.as_str()), (Some(1), LOG));
    let args = cluster.created()["spec"]["containers"][0]["args"].clone();
    assert_eq!(
        args,
        json!(["diagnose", "--host-root", "/host", "--output", "text", "--pod-uid", "1-2"])
    );
    let before = cluster.requests().len();
    let (status, out, _) =
        cluster.run(&[&by_uid[..], &["--print", "--privileged", "--in", "tools"]].concat());
    let pod: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((status, &pod["metadata"]["namespace"]), (Some(0), &json!("tools")));
    assert_eq!(pod["spec"]["containers"][0]["securityContext"]["privileged"], true);
    assert_eq!(cluster.requests().len(), before);
}

#[test]
fn a_pod_that_does_not_start_is_explained_and_removed() {
    let rejected = json!({"phase": "Failed", "reason": "OutOfpods", "message": "none left"});
    for (state, expected) in [
        (
            pending("ErrImagePull", "no such image"),
            "worker-3 cannot start r.example/p:1: ErrImagePull: no such image",
        ),
        (rejected, "worker-3 does not run podstuck's own pod: OutOfpods none left"),
        (
            pending("ContainerCreating", ""),
            "does not start on worker-3 within 1 s: ContainerCreating",
        ),
    ] {
        let cluster = Cluster::with(|it| it.status = state);
        let (status, out, error) =
            cluster.run(&["shop/cart-0", "--examine", "--wait", "1", "--image", "r.example/p:1"]);
        assert_eq!(status, Some(3), "{out}{error}");
        assert!(error.contains(expected), "{expected}: {error}");
        assert_eq!(cluster.removed(), 1, "{expected}");
    }
    // A request that failed may have been fulfilled; one that was refused was not.
    for (code, is_removed) in [(403, false), (500, true)] {
        let cluster = Cluster::with(|it| it.refused = Some((code, "no host paths here")));
        let (status, _, error) = cluster.run(&["shop/cart-0", "--examine"]);
        assert!(status == Some(3) && error.contains("no host paths here"), "{error}");
        let last = cluster.requests().pop().unwrap();
        assert_eq!(last.starts_with("DELETE"), is_removed, "{code}: {last}");
    }
}

#[test]
fn the_pod_is_removed_at_once_when_it_is_asked_to_end() {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129), (Signal::SIGINT, 130)] {
        podstuck_testing::hear_terminal();
        let cluster = Cluster::with(|state| state.hangs = true);
        let mut podstuck = cluster.podstuck(&["shop/cart-0", "--examine"]);
        let mut podstuck = podstuck.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while !cluster.requests().iter().any(|it| it.contains("/log?")) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", cluster.requests());
            thread::sleep(Duration::from_millis(20));
        }
        kill(Pid::from_raw(podstuck.id().cast_signed()), signal).unwrap();
        assert_eq!(
            (podstuck.wait().unwrap().code(), cluster.removed()),
            (Some(code), 1),
            "{signal}"
        );
    }
}

#[test]
fn the_pod_is_removed_when_no_one_reads_the_answer_any_more() {
    let cluster = Cluster::with(|state| (state.hangs, state.log) = (true, LOG.repeat(9999)));
    let mut podstuck = cluster
        .podstuck(&["shop/cart-0", "--examine", "--", "-v"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut out = BufReader::new(podstuck.stdout.take().unwrap());
    out.read_line(&mut first).unwrap();
    drop(out);
    assert_eq!((podstuck.wait().unwrap().code(), cluster.removed()), (Some(6), 1), "{first}");
}

/// Two pods on one node and one on another.
fn three() -> Cluster {
    Cluster::with(|state| {
        state.stuck.push(overdue("cart-1", "worker-3"));
        state.stuck.push(overdue("cart-2", "worker-4"));
    })
}

#[test]
fn all_nodes_that_have_to_say_something_are_examined() {
    let cluster = three();
    let (status, out, error) =
        cluster.run(&["--examine", "--nodes-at-a-time", "1", "--", "--brief"]);
    assert_eq!((status, error.as_str()), (Some(1), ""), "{out}");
    for (pod, node) in [("cart-0", "worker-3"), ("cart-1", "worker-3"), ("cart-2", "worker-4")] {
        assert!(out.contains(&format!("\n== shop/{pod} on {node} ==\n{LOG}")), "{out}");
    }
    // One after the other: each pod is removed before the next is created.
    let changes = cluster.requests().into_iter().filter(|it| !it.starts_with("GET"));
    let verbs: Vec<String> = changes.map(|it| it.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(verbs, ["POST", "DELETE", "POST", "DELETE", "POST", "DELETE"]);
}

#[test]
fn no_node_is_examined_where_that_is_not_wanted() {
    let cluster = Cluster::new();
    for only in ["--no-examine", "--output=name"] {
        let (status, out, error) = cluster.run(&["shop/cart-0", only]);
        assert_eq!((status, error.as_str()), (Some(1), ""), "{out}");
    }
    let (_, out, _) = cluster.run(&["shop/cart-0", "--no-examine"]);
    assert!(out.contains("    kubectl podstuck shop/cart-0\n"), "{out}");
    assert!(cluster.requests().iter().all(|it| it.starts_with("GET")), "{:?}", cluster.requests());
}

#[test]
fn the_api_servers_answer_stands_where_its_node_cannot_be_examined() {
    let cluster = Cluster::with(|it| it.refused = Some((403, "no host paths here")));
    let (status, out, error) = cluster.run(&["shop/cart-0"]);
    assert!(out.starts_with("Pod shop/cart-0 was deleted "), "{out}");
    assert!(error.contains("no host paths here") && error.contains("--no-examine"), "{error}");
    assert_eq!(status, Some(1), "its finalizer is a cause");
}

#[test]
fn a_program_gets_one_document_with_what_the_nodes_say() {
    let cluster = three();
    cluster.state.lock().unwrap().log =
        "podstuck: a warning\n{\"type\":\"start\"}\n{\"type\":\"diagnosis\",\"firm\":true}\n{\"type\":\"summary\"}\n".into();
    let (status, out, error) = cluster.run(&["--examine", "-o", "json"]);
    assert_eq!((status, error.as_str()), (Some(1), ""), "{out}");
    let document: Value = serde_json::from_str(&out).unwrap();
    let mut examined = document["examined"].as_array().unwrap().clone();
    examined.sort_by_key(|it| it["pod"].to_string());
    let of = |name: &str, node: &str| {
        json!({"node": node, "pod": format!("shop/{name}"), "uid": null, "exit_status": 1,
            "diagnosis": {"type": "diagnosis", "firm": true}, "error": null})
    };
    let all = [of("cart-0", "worker-3"), of("cart-1", "worker-3"), of("cart-2", "worker-4")];
    assert_eq!(examined, all);
    let args = &cluster.created()["spec"]["containers"][0]["args"];
    assert_eq!(args.as_array().unwrap()[3..5], [json!("--output"), json!("json")]);
    // The document also contains the reason for a missing answer.
    let error = |out: &str| {
        let document: Value = serde_json::from_str(out).unwrap();
        document["examined"][0]["error"].as_str().unwrap().to_owned()
    };
    cluster.state.lock().unwrap().log = "podstuck: not root\n".into();
    let (_, out, _) = cluster.run(&["shop/cart-0", "-o", "json"]);
    assert_eq!(error(&out), "podstuck: not root");
    cluster.state.lock().unwrap().refused = Some((403, "no host paths here"));
    let (status, out, _) = cluster.run(&["shop/cart-0", "-o", "json"]);
    assert!(status == Some(1) && error(&out).contains("no host paths here"), "{out}");
}

#[test]
fn all_pods_of_its_own_are_removed_when_it_is_asked_to_end() {
    let cluster = three();
    cluster.state.lock().unwrap().hangs = true;
    let mut podstuck = cluster.podstuck(&["--examine"]);
    let mut podstuck = podstuck.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    let logs = || cluster.requests().iter().filter(|it| it.contains("/log?")).count();
    while logs() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", cluster.requests());
        thread::sleep(Duration::from_millis(20));
    }
    kill(Pid::from_raw(podstuck.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(podstuck.wait().unwrap().code(), Some(143));
    // No pod is left, and no third pod was created.
    let of = |verb: &str| cluster.requests().iter().filter(|it| it.starts_with(verb)).count();
    assert_eq!((of("POST"), of("DELETE")), (2, 2), "{:?}", cluster.requests());
}

/// What failed, on which object, why, and what to do next.
#[test]
fn what_a_new_user_gets_wrong_is_explained() {
    let cluster = Cluster::new();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = fs::read_to_string(cluster.at("kubeconfig")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["clusters"][0]["cluster"]["server"] = json!(format!("http://{closed}"));
    fs::write(cluster.at("closed"), config.to_string()).unwrap();
    for (args, words) in [
        (&["--kubeconfig", "none"][..], &["cannot use the kubeconfig", "No such file"][..]),
        (&["--context", "prod"], &["has no context \"prod\"", "kubectl config get-contexts"]),
        (
            &["--kubeconfig", "closed"],
            &["the API server http://", "refused", "kubectl get --raw /version"],
        ),
        (&["shop/Cart"], &["\"shop/Cart\" in", "NAMESPACE/NAME"]),
        (&["shop/none"], &["has no Pod shop/none", "another name or namespace"]),
    ] {
        let (status, out, error) = cluster.run(args);
        assert!(matches!(status, Some(2 | 3)) && out.is_empty(), "{args:?} {status:?} {out}");
        assert!(words.iter().all(|it| error.contains(it)), "{args:?}: {error}");
        assert!(error.matches("No such file").count() <= 1, "{error}");
    }
    let mut homeless = cluster.podstuck(&["-A"]);
    let homeless =
        homeless.env_remove("KUBECONFIG").env("HOME", cluster.folder.path()).output().unwrap();
    let error = String::from_utf8(homeless.stderr).unwrap();
    let words = [
        "no kubeconfig can be used",
        "/.kube/config",
        "No such file",
        "--kubeconfig or KUBECONFIG",
    ];
    assert!(words.iter().all(|it| error.matches(it).count() == 1), "{error}");
    let (_, _, error) = Cluster::with(|it| it.refused = Some((403, "no"))).run(&["shop/cart-0"]);
    assert!(error.contains("kubectl auth can-i create pods --namespace kube-system"), "{error}");
}

/// Number of requests that listed the pods.
fn lists(cluster: &Cluster) -> usize {
    cluster.requests().iter().filter(|request| **request == format!("GET {LIST}")).count()
}

/// As its priority and fairness does.
#[test]
fn a_request_that_the_api_server_defers_is_repeated_when_it_says() {
    let cluster = Cluster::with(|state| state.deferred = 2);
    let begin = Instant::now();
    let (status, out, error) = cluster.run(&["--no-examine", "-o", "json"]);
    assert_eq!(status, Some(1), "{out}{error}");
    // Retry-After is 1 s.
    assert!(begin.elapsed() >= Duration::from_secs(2), "{:?}", begin.elapsed());
    assert_eq!(lists(&cluster), 3);
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["items"][0]["name"], "cart-0");
    // Each attempt counts as a request.
    assert_eq!(document["requests"]["made"], cluster.requests().len());
}

#[test]
fn a_request_that_the_api_server_defers_again_and_again_is_said_not_to_be_read() {
    let cluster = Cluster::with(|state| state.deferred = usize::MAX);
    let (status, _, error) = cluster.run(&["--no-examine"]);
    assert_eq!((status, lists(&cluster)), (Some(3), 4), "{error}");
    assert!(error.contains("list pods in shop: too many requests"), "{error}");
}

/// kubectl 1.37, which `cargo xtask test` unpacks; Debian's calls the plugin in `cluster.rs`.
#[test]
fn a_newer_kubectl_calls_the_plugin() {
    let Some(kubectl) = env::var_os("PODSTUCK_NEWER_KUBECTL") else {
        return skip("there is no newer kubectl: `cargo xtask test` unpacks one");
    };
    let cluster = Cluster::new();
    let plugin = Path::new(env!("CARGO_BIN_EXE_kubectl-podstuck")).parent().unwrap();
    let ask = ["pod/cart-0", "-n", "shop", "--no-examine", "-o", "name"];
    let run = cluster.podstuck(&ask).output().unwrap();
    let mut called = Command::new(kubectl);
    called.arg("podstuck").args(ask).env("PATH", plugin);
    called.env("KUBECONFIG", cluster.at("kubeconfig"));
    let called = called.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&called.stdout), "pod/cart-0\n", "{called:?}");
    assert_eq!((called.stdout, called.status.code()), (run.stdout, run.status.code()));
}
