//! An agent that reads in volumes, as those of logs and of security do: it happens to have a descriptor in one when
//! that is unmounted, and has closed it when kubelet tries again.

use std::{fs::File, os::linux::fs::MetadataExt, path::Path, thread, time::Duration};

/// How long it reads on.
const READS: Duration = Duration::from_millis(100);
/// How often it looks.
const LOOKS: Duration = Duration::from_millis(1);

/// Keeps the volume busy while `ready` exists, which kubelet removes just before it unmounts, and a little longer.
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
