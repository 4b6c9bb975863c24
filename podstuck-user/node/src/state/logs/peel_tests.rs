use super::*;

/// The process that writes the log.
const OWN: u32 = 700;
const KLOG: &str =
    "E0206 13:47:31.163290     700 pod_workers.go:1298] \"Error syncing pod, skipping\" err=\"x\"";

fn of(line: &str) -> Peeled<'_> {
    peeled(line.as_bytes(), OWN).next().unwrap()
}

/// As in microshift's, canonical/microk8s', kubernetes', talos' and longhorn's issues and guides; the formats of
/// journalctl are those of systemd 252, and those of syslog are from RFC 3164 and 5424.
#[test]
fn wrappers_are_removed() {
    let kubelet = Some("kubelet");
    let time = "2026-02-06T13:47:31.163290Z";
    let table = [
        (String::new(), None),
        ("Feb 06 13:47:31 dev kubelet[700]: ".into(), kubelet),
        ("Feb  6 13:47:31 dev kubelet: ".into(), kubelet),
        ("<30>Feb  6 13:47:31 dev kubelet[700]: ".into(), kubelet),
        ("Feb 06 13:47:31.163290 dev kubelet[700]: ".into(), kubelet),
        ("févr. 06 13:47:31 dev kubelet[700]: ".into(), kubelet),
        ("2026-02-06T13:47:31+0000 dev kubelet[700]: ".into(), kubelet),
        (format!("{time} dev kubelet[700]: "), kubelet),
        ("Fri 2026-02-06 13:47:31 UTC dev kubelet[700]: ".into(), kubelet),
        ("1770385651.163290 dev kubelet[700]: ".into(), kubelet),
        ("[  120.163290] dev kubelet[700]: ".into(), kubelet),
        (format!("<30>1 {time} dev kubelet 700 - - "), kubelet),
        (format!("<30>1 {time} dev kubelet 700 ID [a@1 b=\"c\\]\"][d@1] \u{feff}"), kubelet),
        (
            "Sep 12 23:43:22 dev.a.com microk8s.daemon-kubelite[700]: ".into(),
            Some("microk8s.daemon-kubelite"),
        ),
        ("Feb 06 13:47:31 dev microshift[700]: kubelet ".into(), Some("microshift")),
        ("kubelet ".into(), None),
        (format!("{time} "), None),
        (format!("{time} stderr F "), None),
        ("172.20.0.2: ".into(), None),
        ("[pod/kubelet-a/kubelet] ".into(), None),
        (format!("172.20.0.2: user: warning: [{time}]: "), None),
        (format!("{time} stderr F Feb  6 13:47:31 dev kubelet[700]: "), kubelet),
    ];
    let json = r#"{"ts":1770385651163.29,"caller":"kubelet/pod_workers.go:1298","msg":"Error syncing pod, skipping","err":"x"}"#;
    for (prefix, program) in table {
        let line = format!("{prefix}{KLOG}");
        let peeled = of(&line);
        assert_eq!((peeled.text.as_ref(), peeled.program.as_deref()), (KLOG, program), "{line}");
        let line = format!("{prefix}{json}");
        let peeled = of(&line);
        assert!(peeled.is_json && peeled.program.as_deref() == program, "{line}");
        assert_eq!(klog::message(&peeled.text), klog::message(KLOG), "{line}");
        let logrus = "time=\"2026-02-06T13:47:31Z\" level=error msg=\"x\"";
        let line = format!("{prefix}{logrus}");
        assert_eq!(of(&line).text, logrus, "{line}");
    }
    // A line that continues an entry begins with a tab.
    let goes_on = of("Feb  6 13:47:31 dev kubelet[700]: #011rpc error: x").text.into_owned();
    assert_eq!(goes_on, "\trpc error: x");
}

#[test]
fn a_line_that_another_one_quotes_is_taken_out_of_it() {
    let quoted = serde_json::to_string(KLOG).unwrap();
    let table = [
        (format!("time=\"2026-02-06T13:47:31Z\" level=info msg={quoted}"), None),
        (
            format!(
                "{{\"log\":\"{}\\n\",\"stream\":\"stderr\",\"time\":\"2026-02-06T13:47:31Z\"}}",
                &quoted[1..quoted.len() - 1]
            ),
            None,
        ),
        (
            format!(
                "{{\"__REALTIME_TIMESTAMP\":\"1770385651000000\",\"_PID\":\"700\",\"_COMM\":\"kubelet\",\"MESSAGE\":{quoted}}}"
            ),
            Some("kubelet"),
        ),
        (
            format!(
                "{{\"msg\":{quoted},\"talos-level\":\"info\",\"talos-service\":\"kubelet\",\"talos-time\":\
                 \"2026-02-06T13:47:31Z\"}}"
            ),
            Some("kubelet"),
        ),
    ];
    for (line, program) in table {
        let all: Vec<Peeled<'_>> = peeled(line.as_bytes(), OWN).collect();
        assert_eq!((all[0].text.as_ref(), all[0].program.as_deref()), (KLOG, program), "{line}");
        assert_eq!(all[0].at.unwrap().to_string(), "2026-02-06T13:47:31Z", "{line}");
    }
    let bytes: Vec<String> = KLOG.bytes().map(|byte| byte.to_string()).collect();
    let line = format!("{{\"_COMM\":\"kubelet\",\"MESSAGE\":[{}]}}", bytes.join(","));
    assert_eq!(of(&line).text, KLOG);
}

/// As in talos' and kubernetes' issues, and in articles about `--logging-format=json`.
#[test]
fn klogs_json_is_converted_to_its_text() {
    let said = |line: &str| {
        let peeled = of(line);
        assert!(peeled.is_json, "{line}");
        format!("{}{}", &peeled.text[..1], klog::message(&peeled.text).unwrap())
    };
    let table = [
        (
            r#"{"ts":1655581336244.2942,"caller":"kubelet/kubelet.go:2102","msg":"SyncLoop REMOVE","v":2,"source":"api","pods":[{"name":"nettools","namespace":"dev"}]}"#,
            r#"I"SyncLoop REMOVE" source="api" pods=["dev/nettools"]"#,
        ),
        (
            r#"{"ts":1635266751595.943,"caller":"kubelet/kubelet.go:1703","msg":"Failed creating a mirror pod for","pod":"kube-system/a-1","err":"pods \"a-1\" already exists"}"#,
            r#"E"Failed creating a mirror pod for" err="pods \"a-1\" already exists" pod="kube-system/a-1""#,
        ),
        (
            r#"{"ts":1776288065679.3105,"caller":"kubelet/kubelet.go:2460","msg":"Skipping pod synchronization","err":"container runtime is down","errCauses":[{"error":"container runtime is down"}]}"#,
            r#"E"Skipping pod synchronization" err="container runtime is down""#,
        ),
        (
            "{\"ts\":1655581336241.7,\"caller\":\"x/operation_generator.go:788\",\"msg\":\"UnmountVolume.TearDown succeeded for volume \\\"v\\\"\\n\",\"v\":0}",
            r#"IUnmountVolume.TearDown succeeded for volume "v""#,
        ),
    ];
    for (line, text) in table {
        assert_eq!(said(line), text);
    }
    for other in [
        r#"{"level":"error","ts":1.5,"msg":"x"}"#,
        r#"{"ts":"2026-01-01T00:00:00Z","msg":"x"}"#,
        r#"{"ts":1e300,"msg":"x"}"#,
        r#"{"msg":"x"}"#,
        "{",
    ] {
        assert_eq!(of(other).text, other);
    }
}

/// Nothing in a message is taken for a line of another component.
#[test]
fn what_a_line_quotes_is_not_its_beginning() {
    for line in [
        format!("time=\"2026-02-06T13:47:31Z\" level=error msg=\"x {KLOG:?}\""),
        "time=\"2026-02-06T13:47:31Z\" level=error msg=\"{\\\"ts\\\":1,\\\"msg\\\":\\\"x\\\"}\""
            .into(),
        format!("{{\"level\":\"error\",\"msg\":{KLOG:?}}}"),
        format!("a b c {KLOG}"),
        format!("\tkubelet {KLOG}"),
        "2021-04-01T03:16:33.306Z INFO service/node.go:404 a: b".into(),
        "umount: /k/data: target is busy.".into(),
    ] {
        assert_eq!(of(&line).text, line);
    }
    let others = of("Feb  6 13:47:31 dev dockerd[9]: kubelet[700]: x");
    assert_eq!(others.program.as_deref(), Some("dockerd"), "who took it down last is believed");
    assert!(is_others(&others, Component::Kubelet) && !is_others(&others, Component::Dockerd));
    assert!(!is_others(&of(KLOG), Component::Kubelet));
}

#[test]
fn parts_of_a_line_that_a_runtime_split_are_joined() {
    let (first, last) = KLOG.split_at(60);
    let cut = |first: &str| format!("2026-02-06T13:47:31Z stderr P {first}\n");
    let text = cut(first) + &format!("2026-02-06T13:47:32Z stderr F {last}\n") + &cut("x") + KLOG;
    let all: Vec<Peeled<'_>> = peeled(text.as_bytes(), OWN).collect();
    let texts: Vec<&str> = all.iter().map(|line| line.text.as_ref()).collect();
    assert_eq!(texts, [KLOG, "x", KLOG], "no part takes a line that the runtime did not cut");
    let endless = cut(&"y".repeat(4000)).repeat(100);
    assert!(peeled(endless.as_bytes(), OWN).all(|line| line.text.len() <= LONGEST));
    let long = "z".repeat(LONGEST * 2);
    assert_eq!(peeled(long.as_bytes(), OWN).next().unwrap().text.len(), LONGEST);
    let deep = "kubelet ".repeat(99) + KLOG;
    assert_ne!(of(&deep).text, KLOG);
}

#[test]
fn fuzz_peel() {
    podstuck_fuzz::fuzz("peel", |input| {
        let _ = peeled(input, OWN).count();
    });
}
