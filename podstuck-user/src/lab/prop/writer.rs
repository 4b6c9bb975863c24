//! Somebody who goes on writing into a volume that is removed: the lab's own process, which is
//! another one than kubelet's part.

use std::{
    fs::{self, File},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result};

use super::{Pod, Staged};
use crate::lab::build;

/// Far more often than kubelet's part deletes.
const EVERY: Duration = Duration::from_millis(2);
/// Names written again and again, so that there are never many.
const NAMES: u32 = 8;

struct Writer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Starts to write into the `data` volume.
pub(super) fn stage(pod: &Pod) -> Result<Staged> {
    let directory = pod.directory().join("volumes/kubernetes.io~empty-dir/data/export");
    build::make(&directory)?;
    // Kept open, also when it is deleted: that is how the writer is found.
    let log = directory.join("log");
    let open = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = thread::Builder::new()
        .name("writer".into())
        .spawn(move || write(directory, open, &stopped))
        .context("cannot start a thread")?;
    Ok(Box::new(Writer { stop, thread: Some(thread) }))
}

fn write(directory: PathBuf, _open: File, stopped: &AtomicBool) {
    for number in (0..NAMES).cycle() {
        if stopped.load(Ordering::Relaxed) {
            return;
        }
        // Fails once the directory is gone, and then there is nothing to be done.
        let _ = fs::write(directory.join(format!("part-{number}")), "data\n");
        thread::sleep(EVERY);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
