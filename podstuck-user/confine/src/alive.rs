//! Tells whether a file system answers, from data that can be read without entering it: requests that FUSE servers
//! have not answered (`/sys/fs/fuse/connections`), requests that block devices have begun and not completed, whether
//! those devices are suspended (`/sys/dev/block`), and calls known to hang there. An overlay is followed to the file
//! systems of its layers, btrfs to its devices (`lies_on`). A process that enters a dead file system does not return,
//! and keeps it busy.
//!
//! A stopped FUSE server shows nothing of a request that was withdrawn, as after its helper was killed. So a file
//! system that did not answer a helper is remembered, and entered at growing intervals.

use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::proc;
use crate::{
    back_off::BackOff,
    lies_on,
    mount_point::{unanswered, waiting},
};
use podstuck_model::{
    degraded::{Degraded, Feed},
    file_system::{has_server, is_fuse},
    hung::MountPoint,
    mounts::{Device, Mount, Mounts},
    path::{safe, safe_path},
};

/// A device or server that completes nothing in this time does not answer: disks take milliseconds, a busy one some
/// hundred.
const LONG: Duration = Duration::from_secs(1);
/// Interval between two reads of what has been completed.
const PAUSE: Duration = Duration::from_millis(20);

/// Threads in hung calls, by thread id, and the file system of each, by type and minor number.
static HANGING: Mutex<BTreeMap<u32, (String, u32)>> = Mutex::new(BTreeMap::new());
/// File systems whose servers did not answer a helper the last time, by type and minor number.
static SILENT: Mutex<BTreeMap<(String, u32), BackOff>> = Mutex::new(BTreeMap::new());
/// Places that scans of the node leave out, each with the reason.
static LEFT_OUT: Mutex<BTreeMap<(PathBuf, String), BTreeSet<Feed>>> = Mutex::new(BTreeMap::new());

/// Places that could not be read the last time, each with the error.
static UNREAD: Mutex<BTreeMap<(Feed, PathBuf), String>> = Mutex::new(BTreeMap::new());

/// Why a path is to be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// A call has returned from there just now.
    Answered,
    /// Nothing is known.
    Unknown,
}

/// Notes that a thread hangs.
pub fn hangs(tid: u32, on: &MountPoint) {
    if has_server(&on.fs_type) {
        of(&HANGING).insert(tid, (on.fs_type.clone(), on.minor));
    }
}

/// Notes that a thread no longer hangs, or is no longer followed.
pub fn hangs_no_more(tid: u32) {
    of(&HANGING).remove(&tid);
}

/// Notes whether a path, as a process sees it, answered a helper. One missing answer counts for every mount of the
/// same server, in all mount namespaces.
pub fn came_to(pid: u32, path: &Path, answer: bool) {
    if answer && of(&SILENT).is_empty() {
        return;
    }
    if let Some(table) = proc::mounts(pid) {
        came_to_on(&table, path, answer);
    }
}

fn came_to_on(table: &Mounts, path: &Path, answer: bool) {
    let served = |mount: &&Mount| has_server(&mount.fs_type);
    let Some(mount) = table.covering(path).filter(served) else { return };
    let key = (mount.fs_type.clone(), mount.device.minor);
    if answer {
        of(&SILENT).remove(&key);
    } else {
        // The next try is after the first pause.
        of(&SILENT).entry(key).or_default().is_due(Instant::now());
    }
}

/// Why a path, as a process sees it, is not tried again: its server did not answer the last time.
pub(crate) fn why_silent(pid: u32, path: &Path) -> Option<String> {
    let table = (!of(&SILENT).is_empty()).then(|| proc::mounts(pid)).flatten()?;
    let mount = table.covering(path)?;
    silent(mount).map(|why| does_not_answer(mount, &why))
}

/// Why a path is not to be entered as a process sees it.
pub fn why_not(pid: u32, path: &Path, occasion: Occasion) -> Option<String> {
    // A process that has ended has no mount table: this process's is used.
    let table = proc::mounts(pid).or_else(|| proc::mounts(std::process::id()))?;
    why_not_in(&table, path, occasion)
}

/// Why a path is not to be entered, by this mount table.
pub fn why_not_in(table: &Mounts, path: &Path, occasion: Occasion) -> Option<String> {
    Looking::new(table, occasion).up_from(table.covering(path)?)
}

/// Why an open file of a process is not to be entered, by the mount that the descriptor was opened through. Needs no
/// path.
pub fn why_not_open(process: &Path, pid: u32, descriptor: u32) -> Option<String> {
    let text = fs::read_to_string(process.join(format!("fdinfo/{descriptor}"))).ok()?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()?;
    let text = fs::read(process.join("mountinfo")).ok()?;
    let table = proc::parse_mounts(pid, &text);
    Looking::new(&table, Occasion::Unknown).up_from(table.by_id(id)?)
}

/// Walks from a mount to the mounts that it depends on, each once.
struct Looking<'a> {
    table: &'a Mounts,
    /// The mount table of the node's first process, in which layers of overlays are named. Read on first use.
    nodes: OnceCell<Option<Mounts>>,
    occasion: Occasion,
    passed: RefCell<BTreeSet<u32>>,
}

impl<'a> Looking<'a> {
    fn new(table: &'a Mounts, occasion: Occasion) -> Self {
        Self { table, nodes: OnceCell::new(), occasion, passed: RefCell::default() }
    }

    /// Why one of the mounts does not answer: this one, those above it, and those below an overlay.
    fn up_from(&self, mount: &'a Mount) -> Option<String> {
        let mut mount = Some(mount);
        // A table may be read while it changes, and so contain a cycle.
        while let Some(through) = mount.filter(|it| self.passed.borrow_mut().insert(it.id)) {
            if let Some(why) = self.why(through) {
                return Some(why);
            }
            mount = self.table.by_id(through.parent);
        }
        None
    }

    fn why(&self, through: &Mount) -> Option<String> {
        let was_silent = || silent(through).filter(|_| self.occasion == Occasion::Unknown);
        let why = was_silent()
            .or_else(|| fuse(through, self.occasion))
            .or_else(|| server(through))
            .or_else(|| lies_on::devices(through).into_iter().find_map(disk));
        if let Some(why) = why {
            return Some(does_not_answer(through, &why));
        }
        if through.fs_type != "overlay" {
            return None;
        }
        let nodes = self.nodes.get_or_init(|| proc::mounts(1));
        let below = nodes.as_ref().map(|nodes| lies_on::below(through, nodes)).unwrap_or_default();
        let mut below = below.into_iter().filter(|it| self.passed.borrow_mut().insert(it.id));
        below.find_map(|mount| self.why(mount))
    }
}

/// Whether scans for `feed` must leave out each of these places, in their order. [`degraded`] reports those left out
/// from now on. Decided by the mount table of the process that sees the place, where that is known.
pub fn left_out<'a>(
    feed: Feed,
    looks: impl Iterator<Item = (Option<&'a Mounts>, &'a Path)>,
) -> Vec<bool> {
    let (mut known, mut found) = (BTreeMap::new(), BTreeSet::new());
    let is_left_out = looks.map(|(table, path)| {
        // A dead file system takes a second to be recognized, whatever number of paths lead into it.
        let mount = table.and_then(|table| Some((table.pid, table.covering(path)?.id)));
        let why: &Option<String> =
            known.entry(mount).or_insert_with(|| why_not_in(table?, path, Occasion::Unknown));
        let sentence = |why| format!("is not examined, because {why}");
        found.extend(why.clone().map(|why| (path.to_owned(), sentence(why))));
        why.is_some()
    });
    let is_left_out = is_left_out.collect();
    let mut all = of(&LEFT_OUT);
    all.retain(|_, feeds| {
        feeds.remove(&feed);
        !feeds.is_empty()
    });
    for one in found {
        of(&UNREAD).remove(&(feed, one.0.clone()));
        all.entry(one).or_default().insert(feed);
    }
    is_left_out
}

/// Notes the outcome of a read of `path`: `failed` is the error.
pub fn looked(feed: Feed, path: &Path, failed: Option<&str>) {
    let key = (feed, path.to_owned());
    let mut all = of(&UNREAD);
    match failed {
        Some(why) => drop(all.insert(key, format!("could not be read: {why}"))),
        None => drop(all.remove(&key)),
    }
}

/// Places that are left out, and places that could not be read.
pub fn degraded() -> Vec<Degraded> {
    let finding = |path: &PathBuf, why: &str, feeds: Vec<Feed>| Degraded {
        sentence: format!("{} {why}", safe_path(path)),
        feeds,
        place: Some(path.clone()),
        is_passing: false,
    };
    let left_out = of(&LEFT_OUT);
    let left_out = left_out.iter().map(|((path, why), feeds)| (path, why, feeds.iter().copied()));
    let left_out = left_out.map(|(path, why, feeds)| finding(path, why, feeds.collect()));
    let mut unread: BTreeMap<(&PathBuf, &str), Vec<Feed>> = BTreeMap::new();
    let all = of(&UNREAD);
    for ((feed, path), why) in all.iter() {
        unread.entry((path, why)).or_default().push(*feed);
    }
    let unread = unread.into_iter().map(|((path, why), feeds)| finding(path, why, feeds));
    left_out.chain(unread).collect()
}

fn fuse(mount: &Mount, occasion: Occasion) -> Option<String> {
    // A mount on a block device goes by another number.
    if !is_fuse(&mount.fs_type) || mount.device.major != 0 {
        return None;
    }
    let minor = mount.device.minor;
    let hangs = is_known_to_hang(mount);
    // A busy user always has a request under way.
    if !hangs && occasion == Occasion::Answered {
        return None;
    }
    let first = unanswered(minor).filter(|n| *n > 0)?;
    if !hangs && comes_on(|| unanswered(minor).is_none_or(|now| now < first)) {
        return None;
    }
    // Without the count: a changed sentence would be reported as news.
    Some(format!("its server leaves requests unanswered ({})", waiting(minor)))
}

fn does_not_answer(mount: &Mount, why: &str) -> String {
    let (at, fs_type) = (safe_path(&mount.point), safe(mount.fs_type.as_bytes()));
    format!("the file system at {at} ({fs_type}) does not answer: {why}")
}

fn silent(mount: &Mount) -> Option<String> {
    let mut all = of(&SILENT);
    let back_off = all.get_mut(&(mount.fs_type.clone(), mount.device.minor))?;
    let is_due = back_off.is_due(Instant::now());
    (!is_due).then(|| "its server did not answer a helper of podstuck in time".into())
}

fn server(mount: &Mount) -> Option<String> {
    let is_remote = has_server(&mount.fs_type) && !is_fuse(&mount.fs_type);
    (is_remote && is_known_to_hang(mount)).then(|| "a call hangs there".into())
}

fn is_known_to_hang(mount: &Mount) -> bool {
    let it = (&mount.fs_type, mount.device.minor);
    of(&HANGING).values().any(|(fs_type, minor)| (fs_type, *minor) == it)
}

fn disk(device: Device) -> Option<String> {
    let file = |name: &str| format!("/sys/dev/block/{device}/{name}");
    let read = |name: &str| fs::read_to_string(file(name)).unwrap_or_default();
    if read("dm/suspended").trim() == "1" {
        return Some(format!("its device is suspended ({})", file("dm/suspended")));
    }
    let first = Work::of(&read("stat")).filter(|work| work.open > 0)?;
    let moves =
        || Work::of(&read("stat")).is_none_or(|now| now.open == 0 || now.done != first.done);
    if comes_on(moves) {
        return None;
    }
    Some(format!(
        "its device {device} has begun reads or writes and completed none for a second ({})",
        file("stat")
    ))
}

/// Whether `moves` becomes true within [`LONG`].
fn comes_on(moves: impl Fn() -> bool) -> bool {
    let end = Instant::now() + LONG;
    while !moves() {
        if Instant::now() >= end {
            return false;
        }
        thread::sleep(PAUSE);
    }
    true
}

/// Counters of a block device (Documentation/block/stat.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Work {
    /// Completed reads, writes, discards and flushes.
    done: u64,
    /// Requests begun and not completed.
    open: u64,
}

impl Work {
    fn of(stat: &str) -> Option<Self> {
        let fields: Vec<u64> =
            stat.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
        let field = |at: usize| fields.get(at).copied();
        // The last two exist since Linux 4.18 and 5.5.
        let done = [field(0)?, field(4)?, field(11).unwrap_or(0), field(15).unwrap_or(0)];
        let done = done.into_iter().fold(0, u64::saturating_add);
        Some(Self { done, open: field(8)? })
    }
}

fn of<T>(all: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "alive_tests.rs"]
mod tests;
