//! What every thread of a running tool, and every helper, may do: by the kernel's word, thread by thread,
//! against the table that `docs/security.md` has.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "common/on_terminal.rs"]
mod on_terminal;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use podstuck_lab::fuse;
use podstuck_tests::{
    Mounted, UID, diagnose, has_fuse, lab, requires, root_and_btf, slowdown, wait_until_gone, watch,
};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/security.md");

/// Numbers of include/uapi/linux/capability.h.
const CAPABILITIES: [(&str, u32); 6] = [
    ("CAP_DAC_OVERRIDE", 1),
    ("CAP_DAC_READ_SEARCH", 2),
    ("CAP_SYS_PTRACE", 19),
    ("CAP_SYS_ADMIN", 21),
    ("CAP_SYSLOG", 34),
    ("CAP_BPF", 39),
];

/// The bits of each row of the document's table.
fn allowed() -> BTreeMap<String, u64> {
    let text = fs::read_to_string(DOCUMENT).unwrap();
    let (_, table) =
        text.split_once("<!-- table: read by tests/tests/privileges.rs -->\n").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let bit = |word: &str| {
            let known = CAPABILITIES.iter().find(|(name, _)| *name == word.trim_matches('`'));
            1 << known.unwrap_or_else(|| panic!("{word}: {line}")).1
        };
        let bits = cells[2].split(", ").filter(|word| *word != "none").map(bit).sum();
        (cells[1].trim_matches('`').to_owned(), bits)
    };
    rows.map(row).collect()
}

/// Of one thread.
#[derive(Debug, PartialEq, Eq)]
struct May {
    effective: u64,
    permitted: u64,
    bounding: u64,
    seccomp: u64,
    no_new_privileges: u64,
}

/// `None` when it has ended.
fn may(task: &Path) -> Option<(String, May)> {
    let name = fs::read_to_string(task.join("comm")).ok()?.trim().to_owned();
    let status = fs::read_to_string(task.join("status")).ok()?;
    let field = |name: &str, base| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), base).unwrap()
    };
    let may = May {
        effective: field("CapEff:", 16),
        permitted: field("CapPrm:", 16),
        bounding: field("CapBnd:", 16),
        seccomp: field("Seccomp:", 10),
        no_new_privileges: field("NoNewPrivs:", 10),
    };
    Some((name, may))
}

fn tasks(pid: u32) -> Vec<PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.map(|task| task.path()).collect()
}

/// Processes that the tool has started, and those that they have.
fn started(pid: u32) -> Vec<u32> {
    let children =
        tasks(pid).into_iter().filter_map(|task| fs::read_to_string(task.join("children")).ok());
    let children: Vec<String> = children.collect();
    let children = children.iter().flat_map(|text| text.split_whitespace()).flat_map(str::parse);
    children.flat_map(|child| [vec![child], started(child)].concat()).collect()
}

/// Looks at all threads, and at helpers that are there for long, until all of these were seen.
fn all_are_limited(tool: u32, wanted: &[&str]) {
    let table = allowed();
    let own = may(Path::new("/proc/self")).unwrap().1.permitted;
    let expected = |name: &str| {
        let bits = own & table.get(name).unwrap_or_else(|| panic!("{name} is not in the table"));
        let (effective, permitted) = (bits, bits);
        // What the main thread has dropped is gone; the rest cannot be dropped without CAP_SETPCAP, and with
        // no_new_privs nothing comes back by it.
        let bounding = bits | own & table["podstuck"];
        (May { effective, permitted, bounding, seccomp: 2, no_new_privileges: 1 }, bits)
    };
    let mut seen = BTreeSet::new();
    let mut since = BTreeMap::new();
    let end = Instant::now() + Duration::from_secs(40) * slowdown();
    while !wanted.iter().all(|name| seen.contains(*name)) {
        assert!(Instant::now() < end, "not seen: {wanted:?}, but {seen:?}");
        // A thread that was there a moment ago has begun its work.
        let mut now = tasks(tool);
        now.extend(started(tool).iter().map(|pid| PathBuf::from(format!("/proc/{pid}"))));
        for task in now {
            let first = *since.entry(task.clone()).or_insert_with(Instant::now);
            let Some((name, mut may)) = may(&task) else { continue };
            if first.elapsed() < Duration::from_millis(300) * slowdown() {
                continue;
            }
            let (expected, bits) = expected(&name);
            if may.bounding == bits {
                may.bounding = expected.bounding;
            }
            assert_eq!(may, expected, "{name}");
            seen.insert(name);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// A kubelet root with a volume that does not answer: the server of its file system reads no request.
struct HungRoot {
    _mounted: Mounted,
    _server: OwnedFd,
    root: tempfile::TempDir,
}

impl HungRoot {
    fn mount() -> Self {
        let root = tempfile::tempdir().unwrap();
        let volume = Self::volume(root.path());
        fs::create_dir_all(&volume).unwrap();
        let server = fuse::mount(&volume, "podstuck").unwrap();
        Self { _mounted: Mounted(volume), _server: server, root }
    }

    fn volume(root: &Path) -> PathBuf {
        root.join("pods").join(UID).join("volumes/kubernetes.io~csi/data")
    }
}

/// Of a watch that does all it can: it records, exports, follows a call that hangs, and has a helper that
/// hangs as well.
#[test]
fn threads_and_helpers_of_a_watch_may_do_what_their_work_takes() {
    requires!(root_and_btf());
    requires!(has_fuse());
    let dir = tempfile::tempdir().unwrap();
    let (export, record) = (dir.path().join("export"), dir.path().join("recording"));
    let (hanging, ready) = lab("fuse-daemon-hung", &[]);
    let text = |field: &str| ready[field].as_str().unwrap();
    let root = HungRoot::mount();
    let mut watching = watch(&[
        "--pod-uid",
        text("pod_uid"),
        "--kubelet-root",
        text("kubelet_root"),
        "--kubelet-root",
        root.root.path().to_str().unwrap(),
        "--hung-after",
        "200ms",
        "--export",
        export.to_str().unwrap(),
        "--record",
        record.to_str().unwrap(),
    ]);
    hanging.resume();
    let wanted = [
        "podstuck",
        "signals",
        "tables",
        "stuck",
        "reader",
        "sampler",
        "logs",
        "asker",
        "records",
        "callers",
        "export",
        "record",
        "printer",
        "fork server",
        "exporter",
        "recorder",
        "holder",
        "helper",
    ];
    // A row that matches no process would say nothing. The screen's is seen in the next test.
    assert!(allowed().keys().all(|name| name == SCREEN || wanted.contains(&name.as_str())));
    all_are_limited(watching.pid(), &wanted);
    // The lab holds its removal back: until its call hangs, an all-clear is right.
    watching.wait_for("the call that hangs", |line| {
        line["type"] == "hung" && line["over"] == false && line["victim"]["uid"] == text("pod_uid")
    });
    let (_, status) = watching.stop();
    // A cause is named after 30 s; before that, a call that has not returned is no all-clear.
    assert!(matches!(status.code(), Some(1 | 5)), "{status}");
    assert!(export.join("metrics.prom").is_file() && record.is_file());
    drop(root);
}

/// The thread that draws, which only a run on a terminal has.
const SCREEN: &str = "screen";

#[test]
fn who_draws_on_a_terminal_may_do_nothing_else() {
    requires!(root_and_btf());
    requires!(on_terminal::script());
    podstuck_testing::hear_terminal();
    let mut terminal = on_terminal::shown("watch --output tui", "Findings");
    // The first that it has started is the tool, which has started the others.
    let tool = started(terminal.id())[0];
    all_are_limited(tool, &["podstuck", "signals", "tables", SCREEN]);
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    wait_until_gone(tool);
}

#[test]
fn threads_of_a_diagnosis_may_do_no_more() {
    requires!(root_and_btf());
    let asked = diagnose(&["--path", "/sys/kernel", "--timeout", "30s"]);
    all_are_limited(
        asked.pid(),
        &["podstuck", "signals", "tables", "stuck", "sampler", "printer", "fork server", "holder"],
    );
    asked.stop();
}

#[test]
fn doctor_says_what_limits_there_are() {
    requires!(root_and_btf());
    let printed = podstuck_tests::run(&["doctor"]).stdout;
    let printed = String::from_utf8(printed).unwrap();
    let line = printed.lines().find(|line| line.contains("least privilege")).unwrap();
    let kernel = fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
    assert!(line.contains("seccomp") || line.contains("Landlock"), "{line}");
    assert!(!kernel.contains("landlock") || line.contains("ABI"), "{line}");
}
