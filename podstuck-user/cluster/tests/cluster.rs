//! `kubectl podstuck` against a real API server with real controllers. Objects are made stuck by the mechanisms seen
//! in the field, queried as a user types it, and released by the printed command. There is no node: where a kubelet
//! is read, the API server forwards the request to a stand-in.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::{
    env, fs,
    path::Path,
    process::{Child, Command, Output},
    thread,
    time::Duration,
};

#[path = "cluster/controllers.rs"]
mod controllers;
#[path = "cluster/dark.rs"]
mod dark;
#[path = "cluster/kubelets.rs"]
mod kubelets;
mod objects;
#[path = "cluster/rights.rs"]
mod rights;
mod stand_in;
#[path = "cluster/stuck.rs"]
mod stuck;
#[path = "cluster/webhooks.rs"]
mod webhooks;

use controllers::{
    an_object_that_cannot_be_read_keeps_its_namespace, controllers_that_do_not_run_are_named,
};
use dark::{delete_dark, make_dark, what_waits_for_a_node_that_is_off_is_named};
use kubelets::{
    a_missed_deletion_is_proven_by_two_reads, a_volume_that_kubelet_uses_leads_to_its_pod, record,
};
use objects::{claim, object};
use podstuck_test_node::ControlPlane;
use podstuck_testing::Schema;
use podstuck_testing::skip;
use rights::{a_credential_program_is_run, the_documented_rights_suffice};
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use stand_in::Kubelet;
use stuck::{delete, make, namespaces, pod, strand};
use webhooks::{
    a_dead_webhook_is_released_before_the_finalizer,
    a_denied_deletion_by_kubelet_is_shown_by_a_dry_run, a_denied_removal_is_proven_by_a_dry_run,
    dead_webhook, denying_webhooks,
};

/// The arguments of `kubectl podstuck`; the cause that must come first with certainty `firm`; and the object that is
/// gone after the command was run.
struct Case {
    ask: &'static [&'static str],
    cause: &'static str,
    gone: &'static [&'static str],
}

const CASES: [Case; 11] = [
    Case {
        ask: &["shop/kept"],
        cause: "pod-finalizer",
        gone: &["pod", "kept", "--namespace=shop"],
    },
    Case {
        ask: &["pvc/data", "-n", "shop"],
        cause: "claim-in-use",
        gone: &["pvc", "data", "--namespace=shop"],
    },
    Case { ask: &["ns/full"], cause: "namespace-content-remains", gone: &["namespace", "full"] },
    Case {
        ask: &["pod/silent", "--namespace", "shop"],
        cause: "node-not-heard",
        gone: &["pod", "silent", "--namespace=shop"],
    },
    Case {
        ask: &["configmaps.core/dead", "-n", "shop"],
        cause: "finalizer-controller-gone",
        gone: &["configmap", "dead", "--namespace=shop"],
    },
    Case {
        ask: &["ds/owner", "-n", "shop"],
        cause: "foreground-dependents",
        gone: &["daemonset", "owner", "--namespace=shop"],
    },
    Case {
        ask: &["volumeattachment/refused"],
        cause: "volume-detach-fails",
        gone: &["volumeattachment", "refused"],
    },
    Case { ask: &["pv/pv-3"], cause: "volume-attached", gone: &["volumeattachment", "still"] },
    Case { ask: &["pv/pv-3"], cause: "object-finalizer", gone: &["pv", "pv-3"] },
    Case { ask: &["pv/pv-4"], cause: "volume-bound", gone: &["pv", "pv-4"] },
    Case {
        ask: &["volumeattachment/lost"],
        cause: "attached-volume-gone",
        gone: &["volumeattachment", "lost"],
    },
];

/// A user's machine: kubectl with the plugin in its `PATH`.
struct Workstation {
    plane: ControlPlane,
    schema: Schema,
}

impl Workstation {
    fn command(&self, program: &str) -> Command {
        let plugin = Path::new(env!("CARGO_BIN_EXE_kubectl-podstuck"));
        let path = env::var_os("PATH").unwrap_or_default();
        let all = env::split_paths(&path);
        let path = env::join_paths([plugin.parent().unwrap().to_owned()].into_iter().chain(all));
        let mut command = Command::new(program);
        command.env("PATH", path.unwrap()).env("KUBECONFIG", self.plane.kubeconfig());
        command
    }

    fn podstuck(&self, args: &[&str]) -> (String, i32) {
        let Output { status, stdout, stderr } =
            self.command("kubectl").arg("podstuck").args(args).output().unwrap();
        let text =
            String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        (text, status.code().unwrap())
    }

    /// The JSON answer, checked against the schema.
    fn json(&self, args: &[&str]) -> Value {
        let (text, _) = self.podstuck(&[args, &["-o", "json"]].concat());
        let document = serde_json::from_str(&text);
        let document = document.unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"));
        self.schema.check(&document);
        document
    }

    /// Runs a printed command in a shell.
    fn run(&self, command: &str) -> Result<String, String> {
        let Output { status, stdout, stderr } =
            self.command("sh").args(["-c", command]).output().unwrap();
        let text =
            String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        if status.success() { Ok(text) } else { Err(text) }
    }

    fn kubectl(&self, args: &[&str]) -> String {
        self.plane.kubectl(args).unwrap()
    }

    fn delete(&self, args: &[&str]) {
        self.kubectl(&[&["delete", "--wait=false"], args].concat());
    }

    fn exists(&self, what: &[&str]) -> bool {
        !self.kubectl(&[&["get", "--ignore-not-found", "--output=name"], what].concat()).is_empty()
    }

    /// The names of a namespace's pods.
    fn pods(&self, namespace: &str) -> Vec<String> {
        let names = self.kubectl(&["get", "pods", "--namespace", namespace, "--output=name"]);
        names.lines().map(str::to_owned).collect()
    }

    fn wait_until_gone(&self, what: &[&str]) {
        self.plane.wait_for(&format!("{what:?} to be gone"), || !self.exists(what)).unwrap();
    }

    fn apply(&self, objects: Vec<Value>) {
        self.plane.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects})).unwrap();
    }
}

/// Deletions that are not blocked are never reported, neither while they run nor afterwards.
fn healthy_deletions_are_silent(at: &Workstation) {
    at.apply(vec![object("v1", "Namespace", "", "healthy", &json!({}))]);
    let mut objects = Vec::new();
    for number in 0..20 {
        let mut pod = pod(&format!("p{number}"), "", None, &json!({}));
        pod["metadata"]["namespace"] = json!("healthy");
        pod["spec"].as_object_mut().unwrap().remove("nodeName");
        objects.push(pod);
        objects.push(claim("healthy", &format!("c{number}"), &json!({})));
    }
    at.apply(objects);
    at.delete(&["pod", "--all", "--namespace=healthy"]);
    at.delete(&["namespace", "healthy"]);
    let mut asked = 0;
    while at.exists(&["namespace", "healthy"]) {
        let (text, _) = at.podstuck(&["-A"]);
        // On a busy machine, others are overdue by now.
        assert!(text.contains("Only these types were read") && !text.contains("healthy"), "{text}");
        asked += 1;
    }
    println!("healthy deletions were asked about {asked} times");
}

fn acts(remedy: &Value) -> Option<&str> {
    let changes = !remedy["risk"].as_str().unwrap().starts_with("none");
    remedy["command"].as_str().filter(|_| changes)
}

/// The object that has to be released first.
fn leaf(document: &Value) -> &Value {
    let item = &document["items"][0];
    if item["leaf"].is_null() { item } else { &item["leaf"] }
}

fn released_by_what_is_printed(at: &Workstation, case: &Case) {
    let document = at.json(case.ask);
    let first = &document["items"][0]["causes"][0];
    assert_eq!(
        (&first["id"], &first["certainty"]),
        (&json!(case.cause), &json!("firm")),
        "{document:#}"
    );
    let (text, status) = at.podstuck(case.ask);
    assert_eq!(status, 1, "{text}");
    let remedies = leaf(&document)["causes"][0]["remedies"].as_array().unwrap();
    let command =
        remedies.iter().find_map(acts).unwrap_or_else(|| panic!("no command: {document:#}"));
    assert!(text.contains(command), "{command} is not in: {text}");
    println!("$ kubectl podstuck {}\n{text}\n$ {command}", case.ask.join(" "));
    at.run(command).unwrap_or_else(|error| panic!("{command}: {error}"));
    at.wait_until_gone(case.gone);
}

/// All stuck objects are listed: with sufficient rights, and with only a Role.
fn all_are_listed(at: &Workstation) {
    let (text, status) = at.podstuck(&["-A"]);
    println!("$ kubectl podstuck -A\n{text}");
    assert_eq!(status, 1, "{text}");
    for case in &CASES {
        // Other types are listed only if a listed object leads to them.
        if ["configmap", "daemonset"].contains(&case.gone[0]) {
            continue;
        }
        let name = case.gone[1];
        assert!(
            text.lines().any(|line| line.split_whitespace().any(|word| word == name)),
            "{name}: {text}"
        );
    }
    let (names, _) = at.podstuck(&["-n", "shop", "-o", "name"]);
    let mut names: Vec<&str> = names.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["persistentvolumeclaim/data", "pod/kept", "pod/owned", "pod/silent"]);
    let (names, _) = at.podstuck(&["-n", "shop", "--all-types", "-o", "name"]);
    for of_another_type in ["configmap/dead", "daemonset/owner"] {
        assert!(names.lines().any(|line| line == of_another_type), "{names}");
    }
    let document = at.json(&["-A", "--all-types"]);
    println!("all types of the cluster: {} requests", document["requests"]["made"]);
    assert_eq!(document["not_read"], json!([]));
    let mut uids: Vec<&Value> =
        document["items"].as_array().unwrap().iter().map(|item| &item["uid"]).collect();
    uids.sort_unstable_by_key(|uid| uid.to_string());
    let all = uids.len();
    uids.dedup();
    assert_eq!(uids.len(), all, "no object is listed twice: {document:#}");
    let (text, _) = at.podstuck(&["-n", "shop", "--all-types", "--max-requests", "4"]);
    assert!(text.contains("no request is left of --max-requests"), "{text}");
    let (text, status) = at.podstuck(&["-n", "shop", "--max-requests", "4"]);
    assert!(text.contains("no request is left of --max-requests"), "{text}");
    assert_eq!(status, 5, "{text}");
}

/// A recording yields the same answer without the API server. A redacted one yields the same causes without the
/// names.
fn a_recording_gives_the_same_answer(at: &Workstation) {
    let top = tempfile::tempdir().unwrap();
    let path = |name: &str| top.path().join(name).to_str().unwrap().to_owned();
    let replayed = |file: &str| {
        let plugin = Command::new(env!("CARGO_BIN_EXE_kubectl-podstuck"))
            .args(["--replay", file, "-o", "json"])
            .env("KUBECONFIG", "/dev/null")
            .output()
            .unwrap();
        let text = String::from_utf8([plugin.stdout, plugin.stderr].concat()).unwrap();
        serde_json::from_str::<Value>(&text)
            .unwrap_or_else(|error| panic!("{file}: {error}: {text}"))
    };
    for (number, ask) in [
        &["-A", "--all-types"][..],
        &["pvc/data", "-n", "shop"],
        &["configmaps.core/dead", "-n", "shop"],
        &["nightly/tracked", "--via-dry-run"],
    ]
    .into_iter()
    .enumerate()
    {
        let (whole, redacted) = (path(&format!("{number}")), path(&format!("{number}-redacted")));
        let answer = at.json(&[ask, &["--no-examine", "--record", &whole]].concat());
        assert_eq!(replayed(&whole), answer, "{ask:?}");
        at.json(&[ask, &["--no-examine", "--record", &redacted, "--redact"]].concat());
        let causes = |document: &Value| {
            let items = document["items"].as_array().unwrap().clone();
            let each = |item: &Value| {
                let causes = item["causes"].as_array().unwrap().iter();
                causes.map(|it| format!("{} {}", it["id"], it["certainty"])).collect::<Vec<_>>()
            };
            let mut all: Vec<_> = items.iter().map(each).collect();
            // Objects that were deleted within the same second are sorted by name, and redaction changes names.
            all.sort();
            all
        };
        assert_eq!(causes(&replayed(&redacted)), causes(&answer), "{ask:?}");
        let text = fs::read_to_string(&redacted).unwrap();
        for name in ["shop", "kept", "example.com", "silent", "edge", "guard", "owner label"] {
            assert!(!text.contains(name), "{name} is in the redacted recording of {ask:?}");
        }
    }
    let (text, status) = at.podstuck(&["-A", "--record", &path("0")]);
    assert!(status == 2 && text.contains("cannot create the recording"), "{text}");
}

#[test]
fn what_keeps_objects_is_found_and_released_on_a_real_api_server() {
    if let Err(missing) = ControlPlane::is_possible() {
        return skip(format!("{missing:#}"));
    }
    let top = tempfile::tempdir().unwrap();
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let one = podstuck_cluster::present::schema(&mut generator);
    let schema = json!({"oneOf": [one], "$defs": generator.take_definitions(true)});
    let plane = ControlPlane::up(top.path()).unwrap();
    let at = Workstation { plane, schema: Schema::new(schema) };
    at.apply(namespaces());
    strand(&at);
    make(&at);
    make_dark(&at);
    let kubelet = Kubelet::start();
    let before = record(&at, "missed");
    // The webhooks are created last: they would also keep the controllers from writing to the claim.
    delete(&at);
    delete_dark(&at);
    at.apply([&[dead_webhook()][..], &denying_webhooks()].concat());
    healthy_deletions_are_silent(&at);
    // The namespace controller deletes a namespace's content later than the namespace.
    let are_overdue = || at.json(&["-A", "--all-types"])["in_time"] == 0;
    at.plane.wait_for("all deletions to be overdue", are_overdue).unwrap();
    all_are_listed(&at);
    a_recording_gives_the_same_answer(&at);
    the_documented_rights_suffice(&at);
    a_credential_program_is_run(&at);
    a_missed_deletion_is_proven_by_two_reads(&at, &kubelet, &before);
    what_waits_for_a_node_that_is_off_is_named(&at);
    a_denied_removal_is_proven_by_a_dry_run(&at);
    a_denied_deletion_by_kubelet_is_shown_by_a_dry_run(&at, &kubelet);
    a_volume_that_kubelet_uses_leads_to_its_pod(&at, &kubelet);
    let mut followed = Followed::begin(&at);
    for case in &CASES {
        released_by_what_is_printed(&at, case);
    }
    followed.has("PersistentVolumeClaim locked/data: stuck: webhook-unavailable (certain)");
    followed
        .has("s after its deletion was requested, as the finalizer example.com/kept was removed");
    a_dead_webhook_is_released_before_the_finalizer(&at);
    followed.has("PersistentVolumeClaim locked/data: gone ");
    an_object_that_cannot_be_read_keeps_its_namespace(&at);
    controllers_that_do_not_run_are_named(&at);
    let (text, status) = at.podstuck(&["-A"]);
    assert_eq!(status, 0, "{text}");
}

/// The causes of the object that was asked about, with their certainties.
#[track_caller]
fn is(document: &Value, all: &[(&str, &str)]) {
    let causes = document["items"][0]["causes"].as_array().unwrap();
    let found: Vec<_> = causes
        .iter()
        .map(|it| (it["id"].as_str().unwrap(), it["certainty"].as_str().unwrap()))
        .collect();
    assert_eq!(found, all, "{document:#}");
}

/// A running `--watch`, whose output goes to a file.
struct Followed {
    podstuck: Child,
    file: tempfile::NamedTempFile,
}

impl Followed {
    fn begin(at: &Workstation) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut kubectl = at.command("kubectl");
        let podstuck =
            kubectl.args(["podstuck", "-A", "--watch"]).stdout(file.reopen().unwrap()).spawn();
        let mut own = Self { podstuck: podstuck.unwrap(), file };
        own.has("Pod shop/kept: stuck: pod-finalizer (certain): the finalizer example.com/kept");
        own
    }

    fn has(&mut self, words: &str) {
        let text = || fs::read_to_string(self.file.path()).unwrap();
        for _ in 0..100 {
            if text().contains(words) {
                return;
            }
            thread::sleep(Duration::from_millis(200));
        }
        panic!("{words} is not in: {}", text());
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        println!(
            "$ kubectl podstuck -A --watch\n{}",
            fs::read_to_string(self.file.path()).unwrap_or_default()
        );
        let _ = self.podstuck.kill();
        let _ = self.podstuck.wait();
    }
}
