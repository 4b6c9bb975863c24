//! What is read from the captured logs of a stuck pod (`captures`).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::PathBuf,
};

use jiff::Timestamp;
use podstuck_model::said::{Level, Report, Said, template};

use super::{
    Attempt,
    captures::{Growing, all_said, day, folder, of_driver, of_kubelets_log, text},
    go_text, klog,
    read::captured,
    read_runtime::said_in,
};

/// A pod that is held in the runtime, a frozen control group and a hung server leave only the deletion and
/// perhaps the container's end in this log.
const KUBELET: &str = "\
bind-mount-with-holder: ContainerEnded, Killing, SetUp, unlinkat EBUSY
busy: Added, ContainerEnded, Killing, SetUp, ToGo, unlinkat EBUSY
csi-driver-and-registrar-gone: ContainerEnded, DriverDown, Killing, SetUp
csi-driver-stopped: ContainerEnded, DriverHangs, Killing, SetUp
csi-mount-held: ContainerEnded, DriverError, Killing, SetUp, umount2 EBUSY
csi-volume-unknown: ContainerEnded, DriverError, Killing, SetUp
csidead-gone: Added, ContainerEnded, DriverDown, Killing, SetUp, ToGo
csidead-stale: Added, ContainerEnded, DriverDown, Killing, SetUp, ToGo
csidead-unreg: Added, ContainerEnded, DriverDown, Killing, NoDriver, SetUp, ToGo
csigone: Added, ContainerEnded, DriverError, Killing, SetUp, ToGo
csilost: Added, ContainerEnded, Killing, ToGo, TornDown
deleted-while-kubelet-stopped: SetUp
force-deleted-held: ContainerEnded, Killing, SetUp, umount2 EBUSY
frozen: Added, Killing, SetUp, ToGo
fz: Added, ContainerEnded, Killing, ToGo, TornDown
hung: Added, ContainerEnded, Killing, SetUp, ToGo
image-volume-held-containerd-2: ContainerEnded, ImageVolumeBusy, Killing, SetUp
imm: Added, ContainerEnded, Killing, SetUp, ToGo, unlinkat EPERM
mem: Added, ContainerEnded, Killing, SetUp, ToGo, umount2 EBUSY
prestop-hangs: SetUp
raw-block-held: ContainerEnded, Killing, MapBusy, umount2 EBUSY
rb1: Added, Killing, SetUp, ToGo
rb2: Added, Killing, SetUp, ToGo
ro: Added, ContainerEnded, Killing, SetUp, ToGo, unlinkat EROFS
rootfs-and-tmpfs-held: Killing, SetUp
static-pod: ContainerEnded, Killing, SetUp, umount2 EBUSY
subpath-held: ContainerEnded, Killing, SetUp, umount2 EBUSY
";

/// containerd complains of the two root file systems that it cannot unmount, and each is in nearly every log.
const CONTAINERD: &str = "\
bind-mount-with-holder: -
busy: -
csi-driver-and-registrar-gone: -
csi-driver-stopped: -
csi-mount-held: -
csi-volume-unknown: -
csidead-gone: -
csidead-stale: -
csidead-unreg: -
csigone: -
csilost: -
deleted-while-kubelet-stopped: -
force-deleted-held: -
frozen: -
fz: -
hung: -
image-volume-held-containerd-2: ImageVolumeBusy
imm: -
mem: -
prestop-hangs: -
raw-block-held: -
rb1: RootfsBusy
rb2: RootfsBusy
ro: -
rootfs-and-tmpfs-held: -
static-pod: -
subpath-held: -
";

/// A driver that is gone has said nothing before, and one that forgot the volume says that all is well.
const DRIVER: &str = "\
csi-driver-and-registrar-gone: -
csi-driver-stopped: -
csi-mount-held: -
csi-volume-unknown: DriverError
csidead-gone: -
csidead-stale: -
csidead-unreg: -
csigone: DriverError
csilost: -
";

#[test]
fn kubelets_log_names_the_pod_and_its_fault() {
    check("kubelet-1.36", of_kubelet, KUBELET);
}

#[test]
fn containerd_complains_of_the_pod_whose_container_it_names_and_of_no_other() {
    let said = |case: &str| {
        let (pod, kubelet) = of_kubelets_log(case);
        let mut all = said_in(&text("containerd-1.6", case), kubelet.ids);
        all.retain(|said| said.report.is_none());
        assert!(all.iter().all(|said| said.text.contains("failed to unmount target")), "{all:?}");
        words(all.iter().filter(|said| said.uid == pod.uid))
    };
    check("containerd-1.6", said, CONTAINERD);
}

/// The driver's other calls, and programs that it could not run, are no complaints about the volume.
#[test]
fn a_driver_complains_of_the_volume_that_it_names() {
    check("csi-hostpath", |case| words(of_driver(case).iter()), DRIVER);
}

/// Wherever a read ends, nothing is lost and nothing is reported twice.
#[test]
fn a_log_that_is_read_while_it_grows_says_what_it_says_as_a_whole() {
    let said = |mut attempts: Vec<Attempt>| {
        // Read as a whole, the log reports a pod's deletion only once: the last one.
        let is_to_go = |it: &Attempt| it.said.report == Some(Report::ToGo);
        let last = attempts.iter().filter(|it| is_to_go(it)).map(|it| it.said.at).max();
        attempts.retain(|it| !is_to_go(it) || Some(it.said.at) == last);
        // Nor does it report a mount before the teardown.
        let is = |it: &Attempt, report| it.said.report == Some(report);
        let torn_down = attempts.iter().filter(|it| is(it, Report::TornDown));
        let torn_down: Vec<_> = torn_down.map(|it| it.said.volume.clone()).collect();
        attempts.retain(|it| !is(it, Report::SetUp) || !torn_down.contains(&it.said.volume));
        // Of complaints without a known meaning, it reports the last of each kind with its count.
        let mut kinds = BTreeMap::new();
        attempts.retain(|Attempt { said, .. }| {
            let has_meaning =
                said.complaint.is_some() || said.report.is_some() || !said.volume.is_empty();
            if !has_meaning {
                let (times, last) = kinds.entry(template(&said.text)).or_insert((0, said.at));
                *times += said.times;
                *last = said.at.max(*last);
            }
            has_meaning
        });
        let kinds = kinds.into_iter().map(|kind| format!("{kind:?}"));
        let said = attempts.into_iter().map(|it| format!("{:?} {:?}", it.said, it.call));
        let mut said: Vec<String> = said.chain(kinds).collect();
        said.sort();
        said
    };
    for line in KUBELET.lines() {
        let (case, _) = line.split_once(':').unwrap();
        let mut growing = Growing::new(case);
        let mut read = Vec::new();
        let mut times: Vec<Timestamp> = growing.kubelet.iter().map(|(at, _)| *at).collect();
        times.reverse();
        // The second read finds nothing new.
        for at in times.into_iter().chain([day()]) {
            read.extend(growing.read(at));
            read.extend(growing.read(at));
        }
        assert_eq!(said(read), said(all_said(case)), "{case}");
    }
}

/// Compares the result of `said` for each captured case with what is expected.
fn check(logs: &str, said: impl Fn(&str) -> String, expected: &str) {
    let Ok(entries) = fs::read_dir(folder(logs)) else {
        podstuck_testing::skip(format!("there is no {} here", folder(logs).display()));
        return;
    };
    let files: BTreeSet<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    let mut all = String::new();
    for file in files {
        let case = file.file_stem().unwrap().to_str().unwrap();
        writeln!(all, "{case}: {}", said(case)).unwrap();
    }
    assert_eq!(all, expected);
}

/// The reports, complaints and failed calls of the pod, each once.
fn of_kubelet(case: &str) -> String {
    let (pod, log) = of_kubelets_log(case);
    let of_pod = || log.findings.iter().filter(|(said, _)| said.uid == pod.uid);
    let calls = of_pod().filter_map(|(_, call)| call.as_ref());
    let calls = calls.map(|call| format!("{} {}", call.call.name(), call.outcome.name()));
    let said = words(of_pod().map(|(said, _)| said));
    let said = said.split(", ").filter(|word| *word != "-").map(str::to_owned);
    let words: BTreeSet<String> = said.chain(calls).collect();
    if words.is_empty() {
        return "-".into();
    }
    words.into_iter().collect::<Vec<_>>().join(", ")
}

fn words<'a>(said: impl Iterator<Item = &'a Said>) -> String {
    let mut words = BTreeSet::new();
    for said in said {
        words.extend(said.complaint.map(|it| format!("{it:?}")));
        words.extend(said.report.map(|it| format!("{it:?}")));
    }
    if words.is_empty() { "-".into() } else { words.into_iter().collect::<Vec<_>>().join(", ") }
}

#[test]
fn fuzz_klog() {
    let now = "2026-11-23T00:00:00Z".parse().unwrap();
    podstuck_fuzz::fuzz("klog", |input| drop(captured(input, now)));
}

fn quoted(line: &str) -> String {
    serde_json::to_string(line).unwrap()
}

fn each(entry: &str, line: impl Fn(&str) -> String) -> String {
    entry.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// A log format: its name, and how it writes an entry of one or more lines.
type Form = (&'static str, fn(&str) -> String);

/// Formats in which kubelet's log is found on nodes.
const FORMS: [Form; 9] = [
    ("journalctl", |entry| {
        each(entry, |line| format!("Nov 27 00:31:22 node-1 kubelet[4242]: {line}"))
    }),
    ("syslog", |entry| {
        each(entry, |line| format!("<30>1 2026-11-27T00:31:22.1Z node-1 kubelet 4242 - - {line}"))
    }),
    ("MicroK8s", |entry| {
        each(entry, |line| format!("Nov 27 00:31:22 node-1 microk8s.daemon-kubelite[4242]: {line}"))
    }),
    ("MicroShift", |entry| {
        each(&format!("kubelet {entry}"), |line| {
            format!("Nov 27 00:31:22 node-1 microshift[4242]: {line}")
        })
    }),
    ("CRI", |entry| {
        each(entry, |line| {
            let (first, last) = line.split_at(line.floor_char_boundary(line.len() / 2));
            let time = "2026-11-27T00:31:22.1Z";
            format!("{time} stderr P {first}\n{time} stderr F {last}")
        })
    }),
    ("journal", |entry| {
        each(entry, |line| format!("{{\"_COMM\":\"kubelet\",\"MESSAGE\":{}}}", quoted(line)))
    }),
    ("logrus", |entry| format!("time=\"2026-11-27T00:31:22Z\" level=info msg={}", quoted(entry))),
    ("Talos", |entry| {
        each(entry, |line| {
            let line = quoted(line);
            format!("{{\"msg\":{line},\"talos-service\":\"kubelet\",\"talos-level\":\"info\"}}")
        })
    }),
    ("JSON", json),
];

/// An entry of klog as `--logging-format=json` writes it.
fn json(line: &str) -> String {
    let at = klog::written(line, day()).unwrap();
    let message = klog::message(line).unwrap();
    let caller = line.split(['[', ']']).next().unwrap().rsplit(' ').next().unwrap();
    let at = at.as_microsecond();
    let mut all = vec![
        format!("\"ts\":{}.{:03}", at / 1000, at % 1000),
        format!("\"caller\":\"kubelet/{caller}\""),
    ];
    let Some((headline, mut rest)) = go_text::quoted(message) else {
        all.push(format!("\"msg\":{}", quoted(&format!("{message}\n"))));
        if line.starts_with('I') {
            all.push("\"v\":2".into());
        }
        return format!("{{{}}}", all.join(","));
    };
    all.push(format!("\"msg\":{}", quoted(&headline)));
    if line.starts_with('I') {
        all.push("\"v\":2".into());
    }
    let reference = |text: &str| match text.split_once('/') {
        Some((namespace, name)) => format!("{{\"name\":\"{name}\",\"namespace\":\"{namespace}\"}}"),
        None => quoted(text),
    };
    let mut error = None;
    while let Some((name, value)) = rest.trim_start().split_once('=') {
        let bare = value.find(' ').unwrap_or(value.len());
        let (value, next) = match go_text::value(value) {
            Some((text, next)) if name == "pod" => (reference(&text), next),
            Some((text, next)) => (quoted(&text), next),
            None if name == "pods" => {
                let (list, next) = value.split_once(']').unwrap();
                let all = list.trim_start_matches('[').split(',').map(|pod| pod.trim_matches('"'));
                (format!("[{}]", all.map(reference).collect::<Vec<_>>().join(",")), next)
            }
            None if serde_json::from_str::<serde_json::Value>(&value[..bare]).is_ok() => {
                (value[..bare].to_owned(), &value[bare..])
            }
            None => (quoted(&value[..bare]), &value[bare..]),
        };
        let field = format!("\"{name}\":{value}");
        // As zap writes the error of a message that is one.
        if name == "err" && !line.starts_with('I') {
            error = Some(field)
        } else {
            all.push(field)
        }
        rest = next;
    }
    all.extend(error);
    format!("{{{}}}", all.join(","))
}

fn entries(text: &str) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    for line in text.trim_end().lines() {
        match entries.last_mut() {
            Some(entry) if klog::writer(line.as_bytes()).is_none() => {
                entry.push_str(&format!("\n{line}"))
            }
            _ => entries.push(line.to_owned()),
        }
    }
    entries
}

#[test]
fn a_log_says_the_same_in_every_form() {
    for case in KUBELET.lines().map(|line| line.split(':').next().unwrap()) {
        let text = String::from_utf8(text("kubelet-1.36", case)).unwrap();
        let said = |text: &str| {
            let captured = captured(text.as_bytes(), day());
            let mut pods = captured.pods;
            pods.sort_by(|a, b| a.uid.cmp(&b.uid));
            let mut ids = captured.ids.into_known();
            ids.sort();
            // JSON has no warnings.
            let mut findings = captured.findings;
            findings.iter_mut().for_each(|(said, _)| said.level = Level::Error);
            (findings, pods, ids)
        };
        let plain = said(&text);
        for (form, write) in FORMS {
            let written: Vec<String> = entries(&text).iter().map(|entry| write(entry)).collect();
            let found = said(&written.join("\n"));
            assert_eq!(found, plain, "{case} as {form}");
        }
    }
}
