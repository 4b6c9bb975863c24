//! An agent that reads volumes, like log and security agents: it has a descriptor open when the volume is unmounted
//! and has closed it when kubelet retries.

use std::{fs::File, os::linux::fs::MetadataExt, path::Path, thread, time::Duration};

/// How long it keeps the descriptor afterwards.
const READS: Duration = Duration::from_millis(100);
/// Polling interval.
const LOOKS: Duration = Duration::from_millis(1);

/// Keeps the volume open while `ready` exists, and a little longer. kubelet removes `ready` just before it unmounts.
pub(super) fn read(volume: &Path, ready: &Path) -> ! {
    loop {
        let held = (is_mounted(volume) && ready.exists()).then(|| File::open(volume));
        if held.is_some() {
            while ready.exists() {
                thread::sleep(LOOKS);
            }
            thread::sleep(READS);
        }
        drop(held);
        thread::sleep(LOOKS);
    }
}

fn is_mounted(volume: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|metadata| metadata.st_dev());
    let own = device(volume);
    own.is_ok() && own.ok() != volume.parent().and_then(|above| device(above).ok())
}
