//! Records of single calls, straight from the probes.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::File,
    os::{fd::AsRawFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    time::Duration,
};

use aya::maps::HashMap;
use nix::{errno::Errno, libc};

use podstuck_common::{
    component::path_hash,
    config::Config,
    count::{CallTotals, CountKey},
    record::{call, reason},
    root::{HOST_VIEW, Root, SHOW, ViewKey, flag},
};
use podstuck_node::identity::{target_names, target_root};
use podstuck_probe::{
    decode::{Record, decode},
    kernel::{
        layout, load,
        roots::{HOST_INDEX, RootTables},
    },
    source::ring::Ring,
};
use podstuck_tests::{call, forms};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Probes in the kernel, and the end of the ring that they write to.
struct Observer {
    ring: Ring,
    probes: load::Probes,
    runtime: Runtime,
}

/// What the probes are shown directories by.
const SECRET: u64 = 0x7073_7475_636b_0001;

thread_local! {
    /// What [`disk`] has made.
    static DISKS: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };

    // A test has a thread of its own: the verifier, which takes its time, runs once a test.
    static OBSERVER: RefCell<Option<Observer>> = const { RefCell::new(None) };
}

/// What the probes report while `work` runs.
pub(crate) fn observe(work: impl FnOnce()) -> Vec<Record> {
    OBSERVER.with_borrow_mut(|observer| observer.get_or_insert_with(Observer::start).observe(work))
}

/// Whether this hook is in.
pub(crate) fn hooked(name: &str) -> bool {
    let attached = |o: &Observer| o.probes.attached.hooks.iter().any(|hook| hook == name);
    OBSERVER.with_borrow(|observer| observer.as_ref().is_some_and(attached))
}

/// What was counted for a target so far, as tallies have it.
pub(crate) fn counted(target: u64) -> BTreeMap<String, u64> {
    OBSERVER.with_borrow(|observer| {
        let map = observer.as_ref().unwrap().probes.ebpf.map("COUNTS_0").unwrap();
        let map: HashMap<_, CountKey, CallTotals> = map.try_into().unwrap();
        let mut counted = BTreeMap::new();
        for (key, counts) in map.iter().map(Result::unwrap).filter(|(key, _)| key.target == target)
        {
            let call = call::NAMES[usize::from(key.call())];
            let outcome = match key.errno() {
                0 => "ok".to_owned(),
                errno => format!("{:?}", Errno::from_raw(errno.into())),
            };
            *counted.entry(format!("{call} {outcome}")).or_default() += counts.calls;
        }
        counted
    })
}

impl Observer {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let inside = runtime.enter();
        let layout = layout::read(Path::new(layout::BTF_PATH));
        let config = Config { secret: SECRET, own_tgid: std::process::id(), ..target_names() };
        let mut probes = load::load(&layout, &config, forms(), false).expect("loading probes");
        let ring = Ring::take(&mut probes.ebpf).unwrap();
        let mut roots = RootTables::take(&mut probes.ebpf).unwrap();
        drop(inside);
        show(Path::new("/"), HOST_INDEX);
        let disks = DISKS.with_borrow(Vec::clone);
        for (disk, index) in disks.iter().zip(0..) {
            show(disk, index);
            let flags = flag::HOLDS | flag::PODS;
            roots.set(index, Root { path: hash(disk), depth: 1, flags }).unwrap();
        }
        let key = |disk| ViewKey { path: hash(disk), view: HOST_VIEW, reserved: 0 };
        let views = disks.iter().zip(0..).map(|(disk, index)| (key(disk), index));
        roots.set_views(views.collect(), BTreeSet::new()).unwrap();
        Self { ring, probes, runtime }
    }

    fn observe(&mut self, work: impl FnOnce()) -> Vec<Record> {
        let Self { ring, runtime, .. } = self;
        runtime.block_on(async {
            // What others did in between is not the work's.
            while !ring.rest().is_empty() {}
            work();
            let mut records = Vec::new();
            while let Ok(Ok(batch)) =
                tokio::time::timeout(Duration::from_millis(300), ring.next()).await
            {
                records.extend(batch.iter().map(|bytes| decode(bytes).expect("decodable")));
            }
            records
        })
    }
}

/// The failed call's record (ENOTDIR or ENOTEMPTY, as the callers provoke).
pub(crate) fn failed(records: &[Record]) -> &Record {
    let ours = |r: &&Record| {
        matches!(r.head.errno, 20 | 39)
            && r.head.target != 0
            && r.head.reason & reason::LOOK_ALIKE == 0
    };
    let heads = || records.iter().map(|record| &record.head).collect::<Vec<_>>();
    records.iter().find(ours).unwrap_or_else(|| panic!("no failure among {:?}", heads()))
}

/// A directory on a disk, which the probes are shown when they are loaded: pods are in it.
pub(crate) fn disk() -> TempDir {
    let disk = elsewhere();
    OBSERVER.with_borrow(|observer| assert!(observer.is_none(), "too late to be shown"));
    DISKS.with_borrow_mut(|disks| disks.push(disk.path().into()));
    disk
}

/// One that they are not shown.
pub(crate) fn elsewhere() -> TempDir {
    tempfile::Builder::new().prefix("podstuck-test-").tempdir_in("/var/tmp").unwrap()
}

fn hash(path: &Path) -> u64 {
    path_hash(path.as_os_str().as_bytes())
}

/// See `podstuck_common::root`.
fn show(directory: &Path, index: u32) {
    let directory = File::open(directory).unwrap();
    // SAFETY: the kernel refuses the flags before it looks at the address.
    let result =
        unsafe { libc::syscall(libc::SYS_unlinkat, directory.as_raw_fd(), SECRET, SHOW | index) };
    assert_eq!(result, -1);
}

/// The arguments of `podstuck-call`.
pub(crate) fn words<'a>(verb: &'a str, rest: &[&'a Path]) -> Vec<&'a OsStr> {
    [OsStr::new(verb)].into_iter().chain(rest.iter().map(|p| p.as_os_str())).collect()
}

/// One failing call on `object`, and its record.
pub(crate) fn expect(verb: &str, arguments: &[&Path], object: &Path) {
    let records = observe(|| {
        call(&words(verb, arguments));
    });
    check(failed(&records), object);
}

/// That a record names its object fully and agrees with the text about the target.
pub(crate) fn check(record: &Record, object: &Path) {
    assert_eq!(record.path(), object);
    assert_eq!(record.head.flaws, 0);
    let (_, trail) = target_root(object).expect("the text has a target");
    assert_eq!(trail.target, record.head.target, "kernel and text disagree");
    let text = object.as_os_str().as_bytes();
    if text.len() < SEARCHED {
        assert_eq!(record.head.object, path_hash(text), "kernel and text disagree on {object:?}");
    }
}

/// How much of an argument the probes read.
const SEARCHED: usize = 512;
