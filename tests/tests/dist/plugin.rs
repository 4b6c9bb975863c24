//! `kubectl podstuck` before a kubectl that answers as told and notes what it was asked. The same before a real API
//! server is in `on_node/plugin.rs`.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_tests::requires;
use serde_json::{Value, json};

use super::made::{VERSION, artefact, done, has, made, tool, unpacked};

/// Its answers are the files of the folder that it lies in.
const KUBECTL: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit 9
printf '%s\n' "$*" >>calls
say() { cat "$1" 2>/dev/null || :; }
case "$*" in
*"auth can-i"*) [ ! -e no-attach ] ;;
*"config view"*) printf shop ;;
*"create -f -"*) cat >created; [ ! -e refused ] || { echo "denied: $(cat refused)" >&2; exit 1; } ;;
*attach*)
    [ ! -e no-stream ] || { echo "unknown flag" >&2; exit 1; }
    cat >record
    exec sleep 60 ;;
*--tail=1*) say log ;;
*" logs "* | logs*) say log; [ ! -e hangs ] || exec sleep 60 ;;
*"delete pod"*) : ;;
*"jsonpath={.spec.nodeName}"*) say node ;;
*"-o json "*) say pod.json ;;
*jsonpath={.status.phase}*) say phase ;;
*waiting.reason*) say reason ;;
*waiting.message*) say message ;;
*terminated.exitCode*) say code ;;
*.status.reason*) say rejected ;;
*) echo "unexpected: $*" >&2; exit 9 ;;
esac
"#;

/// A hostile name: in a pod's record it is data.
const RECORD: &str =
    r#"{"metadata":{"name":"cart-0","annotations":{"x":"$(touch pwned) '\"` \\n"}}}"#;

struct Cluster {
    folder: tempfile::TempDir,
    plugin: tempfile::TempDir,
}

impl Cluster {
    /// One in which all goes well, and podstuck finds a cause.
    fn new() -> Self {
        let plugin = unpacked(&format!("kubectl-podstuck-{VERSION}.tar.gz"));
        let this = Self { folder: tempfile::tempdir().unwrap(), plugin };
        let kubectl = this.at("kubectl");
        fs::write(&kubectl, KUBECTL).unwrap();
        fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
        for (name, text) in [
            ("node", "worker-3"),
            ("pod.json", RECORD),
            ("phase", "Running"),
            ("log", "pod shop/cart-0: immutable-attribute\n"),
            ("code", "1"),
        ] {
            this.say(name, text);
        }
        this
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn say(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap_or_default()
    }

    fn plugin(&self, args: &[&str]) -> Command {
        let mut plugin = Command::new(self.plugin.path().join("kubectl-podstuck"));
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.folder.path().display());
        plugin.args(args).env("PATH", path).env_remove("PODSTUCK_IMAGE").stdin(Stdio::null());
        plugin
    }

    fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.plugin(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code(), text(stdout), text(stderr))
    }

    fn created(&self) -> Value {
        serde_json::from_str(&self.read("created")).unwrap()
    }

    /// How often the one pod that was described was removed.
    fn removed(&self) -> usize {
        let own = self.created()["metadata"]["name"].as_str().unwrap().to_owned();
        let calls = self.read("calls");
        calls.lines().filter(|call| call.starts_with(&format!("delete pod {own} "))).count()
    }
}

/// The pod that the plugin would make.
pub fn printed_pod(args: &[&str]) -> Value {
    let cluster = Cluster::new();
    let (status, out, error) = cluster.run(&[args, &["--print"]].concat());
    assert_eq!((status, error.as_str()), (Some(0), ""));
    assert!(!cluster.read("calls").contains("create -f"));
    serde_json::from_str(&out).unwrap()
}

#[test]
fn the_answer_is_shown_and_the_pod_is_removed() {
    requires!(made(), has("sh"));
    let cluster = Cluster::new();
    let (status, out, error) = cluster.run(&["shop/cart-0", "--", "--brief"]);
    assert_eq!((status, error.as_str()), (Some(1), ""));
    assert_eq!(out, "pod shop/cart-0: immutable-attribute\n");
    let pod = cluster.created();
    assert_eq!(pod["spec"]["nodeName"], "worker-3");
    let container = &pod["spec"]["containers"][0];
    let words = ["diagnose", "--host-root", "/host", "--output", "text"];
    let more = ["--pod", "shop/cart-0", "--pod-json", "-", "--brief"];
    assert_eq!(container["args"], json!([&words[..], &more[..]].concat()));
    assert_eq!(container["image"], format!("docker.io/library/podstuck:{VERSION}"));
    // The least that it needs.
    let security = &container["securityContext"];
    assert!(security["privileged"].is_null() && security["allowPrivilegeEscalation"] == false);
    assert_eq!(security["readOnlyRootFilesystem"], true);
    assert!(pod["spec"]["hostNetwork"].is_null());
    for mount in container["volumeMounts"].as_array().unwrap() {
        assert_eq!(mount["readOnly"], true, "{mount}");
    }
    // The record has come through as it was, by nobody's shell.
    let begun = Instant::now();
    while cluster.read("record").trim_end() != RECORD && begun.elapsed() < Duration::from_secs(5) {
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(cluster.read("record").trim_end(), RECORD);
    assert!(!cluster.at("pwned").exists());
    assert_eq!(cluster.removed(), 1);
}

#[test]
fn options_reach_the_tool_word_for_word() {
    requires!(made(), has("sh"));
    let hostile = ["--path", "/a b/\"c\"\\d$(touch pwned)`'*", "--api=never", ""];
    let pod = printed_pod(&["--node=w-1", "--pod-uid", "1-2"]);
    let words = ["diagnose", "--host-root", "/host", "--output", "text", "--pod-uid", "1-2"];
    assert_eq!(pod["spec"]["containers"][0]["args"], json!(words));
    assert_eq!(pod["spec"]["containers"][0]["stdin"], false);
    let cluster = Cluster::new();
    let args = [&["--print", "--node", "w-1", "--pod-uid", "1-2", "--"], &hostile[..]].concat();
    let (status, out, _) = cluster.run(&args);
    assert_eq!(status, Some(0));
    let pod: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(pod["spec"]["containers"][0]["args"], json!([&words[..], &hostile[..]].concat()));
    assert!(!cluster.at("pwned").exists());
}

#[test]
fn kubectls_own_options_go_to_each_of_its_calls() {
    requires!(made(), has("sh"));
    let cluster = Cluster::new();
    let (status, ..) = cluster.run(&["cart-0", "--context", "my cluster", "--as=me"]);
    assert_eq!(status, Some(1));
    let calls = cluster.read("calls");
    assert!(calls.lines().all(|call| call.starts_with("--context=my cluster --as=me ")), "{calls}");
    // Its namespace is the context's.
    assert!(calls.contains("get pod cart-0 -n shop -o json"), "{calls}");
}

#[test]
fn what_names_no_pod_is_wrong_usage_and_makes_nothing() {
    requires!(made(), has("sh"));
    let cases: [&[&str]; 9] = [
        &[],
        &["a", "b"],
        &["shop/$(reboot)"],
        &["shop/a b"],
        &["shop/a", "-n", "other"],
        &["--pod-uid", "1"],
        &["--no-such-option"],
        &["shop/a", "--wait", "soon"],
        &["shop/a", "--", "--path", "a\nb"],
    ];
    for args in cases {
        let cluster = Cluster::new();
        let (status, out, error) = cluster.run(args);
        assert_eq!((status, out.as_str()), (Some(2), ""), "{args:?}: {error}");
        assert!(!error.is_empty(), "{args:?}");
        assert!(!cluster.read("calls").contains("create -f"), "{args:?}");
    }
    let cluster = Cluster::new();
    cluster.say("pod.json", "");
    let (status, _, error) = cluster.run(&["shop/gone"]);
    assert!(status == Some(2) && error.contains("there is no pod shop/gone"), "{error}");
}

#[test]
fn a_pod_that_does_not_start_is_explained_and_removed() {
    requires!(made(), has("sh"));
    let cases = [
        (
            &[("phase", "Pending"), ("reason", "ErrImagePull"), ("message", "not found")][..],
            "not found",
        ),
        (&[("phase", "Failed"), ("code", ""), ("rejected", "OutOfpods none left")], "none left"),
        (&[("phase", "Pending"), ("reason", "ContainerCreating")], "ContainerCreating"),
        (&[("refused", "no host paths here")], "no host paths here"),
    ];
    for (answers, told) in cases {
        let cluster = Cluster::new();
        for (name, text) in answers {
            cluster.say(name, text);
        }
        let (status, out, error) = cluster.run(&["shop/cart-0", "--wait", "1"]);
        assert_eq!((status, out.as_str()), (Some(3), ""), "{error}");
        assert!(error.contains(told), "{told}: {error}");
        assert_eq!(cluster.removed(), 1, "{told}");
    }
}

#[test]
fn without_the_right_to_attach_it_asks_without_the_record() {
    requires!(made(), has("sh"));
    let cluster = Cluster::new();
    cluster.say("no-attach", "");
    let (status, out, _) = cluster.run(&["shop/cart-0"]);
    assert_eq!((status, out.is_empty()), (Some(1), false));
    assert!(!cluster.read("created").contains("--pod-json"));
    assert!(!cluster.read("calls").contains("attach -i"));
}

#[test]
fn a_record_that_cannot_be_handed_over_ends_it_and_says_why() {
    requires!(made(), has("sh"));
    let cluster = Cluster::new();
    for (name, text) in [("no-stream", ""), ("hangs", ""), ("log", "")] {
        cluster.say(name, text);
    }
    let (status, out, error) = cluster.run(&["shop/cart-0"]);
    assert_eq!((status, out.as_str(), cluster.removed()), (Some(3), "", 1), "{error}");
    assert!(error.contains("cannot hand over") && error.contains("unknown flag"), "{error}");
    // Cut off once podstuck has begun to answer, it has had the record.
    cluster.say("log", "pod shop/cart-0: immutable-attribute\n");
    fs::remove_file(cluster.at("hangs")).unwrap();
    let (status, _, error) = cluster.run(&["shop/cart-0"]);
    assert_eq!((status, error.as_str()), (Some(1), ""));
}

#[test]
fn the_pod_is_removed_at_once_when_it_is_told_to_end() {
    requires!(made(), has("sh"));
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129), (Signal::SIGINT, 130)] {
        podstuck_testing::hear_terminal();
        let cluster = Cluster::new();
        cluster.say("hangs", "");
        let mut plugin = cluster.plugin(&["shop/cart-0"]);
        let mut plugin = plugin.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while !cluster.read("calls").lines().any(|call| call.starts_with("logs -f")) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{}", cluster.read("calls"));
            thread::sleep(Duration::from_millis(20));
        }
        let told = Instant::now();
        kill(Pid::from_raw(plugin.id().cast_signed()), signal).unwrap();
        let status = plugin.wait().unwrap();
        assert!(told.elapsed() < Duration::from_secs(10), "{signal}: {:?}", told.elapsed());
        assert_eq!((status.code(), cluster.removed()), (Some(code), 1), "{signal}");
    }
}

#[test]
fn krews_manifest_names_the_archive_by_its_checksum() {
    requires!(made());
    let text = fs::read_to_string(artefact("podstuck.yaml")).unwrap();
    let archive = format!("kubectl-podstuck-{VERSION}.tar.gz");
    let sum = done(tool("sha256sum").arg(artefact(&archive)));
    let sum = sum.split_whitespace().next().unwrap();
    for line in [
        "kind: Plugin".into(),
        format!("  version: v{VERSION}"),
        format!("      sha256: {sum}"),
        "      bin: kubectl-podstuck".into(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(text.contains(&format!("/v{VERSION}/{archive}")) && !text.contains('@'), "{text}");
    let plugin = unpacked(&archive);
    let program = plugin.path().join("kubectl-podstuck");
    let said = done(Command::new(&program).arg("--version"));
    assert_eq!(said, format!("kubectl-podstuck {VERSION}\n"));
}
