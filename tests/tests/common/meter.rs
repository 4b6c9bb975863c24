//! What a running tool takes, and each process that it starts.
#![allow(dead_code, unreachable_pub, reason = "each uses a part of this")]

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// How often they are read: most helpers live for a few milliseconds.
const EVERY: Duration = Duration::from_millis(2);

/// By the name of the process, the most that one of them had in memory, in KiB.
type Peaks = BTreeMap<String, u64>;

/// Looks at them again and again.
pub struct Meter {
    stop: Arc<AtomicBool>,
    peaks: Arc<Mutex<Peaks>>,
    thread: Option<JoinHandle<()>>,
}

impl Meter {
    pub fn start(pid: u32) -> Self {
        let (stop, peaks) = <(Arc<AtomicBool>, Arc<Mutex<Peaks>>)>::default();
        let mine = (stop.clone(), peaks.clone());
        let look = move || {
            let (stop, peaks) = mine;
            while !stop.load(Relaxed) {
                look(pid, &mut peaks.lock().unwrap());
                thread::sleep(EVERY);
            }
        };
        Self { stop, peaks, thread: Some(thread::spawn(look)) }
    }

    /// The most that a process of this name had in memory so far, in MiB.
    pub fn peak_of(&self, name: &str) -> u64 {
        let peaks = self.peaks.lock().unwrap();
        println!("measured: peaks in KiB: {peaks:?}");
        peaks[name].div_ceil(1 << 10)
    }

    /// The most that the tool had in memory so far, and the most of one of the processes that it started, in MiB.
    pub fn peaks(&self) -> (u64, u64) {
        let peaks = self.peaks.lock().unwrap();
        println!("measured: peaks in KiB: {peaks:?}");
        let (own, others): (Vec<_>, Vec<_>) =
            peaks.iter().partition(|(name, _)| *name == "podstuck");
        let most = |of: Vec<(&String, &u64)>| of.into_iter().map(|(_, kib)| *kib).max();
        (most(own).unwrap_or(0) >> 10, most(others).unwrap() >> 10)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// At a process, and at all below it: helpers are children of the fork server.
fn look(pid: u32, peaks: &mut Peaks) {
    // It may have ended since.
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| {
        let mut lines = status.lines().filter_map(|line| line.strip_prefix(name));
        lines.next().map(str::trim)
    };
    let most = || field("VmHWM:")?.strip_suffix(" kB")?.parse::<u64>().ok();
    if let (Some(name), Some(kib)) = (field("Name:"), most()) {
        let peak = peaks.entry(name.to_owned()).or_insert(0);
        *peak = kib.max(*peak);
    }
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for task in tasks {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children.split_whitespace().flat_map(str::parse).for_each(|child| look(child, peaks));
    }
}
