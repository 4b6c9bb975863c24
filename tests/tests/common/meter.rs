//! What a running tool takes, and its helpers.
#![allow(dead_code, unreachable_pub, reason = "each uses a part of this")]

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Looks at them again and again.
pub struct Meter {
    stop: Arc<AtomicBool>,
    tool: Arc<AtomicU64>,
    helpers: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Meter {
    pub fn start(pid: u32) -> Self {
        let (stop, tool, helpers) = <(Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let mine = (stop.clone(), tool.clone(), helpers.clone());
        let look = move || {
            let (stop, tool, helpers) = mine;
            while !stop.load(Relaxed) {
                tool.fetch_max(peak(pid), Relaxed);
                for helper in children(pid) {
                    helpers.fetch_max(peak(helper), Relaxed);
                }
                thread::sleep(Duration::from_millis(5));
            }
        };
        Self { stop, tool, helpers, thread: Some(thread::spawn(look)) }
    }

    /// The most that the tool had in memory so far, and the most of one of its helpers, in MiB.
    pub fn peaks(&self) -> (u64, u64) {
        (self.tool.load(Relaxed) >> 10, self.helpers.load(Relaxed) >> 10)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The largest that a process was, in KiB; 0 when it has ended.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|text| text.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
}

/// Of all its threads.
fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    texts
        .flat_map(|text| text.split_whitespace().flat_map(str::parse).collect::<Vec<u32>>())
        .collect()
}
