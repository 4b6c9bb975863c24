//! Processes that hang where they execute a program, so that reading much of what `/proc` says of them
//! blocks: the kernel closes a file of theirs on a FUSE file system of the tenant's own, which does not answer.
//! Each has deleted something in the tenant's own volume before, and is called `umount`.

use std::{process::Command, thread, time::Duration};

use podstuck_tests::{has_fuse, requires, root_and_btf, user_namespaces};

use crate::{tenant::runc, victim::Scene};

/// More than are left behind of each kind of look.
const COUNT: u32 = 12;

fn hang() -> String {
    let hang = format!("/tenant hang /tmp/silent /data /tmp/umount {COUNT}");
    format!(
        "mkdir -p /tmp/silent; cp /tenant /tmp/umount
        exec unshare --user --map-root-user --mount {hang}"
    )
}

#[test]
fn who_hangs_in_execve_hides_no_call_that_hangs() {
    requires!(root_and_btf(), runc(), user_namespaces(), has_fuse());
    let mut scene = Scene::begin("fuse-daemon-hung", |_, _| {});
    let _hanging = scene.tenant_begins(&hang());
    let found = scene.cause_is_found();
    scene.end(&found);
}

/// What they hang in is not known where the kernel does not say it, and that is reported.
#[test]
fn who_hung_in_execve_before_hides_nothing_either() {
    requires!(root_and_btf(), runc(), user_namespaces(), has_fuse());
    let mut hanging = Vec::new();
    let mut scene = Scene::begin("immutable-attribute", |tenant, _| {
        hanging.push(tenant.begins(&hang()));
    });
    let found = scene.cause_is_found();
    // They are asked again after 5 s.
    thread::sleep(Duration::from_secs(8));
    let silent = silent();
    let summary = scene.end(&found);
    let degraded = summary["completeness"]["degraded"].as_array().unwrap();
    let is_reported =
        |what: &serde_json::Value| what.as_str().unwrap().contains("does not report what these");
    println!("measured: {silent} processes do not say what they do");
    assert_eq!(degraded.iter().any(is_reported), silent >= COUNT as usize, "{degraded:#?}");
}

/// How many processes do not say within two seconds which call they are in.
fn silent() -> usize {
    const ASK: &str = "for p in /proc/[0-9]*; do
        (timeout 2 cat $p/syscall >/dev/null 2>&1; case $? in 124|143) echo $p; esac) & done; wait";
    let output = Command::new("bash").args(["-c", ASK]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().count()
}
