//! `kubectl podstuck` as it is packed. What it does is tried beside its source, in `podstuck-user/cluster/tests`, and
//! before a real API server with a real kubelet in `on_node/plugin.rs`.

use std::{fs, process::Command};

use podstuck_tests::requires;
use serde_json::{Value, json};

use super::made::{VERSION, architecture, artefact, done, made, tool, unpacked};

fn archive() -> String {
    format!("kubectl-podstuck-{VERSION}-linux-{}.tar.gz", architecture())
}

/// The pod that the plugin would make, with no word from an API server.
pub fn printed_pod() -> Value {
    let plugin = unpacked(&archive());
    let kubeconfig = plugin.path().join("kubeconfig");
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "c", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]});
    fs::write(&kubeconfig, config.to_string()).unwrap();
    let mut podstuck = Command::new(plugin.path().join("kubectl-podstuck"));
    podstuck.args(["--examine", "--node", "worker-3", "--pod-uid", "1-2", "--print"]);
    let text = done(podstuck.env("KUBECONFIG", &kubeconfig).env_remove("PODSTUCK_IMAGE"));
    serde_json::from_str(&text).unwrap()
}

#[test]
fn its_pod_has_the_image_of_the_release() {
    requires!(made());
    let pod = printed_pod();
    let image = format!("docker.io/library/podstuck:{VERSION}");
    assert_eq!(pod["spec"]["containers"][0]["image"], image);
}

#[test]
fn krews_manifest_names_the_archive_by_its_checksum() {
    requires!(made());
    let text = fs::read_to_string(artefact("podstuck.yaml")).unwrap();
    let sum = done(tool("sha256sum").arg(artefact(&archive())));
    let sum = sum.split_whitespace().next().unwrap();
    for line in [
        "kind: Plugin".into(),
        format!("  version: v{VERSION}"),
        format!("          arch: {}", architecture()),
        format!("      sha256: {sum}"),
        "      bin: kubectl-podstuck".into(),
        "    artifacthub.io/license: MIT OR Apache-2.0".into(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(text.contains(&format!("/v{VERSION}/{}", archive())) && !text.contains('@'), "{text}");
    let plugin = unpacked(&archive());
    let said = done(Command::new(plugin.path().join("kubectl-podstuck")).arg("--version"));
    assert_eq!(said, format!("kubectl podstuck {VERSION}\n"));
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        assert!(plugin.path().join(licence).is_file(), "{licence}");
    }
}
