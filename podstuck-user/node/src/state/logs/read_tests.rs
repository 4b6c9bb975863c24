//! What is read of a log of kubelet or of a runtime.

use super::*;

const UID: &str = "0f0e0d0c-1111-4222-8333-444455556666";

fn failure(second: usize) -> String {
    format!(
        "E0301 23:{:02}:{:02}.841398    7632 nestedpendingoperations.go:348] Operation for \
         \"{{volumeName:v podName:{UID} nodeName:}}\" failed. No retries permitted until 2026-03-01 \
         23:12:33.8 +0000 UTC m=+1.5 (durationBeforeRetry 1m4s). Error: UnmountVolume.TearDown failed \
         for volume \"v\" (UniqueName: \"v\") pod \"{UID}\" (UID: \"{UID}\") : unmount failed: exit \
         status 32\nOutput: umount: /k/data: target is busy.\n\n",
        second / 60,
        second % 60
    )
}

/// The reports of a log in which kubelet cannot remove a tenant's directory of this name.
fn quoting(name: &str) -> Vec<(Said, Option<NamedCall>)> {
    let of_own = |second: u32, text: &str| {
        format!("E0301 23:00:{second:02}.000001    7632 x.go:1] {text}\n")
    };
    let error = format!(
        "Operation for \"{{volumeName:v podName:{UID} nodeName:}}\" failed. No retries permitted until \
         2026-03-01 23:12:33.8 +0000 UTC m=+1.5 (durationBeforeRetry 1m4s). Error: UnmountVolume.TearDown \
         failed for volume \"v\" (UniqueName: \"v\") pod \"{UID}\" (UID: \"{UID}\") : unlinkat \
         /k/pods/{UID}/volumes/v/{name}: operation not permitted"
    );
    let log = [of_own(1, "before"), of_own(2, &error), of_own(3, "after")].concat();
    let now = "2026-03-02T00:00:00Z".parse().unwrap();
    let found = search(log.as_bytes(), 7632, now);
    assert!(found.pods.is_empty(), "{:?}", found.pods);
    found.into_findings().0.into_iter().map(|finding| attempt("log", finding)).collect()
}

#[test]
fn a_name_with_a_line_break_says_nothing_of_another_pod() {
    const OTHER: &str = "1f0e0d0c-1111-4222-8333-444455556666";
    let messages = [
        format!(
            "UnmountVolume.TearDown succeeded for volume \"v\" pod \"{OTHER}\" (UID: \"{OTHER}\"). "
        ),
        format!(
            "\"SyncLoop (PLEG): event for pod\" pod=\"a/b\" event={{\"ID\":\"{OTHER}\",\"Type\":\"ContainerDied\"}}"
        ),
        format!(
            "\"x\" pod=\"a/b\" podUID=\"{OTHER}\"\nI0301 23:00:02.000002    7 x.go:1] \"SyncLoop DELETE\" source=\"api\" pods=[\"a/b\"]"
        ),
    ];
    for message in &messages {
        let said = quoting(&format!("x\nI0301 23:00:02.000002       7 x.go:1] {message}"));
        assert_eq!(said.len(), 1, "{said:#?}");
        assert_eq!((said[0].0.uid.as_str(), said[0].0.source.as_str()), (UID, "log"));
    }
    // A tenant that knows kubelet's process id must know the second, too: the entry counts, and proves nothing.
    let said = quoting(&format!("x\nI0301 22:00:02.000002    7632 x.go:1] {}", messages[0]));
    let of_other: Vec<&Said> =
        said.iter().map(|(said, _)| said).filter(|said| said.uid == OTHER).collect();
    assert_eq!(of_other.len(), 1, "{said:#?}");
    assert_eq!(of_other[0].source, said::unproven("log"));
    for message in &messages[1..] {
        let said = quoting(&format!("x\nI0301 22:00:02.000002    7632 x.go:1] {message}"));
        assert!(said.iter().all(|(said, _)| said.uid == UID), "{said:#?}");
    }
}

#[test]
fn a_log_that_takes_long_to_parse_is_not_taken_for_one_that_hangs() {
    let text: String = (0..300).map(failure).collect();
    let (lines, mut calls) = (text.lines().count(), 0);
    let news = News { text: text.into(), ..News::default() };
    let alive = || {
        calls += 1;
        Ok(())
    };
    go_on(news, None, 7632, Timestamp::now(), alive).unwrap();
    assert!(calls >= lines, "{calls} of {lines}");
}

#[test]
fn a_log_that_is_not_understood_proves_no_silence() {
    let now: Timestamp = "2026-03-02T00:00:00Z".parse().unwrap();
    let read = |text: String| {
        let news = News { text: text.into(), ..News::default() };
        let (found, next) = go_on(news, None, 7632, now, || Ok(())).unwrap();
        (found.lines, next.tells_all_since(found.since, now))
    };
    let log: String = (0..9).map(failure).collect();
    let written = log.lines().filter(|line| !line.is_empty()).count() as u64;
    let (lines, since) = read(log.clone());
    assert_eq!((lines.seen, lines.understood), (written, written));
    assert!(since.is_some_and(|since| since < now));
    let foreign: String = log.lines().map(|line| format!("~ {line}\n")).collect();
    let (lines, since) = read(foreign.clone());
    assert_eq!((lines.are_foreign(), since), (true, Some(now)), "{lines:?}");
    // Nor does one that is understood in part.
    let (lines, since) = read(log.clone() + &foreign.repeat(9));
    assert_eq!((lines.are_foreign(), since), (false, Some(now)), "{lines:?}");
    // Nor one of other programs.
    let others: String =
        log.lines().map(|line| format!("Mar  1 23:00:00 a b[7]: {line}\n")).collect();
    let (lines, since) = read(others);
    assert_eq!((lines.are_foreign(), since), (true, Some(now)), "{lines:?}");
}

#[test]
fn a_stop_that_names_the_container_alone_is_its_pods() {
    let at = |second: u32, text: &str| {
        format!("I0301 23:00:{second:02}.000001    7632 x.go:1] {text}\n")
    };
    let stops = |digit: &str| {
        let id = digit.repeat(64);
        format!("Killing container \"docker://{id}\" with 3600 second grace period")
    };
    let started = format!(
        "SyncLoop (PLEG): \"b_a({UID})\", event: &pleg.PodLifecycleEvent{{ID:\"{UID}\", \
         Type:\"ContainerStarted\", Data:\"{}\"}}",
        "a".repeat(64)
    );
    let now = "2026-03-02T00:00:00Z".parse().unwrap();
    let log = [at(1, &started), at(2, &stops("a")), at(3, "after")].concat();
    let found = search(log.as_bytes(), 7632, now);
    assert!(found.names_steps && found.complete_since() == found.since);
    let (all, _) = found.into_findings();
    let [(Finding::Killing { uid, grace_s: Some(3600), .. }, true)] = &all[..] else { panic!() };
    assert_eq!(uid, UID);
    // The other one may be any pod's.
    let found = search((log + &at(4, &stops("b"))).as_bytes(), 7632, now);
    let since = found.complete_since().unwrap();
    assert_eq!(since, "2026-03-01T23:00:04.000001Z".parse().unwrap());
}

/// As in kubernetes issue 105323.
#[test]
fn a_device_that_a_pod_still_has_mounted_is_that_pods_complaint() {
    let log = format!(
        "E0301 23:11:29.841398    7632 nestedpendingoperations.go:301] Operation for \"{{volumeName:v podName: \
         nodeName:}}\" failed. No retries permitted until 2026-03-01 23:12:33.8 +0000 UTC m=+1.5 \
         (durationBeforeRetry 32s). Error: GetDeviceMountRefs check failed for volume \"pv\" (UniqueName: \"v\") on \
         node \"n\" : the device mount path \"/k/plugins/x/globalmount\" is still mounted by other references \
         [/mnt/copy /k/pods/{UID}/volumes/kubernetes.io~csi/pv/mount /k/pods/{UID}/volumes/kubernetes.io~csi/pw/mount]\n"
    );
    let (all, _) = search(log.as_bytes(), 7632, Timestamp::now()).into_findings();
    let of_pod = |(it, _): &(Finding, bool)| match it {
        Finding::OfPod { uid, error, times, .. } => Some((uid.clone(), error.clone(), *times)),
        _ => None,
    };
    let of_pods: Vec<_> = all.iter().filter_map(of_pod).collect();
    let [(uid, error, 1)] = &of_pods[..] else { panic!("{of_pods:?}") };
    assert!(uid == UID && error.contains("is still mounted by other references"), "{error}");
}

#[test]
fn entries_of_several_lines_are_one() {
    let mut log = String::from("half of a line\n\u{fffd}\n");
    for second in 0..3 {
        log.push_str(&failure(second));
        log.push_str(&format!(
            "I0301 23:00:0{second}.900001 7632 x.go:1] \"x\" pod=\"shop/cart\" "
        ));
        log.push_str(&format!("podUID=\"{UID}\"\n"));
    }
    let found = search(log.as_bytes(), 7632, Timestamp::now());
    assert_eq!(found.pods.len(), 1);
    let findings: Vec<(Finding, bool)> = found.attempts.into_findings().collect();
    assert_eq!(findings.len(), 3);
    assert!(findings.iter().all(|(_, is_proven)| *is_proven));
    assert!(found.since.is_some_and(|since| since <= findings[0].0.at()), "{:?}", found.since);
    let (said, call) = attempt("log", findings.into_iter().next_back().unwrap());
    assert_eq!(call.unwrap().path, PathBuf::from("/k/data"));
    assert!(said.text.ends_with("umount: /k/data: target is busy."), "{said:?}");
}

/// The journal of a kubelet that does not run, with systemd's messages, in journalctl's form with times.
#[test]
fn the_journal_of_a_kubelet_that_ends_has_its_error_and_systemds_counter() {
    let line =
        |second: u32, rest: &str| format!("2026-03-01T23:00:{second:02}.000001+0000 n1 {rest}\n");
    let error = "E0301 23:00:02.000001    7632 run.go:74] \"command failed\" err=\"failed to run Kubelet: x\"";
    let log = [
        line(1, "systemd[1]: kubelet.service: Scheduled restart job, restart counter is at 711."),
        line(2, &format!("kubelet[7632]: {error}")),
        line(2, "systemd[1]: kubelet.service: Main process exited, code=exited, status=1/FAILURE"),
        line(12, "systemd[1]: kubelet.service: Scheduled restart job, restart counter is at 712."),
        line(13, "kubelet[7650]: Error: failed to parse kubelet flag: unknown flag: --cni-bin-dir"),
    ];
    let now = "2026-03-01T23:01:00Z".parse().unwrap();
    let found = search(log.concat().as_bytes(), 0, now);
    let all = found.into_findings().0.into_iter().map(|finding| attempt("log", finding).0);
    let all: Vec<_> = all.map(|it| (it.complaint, it.report, it.text, it.times, it.at)).collect();
    let at = |second: i64| jiff::Timestamp::from_second(1_772_406_000 + second).unwrap();
    let of = |text: &str| all.iter().find(|it| it.2 == text).unwrap_or_else(|| panic!("{all:#?}"));
    let ends = of("command failed: failed to run Kubelet: x");
    assert_eq!((ends.0, ends.3), (Some(Complaint::KubeletEnds), 1));
    let flag = of("failed to parse kubelet flag: unknown flag: --cni-bin-dir");
    assert_eq!(flag.0, Some(Complaint::KubeletEnds));
    assert_eq!(flag.4.duration_since(at(13)).as_secs(), 0);
    let again = all.iter().find(|it| it.1 == Some(Report::StartedAgain)).unwrap();
    assert_eq!(again.3, 712);
}
