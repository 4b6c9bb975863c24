//! Findings for the tests of all renderers.
#![allow(clippy::unwrap_used, reason = "only tests call it")]
#![cfg_attr(not(test), allow(dead_code, reason = "other crates' tests need few of them"))]

use podstuck_engine::ids;
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use podstuck_engine::cause::Kind;

use podstuck_model::{
    call::{Call, Outcome},
    chain::Who,
    diagnosis::Stage,
    evidence::{Certainty, Evidence, RuledOut, Source},
    finding::{FaultyCall, Finding, FindingState, Progress, Severity},
    holder::{HeldMount, Holder, How, Search, Subject, Through},
    hung::{Hung, Phase, Since},
    identity::{Actor, Component, Parent, Pod, Volume},
    path::JsonPath,
    remedy::Remedy,
    summary::{Completeness, SelfCost, Start, Summary},
};

/// Clears a terminal, forges a line, reorders text, and is a C1 control.
pub(crate) const HOSTILE: &str = "\u{1b}[2J\nok\u{202e}\u{9b}31m\u{7f}";

const POD_DIR: &str = "/var/lib/kubelet/pods/3f2a1f5c-8a54-4c0e-9d38-0d7e5a1b2c3d/volumes";

/// Seconds after a time that is always the same.
pub fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

pub(crate) fn pod() -> Pod {
    Pod {
        uid: "3f2a1f5c-8a54-4c0e-9d38-0d7e5a1b2c3d".into(),
        namespace: Some("shop".into()),
        name: Some("cart-0".into()),
    }
}

fn evidence(fact: &str, source: Source) -> Evidence {
    Evidence { fact: fact.into(), source, since: time(0) }
}

pub(crate) fn ruled_out(fact: &str) -> RuledOut {
    let cause = ids::NESTED_MOUNT_UNDER_VOLUME;
    RuledOut { cause, fact: fact.into(), since: time(0) }
}

/// A volume that a process of the node holds.
pub fn finding() -> Finding {
    let path = JsonPath(PathBuf::from(format!("{POD_DIR}/kubernetes.io~csi/data/mount")));
    Finding {
        id: ids::VOLUME_HELD_BY_HOST_PROCESS,
        kind: Kind::Cause,
        instance: "volume-held-by-host-process-1".into(),
        state: FindingState::New,
        severity: Severity::Critical,
        certainty: Certainty::Firm,
        confidence: Certainty::Firm.confidence(),
        stage: Stage::Volumes,
        blocks_deletion: Some(true),
        pod: Some(pod()),
        container: None,
        container_name: None,
        volume: Some(Volume {
            name: "data".into(),
            plugin: "kubernetes.io/csi".into(),
            path: path.clone(),
        }),
        actor: Some(Actor {
            pid: 812,
            started: None,
            comm: "umount".into(),
            cgroup: Some("/system.slice/kubelet.service".into()),
            component: Component::UmountHelper,
            pod: None,
            parent: Some(Parent { pid: 700, comm: "kubelet".into() }),
        }),
        call: FaultyCall { syscall: Some(Call::Umount2), path, errno: Some(Outcome(16)) },
        count: 3,
        first: time(0),
        last: time(244),
        held_by: Some(Who::process("backup", 4242).and(" of /system.slice/backup.service")),
        chain: Vec::new(),
        must: None,
        waits_for: None,
        evidence: vec![
            evidence("umount2 failed with EBUSY 3 times, 122 s apart", Source::Probe),
            evidence(
                "process 4242 (backup) has its working directory there",
                Source::proc("/proc/4242/cwd"),
            ),
        ],
        explanation: "A process of the host works in the volume. The kernel does not unmount a \
                      file system that is in use, so kubelet tries again every 122 seconds."
            .into(),
        remedies: vec![Remedy::command(
            "end backup (pid 4242), which keeps the volume busy",
            "kill 4242",
            "ends the backup",
        )],
        likely_causes_ruled_out: vec![ruled_out("nothing is mounted below it")],
        not_known: Vec::new(),
        degraded: Vec::new(),
        is_settled: false,
        is_later: false,
    }
}

/// Every name that others can choose, chosen badly.
pub(crate) fn hostile() -> Finding {
    let bytes = |b: &[u8]| JsonPath(Path::new(OsStr::from_bytes(b)).into());
    let text = || HOSTILE.to_owned();
    let pod = Pod { uid: text(), namespace: Some(text()), name: Some(text()) };
    let mut finding = finding();
    finding.pod = Some(pod.clone());
    finding.container = Some(text());
    finding.volume = Some(Volume { name: text(), plugin: text(), path: bytes(b"/v\xff") });
    finding.actor = finding.actor.map(|actor| Actor {
        comm: text(),
        cgroup: Some(text()),
        pod: Some(pod),
        parent: Some(Parent { pid: 1, comm: text() }),
        ..actor
    });
    finding.call.path = bytes(b"/v/caf\xe9\x1b[2J");
    finding.evidence = vec![evidence(HOSTILE, Source::file(text()))];
    finding.explanation = text();
    finding.remedies =
        vec![Remedy::command(&*text(), text(), text()), Remedy::advice(text(), text())];
    finding.likely_causes_ruled_out = vec![ruled_out(HOSTILE)];
    finding.not_known = vec![text()];
    finding.degraded = vec![text()];
    finding
}

pub(crate) fn hung() -> Hung {
    Hung {
        syscall: "newfstatat".into(),
        path: JsonPath("/v/data/m".into()),
        pid: 812,
        tid: 815,
        comm: "kubelet".into(),
        age_s: 4.2,
        since: Since::FirstLook,
        phase: Phase::InSyscall,
        since_before_start: true,
        over: false,
        outcome: None,
        state: Some('S'),
        wchan: Some("request_wait_answer".into()),
        stack: ["request_wait_answer", "fuse_do_getattr"].map(Into::into).to_vec(),
        victim: Some(pod()),
        volume: None,
    }
}

pub(crate) fn progress() -> Progress {
    Progress {
        path: JsonPath(PathBuf::from(format!("{POD_DIR}/kubernetes.io~empty-dir/cache"))),
        pod: Some(pod()),
        deleted: 812_345,
        directories: 12_001,
        rate_per_s: 5_120.5,
        remaining_estimate: Some(200_000),
        remaining_range: Some((150_000, 300_000)),
        eta_s: Some(39),
        eta_range_s: Some((29, 58)),
    }
}

pub(crate) fn start() -> Start {
    Start {
        version: "0.1.0".into(),
        kernel: "6.1.0-18-amd64".into(),
        backend: "tracepoint".into(),
        probes_attached: vec!["sys_enter_umount".into(), "sys_exit_umount".into()],
        probes_missing: vec!["sched_process_exec: not permitted".into()],
        not_covered: vec!["calls of 32-bit programs: not shown".into()],
        target: Some("pod shop/cart-0".into()),
        roots_searched: vec!["/var/lib/kubelet".into()],
        api: None,
    }
}

pub(crate) fn summary() -> Summary {
    let count = |name: &str, n| (name.to_owned(), n);
    Summary {
        window_s: 30.0,
        calls: 800_015,
        by_outcome: BTreeMap::from([
            ("unlinkat", BTreeMap::from([count("EISDIR", 12)])),
            ("unlinkat+AT_REMOVEDIR", BTreeMap::from([count("ok", 800_000), count("EBUSY", 3)])),
        ]),
        completeness: Completeness { probes_skipped: Some(0), ..Completeness::default() },
        cost: SelfCost { cpu_s: 0.12, rss_bytes: 12_897_485, bpf_ns_per_call: None },
    }
}

pub(crate) fn holder() -> Holder {
    Holder {
        file: None,
        nested: None,
        how: How::Fd,
        object: JsonPath("/host/v/log".into()),
        count: 3,
        through: Through::PropagatedCopy,
        mount: HeldMount {
            id: 77,
            namespace: Some(4_026_532_001),
            point: JsonPath("/host/v".into()),
            detached: None,
        },
        explains_ebusy: Some(true),
        exact: true,
        pid: Some(42),
        started: None,
        comm: Some("agent".into()),
        component: Some(Component::Workload),
        cgroup: Some("/kubepods/pod0/0123".into()),
        is_child: false,
        container: Some("0123".into()),
        pod: Some(pod()),
        source: "/proc/42/fdinfo/7".into(),
    }
}

pub(crate) fn search() -> Search {
    Search {
        subject: Subject {
            path: JsonPath("/v".into()),
            what: "mount of tmpfs of type tmpfs, device 0:45".into(),
            device: "0:45".into(),
            mount_id: Some(70),
            namespace: Some(4_026_531_841),
        },
        holders: 0,
        explain_ebusy: 0,
        processes: 120,
        namespaces: 3,
        mounts: 1000,
        unseen: vec!["mapped files of pid 7".into()],
    }
}
