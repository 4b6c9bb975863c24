//! The rights and credentials of docs/cluster.md.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::{Value, json};

use super::Workstation;

/// The manifests of docs/cluster.md, as a user applies them.
pub(super) fn the_documented_rights_suffice(at: &Workstation) {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cluster.md"))
            .unwrap();
    let manifests: Vec<&str> =
        page.split("```yaml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect();
    let [of_cluster, of_namespace] = manifests[..] else { panic!("{} manifests", manifests.len()) };
    // The right to get nodes/proxy permits running commands in any container.
    assert!(manifests.iter().all(|manifest| !manifest.contains("nodes/")), "{manifests:?}");
    let apply = |manifest: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), manifest).unwrap();
        at.kubectl(&["apply", "--filename", file.path().to_str().unwrap()]);
    };
    // Without any right there is no answer.
    let (text, status) = at.podstuck(&["-n", "shop", "--as", "jane"]);
    assert!(text.contains("list pods in shop: not permitted"), "{text}");
    assert_eq!(status, 3, "{text}");
    // With a Role, each missing right is named, with the command that checks it.
    apply(of_namespace);
    let (text, status) = at.podstuck(&["-n", "shop", "--as", "jane"]);
    println!("$ kubectl podstuck -n shop --as jane\n{text}");
    assert_eq!(status, 1, "{text}");
    assert!(text.contains("pod-finalizer") && text.contains("claim-in-use"), "{text}");
    assert!(text.contains("check: kubectl --as=jane auth can-i get nodes"), "{text}");
    // A node that may not be read is reported neither as gone nor as unreachable.
    let silent = at.json(&["shop/silent", "--as", "jane"]);
    assert_eq!(silent["items"][0]["causes"], json!([]), "{silent:#}");
    assert_eq!(silent["items"][0]["examine"], "n1");
    let error = silent["examined"][0]["error"].as_str().unwrap();
    assert!(error.contains("cannot create podstuck's own pod in kube-system"), "{error}");
    // podstuck's own pod examines that node; its manifest can be read beforehand.
    let (manifest, status) =
        at.podstuck(&["shop/silent", "--as", "jane", "--examine", "--print", "--", "--brief"]);
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!((&manifest["spec"]["nodeName"], status), (&json!("n1"), 0));
    assert!(manifest["spec"]["containers"][0]["args"].to_string().contains("--brief"));
    apply(of_cluster);
    at.plane
        .wait_for("the rights", || at.json(&["-A", "--as", "jane"])["not_read"] == json!([]))
        .unwrap();
    let (mine, all) =
        (at.podstuck(&["-A", "--as", "jane", "-o", "name"]), at.podstuck(&["-A", "-o", "name"]));
    assert_eq!(mine, all);
}

/// A kubeconfig whose user is known by a program that prints a token, as those of cloud providers are. Needs the rights of
/// docs/cluster.md.
pub(super) fn a_credential_program_is_run(at: &Workstation) {
    at.kubectl(&["create", "serviceaccount", "caller", "--namespace=operators"]);
    let of = ["--clusterrole=podstuck", "--serviceaccount=operators:caller"];
    at.kubectl(&[&["create", "clusterrolebinding", "caller"], &of[..]].concat());
    let kubeconfig = at.plane.account("operators", "caller").unwrap();
    let kubectl = |args: &[&str]| {
        let output =
            at.command("kubectl").env("KUBECONFIG", &kubeconfig).args(args).output().unwrap();
        let text = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()).concat();
        (text, output.status.code().unwrap())
    };
    let token =
        ["config", "view", "--raw", "--output=jsonpath={.users[?(@.name==\"caller\")].user.token}"];
    let (token, _) = kubectl(&token);
    assert!(!token.is_empty());
    let version = "client.authentication.k8s.io/v1beta1";
    let credential =
        json!({"apiVersion": version, "kind": "ExecCredential", "status": {"token": token}});
    let top = tempfile::tempdir().unwrap();
    let (program, runs) = (top.path().join("credential"), top.path().join("runs"));
    let write = |rest: &str| {
        let script = format!("#!/bin/sh\necho $1 >> {}\n{rest}\n", runs.display());
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let command = format!("--exec-command={}", program.display());
    let api = format!("--exec-api-version={version}");
    kubectl(&["config", "set-credentials", "by-program", &command, &api, "--exec-arg=login"]);
    kubectl(&["config", "set-context", "--current", "--user=by-program"]);
    kubectl(&["config", "unset", "users.caller"]);
    write(&format!("echo '{credential}'"));
    let ask = ["podstuck", "-n", "shop"];
    let (text, status) = kubectl(&ask);
    assert!(status == 1 && text.contains("pod-finalizer"), "{text}");
    // The client library runs it for a token, for a certificate, and for the time at which that expires.
    assert_eq!(fs::read_to_string(&runs).unwrap(), "login\n".repeat(3));
    write("echo 'no session: log in' >&2; exit 7");
    let (text, status) = kubectl(&ask);
    println!("$ kubectl podstuck -n shop\n{text}");
    assert!(status == 3 && text.contains("no session: log in"), "{status}: {text}");
}
