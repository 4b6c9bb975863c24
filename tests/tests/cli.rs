//! What users type wrong, what this machine lacks, and what names try to do to a terminal.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_probe::kernel::selinux;
use podstuck_tests::{
    backend, call, empty_dir, lab, podstuck, requires, root_and_btf, run, settle, skip, slowdown,
    watch,
};

fn complaint(args: &[&str]) -> (Option<i32>, String) {
    let output = run(args);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn wrong_usage_is_2_and_names_the_fault() {
    for (args, words) in [
        (&["watch", "--duration", "soon"][..], "--duration"),
        (&["watch", "--output", "xml"][..], "json"),
        (&["lab", "imutable-atribute"][..], "similar names: immutable-attribute"),
        (&["explain", "imutable-atribute"][..], "similar names: immutable-attribute"),
        (&["watch", "--duraton", "3s"][..], "'--duration'"),
        (&["--host-root", "/", "watch"][..], "must follow the command"),
        (&["watch", "--pod", "x/y", "--path", "/z"][..], "cannot be used with"),
    ] {
        let (status, text) = complaint(args);
        assert_eq!(status, Some(2), "{args:?}: {text}");
        assert!(text.contains(words), "{args:?}: {text}");
    }
}

/// `podstuck cluster` and `podstuck agent` are separate files of a release.
#[test]
fn a_separate_program_gets_the_options_and_where_it_is_missing_its_place_is_named() {
    for (command, program, place) in [
        ("cluster", "kubectl-podstuck", "kubectl-podstuck-"),
        ("agent", "podstuck-agent", "container image"),
    ] {
        let path = tempfile::tempdir().unwrap();
        let run = || {
            let mut run = Command::new(podstuck());
            let output = run.args([command, "--first", "-A"]).env("PATH", path.path()).output();
            let output = output.unwrap();
            let said = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
            (output.status.code(), said)
        };
        let (status, [_, said]) = run();
        assert_eq!(status, Some(3), "{said}");
        assert!(
            said.contains(&format!("{program} is not in PATH")) && said.contains(place),
            "{said}"
        );
        let script = path.path().join(program);
        fs::write(&script, "#!/bin/sh\necho \"$@\"\nexit 7\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(run(), (Some(7), ["--first -A\n".to_owned(), String::new()]));
    }
}

/// What each of them says goes to a disk that is full, or to a reader that went away.
#[test]
fn what_cannot_be_written_is_a_failure_unless_the_reader_is_gone() {
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings/csi-driver-down.zst");
    let mut commands = vec![
        (vec!["--help"], 0),
        (vec!["explain"], 0),
        (vec!["man"], 0),
        (vec!["man", "--names"], 0),
        (vec!["lab"], 0),
        (vec!["compare", recording, recording], 0),
        (vec!["report", recording, "--format", "markdown"], 0),
        (vec!["replay", recording, "--output", "json"], 1),
        (vec!["replay", recording, "--output", "text"], 1),
    ];
    if podstuck_tests::root_and_btf().is_ok() {
        let untraced = ["diagnose", "--no-trace", "--api", "never", "--timeout", "1"];
        commands.push((untraced.to_vec(), 0));
        commands.push((vec!["watch", "--api", "never", "--duration", "1"], 0));
        commands.push((vec!["holders", "/sys/kernel"], 0));
        commands.push((vec!["doctor", "--api", "never"], 0));
    }
    for (args, status) in commands {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(podstuck()).args(&args).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{args:?}: {said}");
        let complaints = said.matches("cannot write to standard output: No space left").count();
        assert_eq!(complaints, 1, "{args:?}: {said}");

        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(podstuck()).args(&args).stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("standard output"), "{args:?}: {said}");
        if !matches!(args[0], "watch" | "diagnose" | "doctor" | "compare") {
            assert_eq!(output.status.code(), Some(status), "{args:?}: {said}");
        }
    }
}

#[test]
fn a_path_that_is_nowhere_is_wrong_usage_and_says_where_it_was_looked_for() {
    requires!(root_and_btf());
    for command in ["diagnose", "watch"] {
        let (status, text) = complaint(&[command, "--api", "never", "--path", "/nonexistent/x"]);
        assert_eq!(status, Some(2), "{text}");
        assert!(text.contains("/nonexistent/x: no such path in the host's"), "{text}");
    }
}

#[test]
fn without_a_command_the_pods_are_listed_in_a_pipe_too() {
    requires!(root_and_btf());
    let output = run(&["--api", "never"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(matches!(output.status.code(), Some(0 | 1 | 5)), "{output:?}");
    assert!(text.contains("of this node") && text.contains("was not asked"), "{text}");
    let output = run(&["--api", "never", "-o", "json"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines =
        text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    assert_eq!(lines.next_back().unwrap()["type"], "list", "{text}");
}

/// As node-problem-detector runs its custom plugins: the exit status, and what is printed.
fn check(options: &[&str]) -> (Option<i32>, String) {
    let output = run(&[&["check", "--npd", "--api", "never"], options].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.len() <= 81 && text.matches('\n').count() == 1, "{text}");
    (output.status.code(), text)
}

#[test]
fn node_problem_detector_gets_a_line_within_a_time() {
    requires!(root_and_btf());
    let (pod, ready) = lab("immutable-attribute", &[]);
    let root = ["--kubelet-root", ready["kubelet_root"].as_str().unwrap()];
    pod.resume();
    let said = check(&root);
    let expected = "1 stuck: immutable-attribute podstuck-lab/immutable-attribute\n".to_owned();
    assert_eq!(said, (Some(1), expected));
    let begun = Instant::now();
    let said = check(&[&root[..], &["--timeout", "0.2"]].concat());
    assert_eq!(said, (Some(2), "not done within 0.2 s\n".into()));
    assert!(begun.elapsed() < Duration::from_secs(10) * slowdown());
    pod.stop();
    let nowhere = check(&["--kubelet-root", "/nonexistent"]);
    assert_eq!(nowhere, (Some(2), "--kubelet-root: no such directory: /nonexistent\n".into()));
}

#[test]
fn an_unknown_pod_is_an_error_that_says_where_it_was_looked_for() {
    requires!(root_and_btf());
    let uid = "00000000-0000-4000-8000-00000000dead";
    let (status, text) = complaint(&["watch", "--pod-uid", uid]);
    assert_eq!(status, Some(2), "{text}");
    for place in [uid, "/var/lib/kubelet/pods", "/var/log/pods", "/sys/fs/cgroup"] {
        assert!(text.contains(place), "{text}");
    }
    let (status, text) = complaint(&["watch", "--pod", "nowhere/nobody"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("nowhere/nobody") && text.contains("/var/log/pods"), "{text}");
    let (status, text) = complaint(&["watch", "--pod-uid", "42"]);
    assert_eq!(status, Some(2), "{text}");
}

#[test]
fn without_privileges_it_is_3_and_says_which() {
    requires!(root_and_btf());
    // A copy that others may execute.
    let dir = tempfile::Builder::new().prefix("podstuck-test-").tempdir_in("/var/tmp").unwrap();
    let copy = dir.path().join("podstuck");
    fs::copy(podstuck(), &copy).unwrap();
    let open = |path, mode| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    open(dir.path(), 0o755);
    open(&copy, 0o755);
    let unprivileged = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(&copy).args(args).output().unwrap()
    };
    let output = unprivileged(&["watch", "--duration", "1s"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("CAP_") && text.contains("root"), "{text}");
    let output = unprivileged(&["doctor"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stdout).contains("MISSING privileges"));
}

#[test]
fn doctor_finds_every_probe_alive_here() {
    requires!(root_and_btf());
    let output = run(&["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let all = "unlinkat, umount2, unlink, rmdir by";
    let probes = if cfg!(target_arch = "aarch64") { "unlinkat, umount2 by" } else { all };
    assert!(text.contains(probes), "{text}");
    let (each, cpus) = memory_for_each_cpu(&text).unwrap_or_else(|| panic!("{text}"));
    assert!(each * cpus <= 8 << 10, "more than 8 MiB for the possible CPUs: {text}");
}

/// KiB for each possible CPU, and their number.
fn memory_for_each_cpu(text: &str) -> Option<(u64, u64)> {
    let (_, words) = text.split_once("MiB, of which ")?;
    let (each, words) = words.split_once(" KiB for each possible CPU (")?;
    let (cpus, _) = words.split_once("): ")?;
    Some((each.parse().ok()?, cpus.parse().ok()?))
}

/// In a mount namespace of its own, where only what mounts it sees it.
#[test]
fn doctor_names_a_mount_that_only_reads_like_a_pods() {
    requires!(root_and_btf());
    let top = tempfile::tempdir().unwrap();
    let volume = podstuck_tests::empty_dir(top.path());
    let script = "mount -t tmpfs mine \"$0\" && echo ready && exec sleep 600";
    let mut apart = Command::new("unshare");
    apart.args(["--mount", "sh", "-c", script]).arg(&volume).stdout(Stdio::piped());
    let mut apart = apart.spawn().unwrap();
    let mut line = [0; 6];
    apart.stdout.take().unwrap().read_exact(&mut line).unwrap();
    let namespace = fs::read_link(format!("/proc/{}/ns/mnt", apart.id())).unwrap();
    let namespace = namespace.to_str().unwrap().replace(['m', 'n', 't', ':', '[', ']'], "");
    let look_alikes = || {
        let text = String::from_utf8(run(&["doctor"]).stdout).unwrap();
        text.lines().find(|line| line.contains("look-alikes")).unwrap().to_owned()
    };
    let with = look_alikes();
    // In a directory of pods it is not a look-alike.
    let root = ["doctor", "--kubelet-root", top.path().to_str().unwrap()];
    let text = String::from_utf8(run(&root).stdout).unwrap();
    apart.kill().unwrap();
    apart.wait().unwrap();
    let name = format!("{} in mount namespace {namespace} (pid ", volume.display());
    assert!(with.contains(&name), "{with}");
    assert!(!text.contains(&name), "{text}");
    assert!(!look_alikes().contains(&name));
}

#[test]
fn without_the_hosts_process_ids_it_is_3_and_says_so() {
    requires!(root_and_btf());
    let apart = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc"]).arg(podstuck()).args(args);
        command.output().unwrap()
    };
    let output = apart(&["watch", "--duration", "1s"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("hostPID: true"), "{text}");
    let output = apart(&["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("MISSING process ids"), "{text}");
}

#[test]
fn a_kernel_that_is_locked_down_is_named() {
    requires!(root_and_btf());
    let levels = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if !levels.contains("[confidentiality]") {
        return skip("the kernel is not locked down (lockdown=confidentiality)");
    }
    let output = run(&["watch", "--duration", "1s"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("lockdown=confidentiality"), "{text}");
    let output = run(&["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("MISSING lockdown"), "{text}");
}

#[test]
fn what_selinux_refuses_is_named() {
    requires!(root_and_btf());
    let Some(context) = selinux::enforced() else {
        return skip("no policy of SELinux is enforced");
    };
    let output = run(&["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains(&format!("enforcing, podstuck runs as {context}")), "{text}");
    // Debian's policy allows the events of tracepoints to no process.
    let output = run(&["watch", "--backend", "tracepoint", "--duration", "1s"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{text}");
    let why = format!("SELinux enforces a policy that does not allow it to {context}");
    assert!(text.contains(&why), "{text}");
}

#[test]
fn the_labs_are_listed() {
    let output = run(&["lab"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for case in ["healthy", "csi-driver-lost-publish-state", "removal-crosses-mount"] {
        assert!(text.contains(case), "{text}");
    }
}

#[test]
fn a_hostile_name_stays_harmless_and_can_be_recovered() {
    requires!(root_and_btf());
    let dir = tempfile::Builder::new().prefix("podstuck-test-").tempdir_in("/var/tmp").unwrap();
    let volume = empty_dir(dir.path());
    let name = b"\x1b[2J\x9b31m\n\xff$(reboot)";
    let file = volume.join(OsStr::from_bytes(name));
    fs::write(&file, "").unwrap();
    let chattr = |flag: &str| {
        assert!(Command::new("chattr").arg(flag).arg(&file).status().unwrap().success());
    };
    chattr("+i");
    let root = ["--kubelet-root", dir.path().to_str().unwrap()];
    let mut text = Command::new(podstuck());
    text.args(["watch", "--output", "text", "--backend", backend().as_deref().unwrap_or("auto")]);
    text.args(root);
    let mut text = text.stdout(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(text.stdout.take().unwrap());
    let mut shown = Vec::new();
    printed.read_until(b'\n', &mut shown).unwrap();
    let mut json = watch(&root);
    call(&["unlink".as_ref(), file.as_os_str()]);
    // Of the file: a lab of another test may make the node's own file system read-only.
    let finding = json.wait_for("finding", |line| {
        line["type"] == "finding" && line["call"]["path_bytes"].is_string()
    });
    settle();
    kill(Pid::from_raw(text.id().cast_signed()), Signal::SIGINT).unwrap();
    printed.read_to_end(&mut shown).unwrap();
    text.wait().unwrap();
    chattr("-i");

    assert_eq!(finding["id"], "immutable-attribute", "{finding:#}");
    let bytes = finding["call"]["path_bytes"].as_str().unwrap();
    let decoded = Command::new("sh").arg("-c").arg(format!("echo {bytes} | base64 -d")).output();
    assert_eq!(decoded.unwrap().stdout, file.as_os_str().as_bytes());
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains("immutable-attribute"), "{shown}");
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
    // The remedy survives a shell: it names this one file and runs nothing else.
    let remedy = finding["remedies"][0]["command"].as_str().unwrap();
    chattr("+i");
    assert!(Command::new("bash").args(["-c", remedy]).status().unwrap().success(), "{remedy}");
    fs::remove_file(&file).unwrap();
}

#[test]
fn a_pods_record_is_judged_and_exported_and_anything_else_refused() {
    requires!(root_and_btf());
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let record = r#"{"kind":"Pod","metadata":{"name":"x","namespace":"y",
        "uid":"00000000-0000-4000-8000-00000000dead","deletionTimestamp":"2020-01-01T00:00:00Z"},
        "spec":{"nodeName":"another-node"}}"#;
    fs::write(file.path(), record).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let export = dir.path().to_str().unwrap();
    let output = run(&["diagnose", "--pod-json", path, "--output", "json", "--export", export]);
    let text = String::from_utf8(output.stdout).unwrap();
    let (finding, answer) = text.split_once('\n').unwrap();
    let answer: serde_json::Value = serde_json::from_str(answer).unwrap();
    assert_eq!(answer["type"], "diagnosis");
    let found: serde_json::Value = serde_json::from_str(finding).unwrap();
    assert_eq!(found["id"], "pod-not-on-this-node");
    let exported = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    let written: serde_json::Value = serde_json::from_str(&exported("findings.jsonl")).unwrap();
    assert_eq!(written["id"], "pod-not-on-this-node");
    assert!(exported("metrics.prom").contains("pod-not-on-this-node"));
    assert_eq!(answer["causes"][0]["id"], "pod-not-on-this-node", "{answer:#}");
    assert_eq!(output.status.code(), Some(1));

    fs::write(file.path(), "kind: Pod").unwrap();
    let (status, text) = complaint(&["diagnose", "--pod-json", path]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("kubectl get pod"), "{text}");
}

/// What kubelet leaves of a pod with a finalizer: directories without volumes. The record says the rest,
/// and nothing has to happen first.
#[test]
fn a_finalizer_is_reported_without_waiting_for_an_attempt() {
    requires!(root_and_btf());
    let uid = "00000000-0000-4000-8000-0000000fade0";
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("var/lib/kubelet");
    fs::create_dir_all(root.join("pods").join(uid).join("volumes/kubernetes.io~empty-dir"))
        .unwrap();
    let node = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let record = serde_json::json!({"kind": "Pod", "metadata": {"name": "x", "namespace": "y",
        "uid": uid, "deletionTimestamp": "2020-01-01T00:00:00Z", "finalizers": ["example.org/backup"]},
        "spec": {"nodeName": node.trim()}});
    let file = dir.path().join("pod.json");
    fs::write(&file, record.to_string()).unwrap();
    let (file, root) = (file.to_str().unwrap(), root.to_str().unwrap());
    let timeout = 600;
    let output = run(&[
        "diagnose",
        "--pod-json",
        file,
        "--kubelet-root",
        root,
        "--output",
        "json",
        "--timeout",
        &format!("{timeout}s"),
    ]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<serde_json::Value> = lines.collect();
    let answer = lines.iter().find(|line| line["type"] == "diagnosis").unwrap();
    assert_eq!(answer["causes"][0]["id"], "pod-finalizer", "{answer:#}");
    assert_eq!(answer["causes"][0]["certainty"], "firm", "{answer:#}");
    assert!(answer["window_s"].as_f64().unwrap() < f64::from(timeout), "the timeout ended it");
    assert_eq!(output.status.code(), Some(1));
}

/// kubelet has done its part, and the API server keeps the record: that is no clean end.
#[test]
fn a_record_that_is_all_that_is_left_is_not_taken_for_gone() {
    requires!(root_and_btf());
    let node = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let record = |deletion: &str| {
        serde_json::json!({"kind": "Pod", "metadata": {"name": "x", "namespace": "y",
            "uid": "00000000-0000-4000-8000-00000000dea1", "deletionTimestamp": deletion,
            "annotations": {"kubernetes.io/config.mirror": "0a"}},
            "spec": {"nodeName": node.trim()}})
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let ask = |deletion: &str| {
        fs::write(file.path(), record(deletion).to_string()).unwrap();
        let output = run(&["diagnose", "--pod-json", path, "--output", "json"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let answer: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        (answer, output.status.code())
    };
    let (answer, status) = ask("2020-01-01T00:00:00Z");
    assert_eq!(answer["stages"][0]["stage"], "api", "{answer:#}");
    assert!(answer["next"].to_string().contains("webhook"), "{answer:#}");
    let notes = answer["notes"].to_string();
    assert!(notes.contains("mirror pod") && !notes.contains("no kubelet runs"), "{answer:#}");
    assert_eq!((answer["causes"].as_array().unwrap().len(), status), (0, Some(5)));
    // Its grace has not ended.
    let (answer, status) = ask("2999-01-01T00:00:00Z");
    assert_eq!(answer["causes"][0]["id"], "grace-period-or-prestop", "{answer:#}");
    assert_eq!(status, Some(1));
}

#[test]
fn a_directory_in_a_pod_that_is_still_there_does_not_end_well() {
    requires!(root_and_btf());
    let uid = "00000000-0000-4000-8000-0000000fade1";
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("var/lib/kubelet");
    let volume = root.join("pods").join(uid).join("volumes/kubernetes.io~empty-dir/data");
    fs::create_dir_all(&volume).unwrap();
    let ask = |path: &std::path::Path| {
        let output = run(&[
            "diagnose",
            "--path",
            path.to_str().unwrap(),
            "--kubelet-root",
            root.to_str().unwrap(),
            "--output",
            "json",
            "--timeout",
            "5s",
        ]);
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<serde_json::Value> = lines.collect();
        let answer = lines.into_iter().find(|line| line["type"] == "diagnosis").unwrap();
        (answer, output.status.code())
    };
    let (answer, status) = ask(&volume);
    assert_eq!((&answer["stages"][0]["stage"], status), (&"volumes".into(), Some(5)), "{answer:#}");
    assert_eq!(answer["stages"][0]["pod"]["uid"], uid);
    fs::remove_dir_all(root.join("pods").join(uid)).unwrap();
    let (status, why) = complaint(&["diagnose", "--path", volume.to_str().unwrap()]);
    assert_eq!(status, Some(2), "{why}");
    assert!(why.contains("no such path in"), "{why}");
}

#[test]
fn a_pod_that_goes_ends_its_diagnosis_and_no_watch() {
    requires!(root_and_btf());
    const LIMIT_S: f64 = 100.0;
    let uid = "00000000-0000-4000-8000-0000000fade2";
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("var/lib/kubelet");
    let pod = root.join("pods").join(uid);
    for (command, limit) in [("diagnose", "--timeout=100"), ("watch", "--duration=15")] {
        fs::create_dir_all(pod.join("volumes/kubernetes.io~empty-dir/data")).unwrap();
        let mut asked = Command::new(podstuck());
        asked.args([command, "--kubelet-root", root.to_str().unwrap(), "--pod-uid", uid]);
        asked.args(["--api", "never", "--output", "json", limit]).stdout(Stdio::piped());
        let mut asked = asked.spawn().unwrap();
        let mut lines = BufReader::new(asked.stdout.take().unwrap())
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap());
        assert_eq!(lines.next().unwrap()["type"], "start", "it has looked once");
        fs::remove_dir_all(&pod).unwrap();
        let rest: Vec<serde_json::Value> = lines.collect();
        let status = asked.wait().unwrap().code();
        let of = |kind: &str| rest.iter().find(|line| line["type"] == kind);
        if command == "diagnose" {
            let answer = of("diagnosis").unwrap();
            assert_eq!(
                (status, &answer["gone"]["pod"]["uid"]),
                (Some(0), &uid.into()),
                "{answer:#}"
            );
            assert!(answer["window_s"].as_f64().unwrap() < LIMIT_S, "{answer:#}");
        } else {
            assert_eq!(of("gone").unwrap()["pod"]["uid"], uid, "{rest:#?}");
            let window = of("summary").unwrap()["window_s"].as_f64().unwrap();
            assert!(window > 14.0, "it goes on: {window}");
        }
    }
}
