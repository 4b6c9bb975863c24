//! Programs that say that they unmount the victim's volume.

use podstuck_tests::{has_fuse, requires, root_and_btf, slowdown, user_namespaces};

use crate::{
    tenant::{TENANT, runc},
    victim::Scene,
};

/// As many as are followed at a time, so that there were no room for the true one; half of them are there
/// before the watch, half come while it goes on. They wait for a pipe without a writer.
#[test]
fn a_thousand_programs_called_umount_are_not_followed() {
    requires!(root_and_btf(), runc());
    let half = 512 / slowdown();
    let crowd = format!(
        "[ -p /tmp/never ] || mkfifo /tmp/never; cp /bin/sh /tmp/umount; n=0
        while [ $n -lt {half} ]; do
            /tmp/umount -c 'read x < /tmp/never' umount $VOLUME/m >/dev/null 2>&1 & n=$((n+1)); done"
    );
    let mut scene = Scene::begin("fuse-daemon-hung", |tenant, ready| {
        tenant.does(&crate::victim::in_words(&crowd, ready));
    });
    scene.tenant_does(&crowd);
    let found = scene.cause_is_found();
    let summary = scene.end(&found);
    assert_eq!(summary["completeness"]["objects_dropped"], 0, "{summary:#}");
}

/// More removals hang than are followed, before the pod's begins. They give way to it.
#[test]
fn a_thousand_threads_that_hang_leave_room_for_the_pods() {
    requires!(root_and_btf(), runc(), user_namespaces(), has_fuse());
    let mut crowd = Vec::new();
    let mut scene = Scene::begin("fuse-daemon-hung", |tenant, _| {
        let hang = "mkdir -p /tmp/own; exec unshare --user --map-root-user --mount /tenant crowd /tmp/own 1100";
        crowd.push(tenant.begins(hang));
    });
    scene.cause_is_found();
    let summary = scene.stop();
    let dropped = summary["completeness"]["objects_dropped"].as_u64().unwrap();
    assert!(dropped > 0, "{summary:#}");
}

/// From a container, and from a user namespace in it: neither may unmount for the node, and so is not read at all.
#[test]
fn a_tenants_command_line_of_gigabytes_hides_no_pod() {
    requires!(root_and_btf(), runc(), user_namespaces());
    const LONG: &str = "/tmp/umount long-line 4294967296 $VOLUME/m";
    let copy = "cp /tenant /tmp/umount.new; mv /tmp/umount.new /tmp/umount";
    let mut long = Vec::new();
    let mut scene = Scene::begin("fuse-daemon-hung", |tenant, ready| {
        let script = format!("{copy}; exec {LONG}");
        long.push(tenant.begins(&crate::victim::in_words(&script, ready)));
    });
    // And one that the probes see executed.
    let apart = format!("{copy}; exec unshare --user --map-root-user {LONG}");
    long.push(scene.tenant_begins(&apart));
    let found = scene.cause_is_found();
    let summary = scene.end(&found);
    assert_eq!(summary["completeness"]["objects_dropped"], 0, "{summary:#}");
}

/// What `/proc` shows as a command line may be any part of a process's memory. Root with `CAP_SYS_ADMIN` is read,
/// as a driver in a privileged container is: so this is no tenant, but a process with more privileges.
#[test]
fn a_command_line_of_gigabytes_is_not_read_to_its_end() {
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
        thread,
        time::Duration,
    };

    use podstuck_tests::{Ending, beside_the_tests, of_type, watch};

    use crate::{
        meter::Meter,
        victim::{HELPERS, MEMORY},
    };

    const LENGTH: u64 = 4 << 30;
    requires!(root_and_btf());
    let top = tempfile::tempdir().unwrap();
    let volume = podstuck_tests::empty_dir(top.path());
    let program = top.path().join("umount");
    std::fs::copy(beside_the_tests("podstuck-tenant"), &program).unwrap();
    let options = ["--kubelet-root", top.path().to_str().unwrap(), "--hung-after", "1s"];
    let watching = watch(&options);
    let meter = Meter::start(watching.pid());
    let mut long = Command::new(&program);
    long.args(["long-line", &LENGTH.to_string()]).arg(&volume);
    let mut long = Ending::start(long.stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(long.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    // It is asked about half a second after its start, and reported a second after it.
    thread::sleep(Duration::from_secs(4) * slowdown());
    let (lines, _) = watching.stop();
    let (memory, helpers) = meter.peaks();
    println!("measured: {memory} MiB, helpers {helpers} MiB");
    assert!(memory <= MEMORY && helpers <= HELPERS, "{memory} MiB, helpers {helpers} MiB");
    assert_eq!(of_type(&lines, "finding"), Vec::<&serde_json::Value>::new(), "{TENANT}");
}
