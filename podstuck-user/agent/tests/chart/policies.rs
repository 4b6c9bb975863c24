//! What clusters restrict pods and their tokens with: the admission policy decides as it should, and the constraints of
//! OpenShift permit exactly what the pod asks for.

use std::{collections::BTreeSet, fs, process::Stdio};

use podstuck_testing::requires;
use serde_json::{Value, json};

use super::{
    common::{done, has},
    python, template,
};

/// Evaluates the policy's expressions with an independent implementation of CEL: the first message, or nothing.
const DECIDE: &str = r#"
import celpy, json, sys
policy, request = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
environment = celpy.Environment()
known = {name: celpy.json_to_cel(value) for name, value in request.items()}
def decide(expression):
    return environment.program(environment.compile(expression)).evaluate(known)
if all(decide(it["expression"]) for it in policy["matchConditions"]):
    variables = {it["name"]: decide(it["expression"]) for it in policy["variables"]}
    known["variables"] = celpy.celtypes.MapType({celpy.celtypes.StringType(k): v for k, v in variables.items()})
    print(next((it["message"] for it in policy["validations"] if not decide(it["expression"])), ""))
else:
    print("not matched")
"#;

fn has_cel() -> Result<(), &'static str> {
    let found = python().args(["-c", "import celpy"]).stderr(Stdio::null()).status();
    let missing = "no cel-python for Python: `cargo xtask test` gets it";
    found.ok().filter(|status| status.success()).map(drop).ok_or(missing)
}

/// The objects that these values make, by kind.
fn object(values: &[&str], kind: &str) -> Value {
    let made = done(&mut template(values, &["--kube-version", "1.37"]));
    let is_kind = |text: &&str| text.lines().any(|line| line == format!("kind: {kind}"));
    serde_saphyr::from_str(made.split("\n---\n").find(is_kind).unwrap()).unwrap()
}

#[test]
fn an_agent_writes_events_of_its_own_node_alone() {
    requires!(has("helm"), has_cel());
    let top = tempfile::tempdir().unwrap();
    let [policy_file, request_file] = ["policy", "request"].map(|name| top.path().join(name));
    let policy = object(&["admissionPolicy.enabled=true"], "ValidatingAdmissionPolicy");
    fs::write(&policy_file, policy["spec"].to_string()).unwrap();
    let decide = |user: &str, node: Option<&str>, old: Value, new: Value| {
        let node = node.map(|node| json!({"authentication.kubernetes.io/node-name": [node]}));
        let mut who = json!({"username": user});
        if let Some(extra) = node {
            who["extra"] = extra;
        }
        let request = json!({"request": {"userInfo": who}, "object": new, "oldObject": old});
        fs::write(&request_file, request.to_string()).unwrap();
        let mut python = python();
        python.args(["-c", DECIDE]).args([&policy_file, &request_file]);
        done(&mut python).trim().to_owned()
    };
    let agent = "system:serviceaccount:kube-system:podstuck-agent";
    let of = |node: &str| json!({"related": {"kind": "Node", "name": node}, "reportingController": "podstuck-agent"});
    let other = "the agent of a node changes no Event but its own";
    let elsewhere = "the agent of a node writes Events about its own node alone";
    let kubelets = json!({"reportingController": "kubelet"});
    for (node, old, new, answer) in [
        (Some("n1"), Value::Null, of("n1"), ""),
        (Some("n1"), of("n1"), of("n1"), ""),
        (Some("n1"), of("n1"), Value::Null, ""),
        (Some("n1"), Value::Null, of("n2"), elsewhere),
        (Some("n1"), of("n1"), of("n2"), elsewhere),
        (Some("n1"), Value::Null, kubelets.clone(), elsewhere),
        // Another's Event is neither taken over nor removed.
        (Some("n1"), of("n2"), of("n1"), other),
        (Some("n1"), of("n2"), Value::Null, other),
        (Some("n1"), kubelets.clone(), Value::Null, other),
        // A token that is bound to no pod.
        (None, Value::Null, of("n1"), "the token does not name the node of the agent"),
    ] {
        let said = decide(agent, node, old.clone(), new.clone());
        assert_eq!(said, answer, "{node:?} {old} {new}");
    }
    let kubelet = decide("system:node:n1", None, Value::Null, kubelets);
    assert_eq!(kubelet, "not matched", "others are not affected");
}

#[test]
fn openshifts_constraints_permit_exactly_the_pod() {
    requires!(has("helm"));
    let values = ["openshift.enabled=true"];
    let constraints = object(&values, "SecurityContextConstraints");
    let set = object(&values, "DaemonSet");
    let (pod, container) =
        (&set["spec"]["template"]["spec"], &set["spec"]["template"]["spec"]["containers"][0]);
    let security = &container["securityContext"];
    let words = |value: &Value| -> BTreeSet<String> {
        value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(words(&constraints["allowedCapabilities"]), words(&security["capabilities"]["add"]));
    assert_eq!(
        words(&constraints["requiredDropCapabilities"]),
        words(&security["capabilities"]["drop"])
    );
    for (permitted, asked) in [
        ("allowHostPID", &pod["hostPID"]),
        ("allowHostIPC", &pod["hostIPC"]),
        ("allowHostNetwork", &pod["hostNetwork"]),
        ("allowPrivilegedContainer", &security["privileged"]),
        ("allowPrivilegeEscalation", &security["allowPrivilegeEscalation"]),
        ("readOnlyRootFilesystem", &security["readOnlyRootFilesystem"]),
    ] {
        assert_eq!(constraints[permitted] == true, *asked == true, "{permitted}");
    }
    let volumes = pod["volumes"].as_array().unwrap().iter();
    let kinds = volumes.map(|it| it.as_object().unwrap().keys().find(|key| *key != "name"));
    let mut kinds: BTreeSet<String> = kinds.map(|kind| kind.unwrap().clone()).collect();
    // Kubernetes adds the service account's token.
    kinds.insert("projected".into());
    assert_eq!(words(&constraints["volumes"]), kinds);
    let role = object(&values, "Role");
    assert_eq!(role["rules"][0]["resourceNames"], json!([constraints["metadata"]["name"]]));
    assert_eq!(role["rules"][0]["verbs"], json!(["use"]));
    let by_default = done(&mut template(&[], &[]));
    assert!(!by_default.contains("openshift.io"), "off by default");
}
