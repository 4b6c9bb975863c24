//! Tables of the probes that all callers share: what a tenant does to his own objects leaves room for what is noted of
//! others'.

use std::{fs, path::Path, process::Command};

use podstuck_tests::{UID, call, empty_dir, requires, root_and_btf, settle, slowdown, watch};

use crate::tenant::{TENANT, Tenant, runc};

fn protect(flag: &str, path: &Path) {
    assert!(Command::new("chattr").arg(flag).arg(path).status().unwrap().success());
}

/// The victim's object has failed, and succeeds when a tenant has failed on more objects, in more directories, than the
/// tables of all hold: it is reported.
#[test]
fn twenty_thousand_failures_of_a_tenant_hide_no_recovery() {
    requires!(root_and_btf(), runc());
    let directories = 18_000 / slowdown();
    let dir = tempfile::Builder::new().prefix("podstuck-test-").tempdir_in("/var/tmp").unwrap();
    let volume = empty_dir(dir.path());
    // Not by the end of its directory is the finding to end.
    let object = volume.join("kept/file");
    fs::create_dir(volume.join("kept")).unwrap();
    fs::write(&object, "").unwrap();
    let own = dir.path().join("pods").join(TENANT).join("volumes/kubernetes.io~empty-dir/data");
    fs::create_dir_all(&own).unwrap();
    let tenant = Tenant::start(&[(&own, "/data")]);
    let mut watching = watch(&["--kubelet-root", dir.path().to_str().unwrap()]);
    protect("+i", &object);
    call(&["unlink".as_ref(), object.as_os_str()]);
    let is_victims = |line: &serde_json::Value| line["pod"]["uid"] == UID;
    watching.wait_for("the victim's finding", |line| {
        is_victims(line) && line["id"] == "immutable-attribute"
    });
    // A directory of another user's, from which he removes what is not his.
    tenant.does(&format!(
        "/tenant fail /data/mine {directories} && [ $(ls /data/mine | wc -l) -ge {directories} ]"
    ));
    settle();
    protect("-i", &object);
    call(&["unlink".as_ref(), object.as_os_str()]);
    watching.wait_for("its end", |line| is_victims(line) && line["state"] == "cleared");
    assert!(volume.join("kept").is_dir());
    watching.stop();
}
