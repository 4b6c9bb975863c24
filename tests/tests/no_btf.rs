//! A kernel that keeps its types to itself: counts and errnos stay exact, and what is lost is said.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;

use podstuck_tests::{add_up, backend, call, of_type, requires, run, summary, watch};

const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Whether these tests can run; why not.
fn without_btf() -> Result<(), &'static str> {
    if Path::new(BTF).exists() {
        Err("there is /sys/kernel/btf/vmlinux: `cargo xtask vm test` has a machine without")
    } else if backend().as_deref() == Some("fentry") {
        Err("fentry takes its functions from /sys/kernel/btf/vmlinux, which is not there")
    } else {
        Ok(())
    }
}

#[test]
fn doctor_and_watch_say_what_is_lost() {
    requires!(without_btf());
    let doctor = run(&["doctor"]);
    let text = String::from_utf8_lossy(&doctor.stdout);
    assert_eq!(doctor.status.code(), Some(0), "tracing works: {text}");
    assert!(text.contains(BTF) && text.contains("lost: paths relative to a directory"), "{text}");
    assert!(text.contains("unlinkat"), "the probes are in: {text}");

    let watch = run(&["watch", "--duration", "1s"]);
    let text = String::from_utf8_lossy(&watch.stderr);
    assert_eq!(watch.status.code(), Some(0), "{text}");
    assert!(text.contains(BTF) && text.contains("counts and errnos still are"), "{text}");
}

#[test]
fn calls_by_absolute_path_are_counted_for_their_target() {
    requires!(without_btf());
    let top = tempfile::tempdir_in("/dev/shm").unwrap();
    let volumes = podstuck_tests::empty_dir(top.path()).parent().unwrap().to_path_buf();
    let watching = watch(&["--path", top.path().to_str().unwrap()]);
    let tally = call(&["targets".as_ref(), volumes.as_os_str(), "500".as_ref()]);
    let (lines, _) = watching.stop();
    assert_eq!(add_up(&[&summary(&lines)["by_outcome"]]), add_up(&[&tally]));
    assert!(of_type(&lines, "finding").is_empty());
}

#[test]
fn calls_below_a_descriptor_are_counted_with_their_errnos() {
    requires!(without_btf());
    let top = tempfile::tempdir_in("/dev/shm").unwrap();
    let watching = watch(&[]);
    let tally = call(&["storm".as_ref(), top.path().as_os_str(), "3000".as_ref()]);
    let (lines, _) = watching.stop();
    let counted = add_up(&[&summary(&lines)["by_outcome"]]);
    // Others on this machine may have made calls, too.
    for (outcome, count) in add_up(&[&tally]) {
        let seen = counted.get(&outcome).copied().unwrap_or(0);
        assert!(seen >= count, "{outcome}: {seen} of {count}: {:#}", summary(&lines));
    }
}
