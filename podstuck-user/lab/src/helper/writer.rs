//! Keeps writing into a directory.

use std::{fs, path::Path, thread, time::Duration};

/// Far more often than kubelet's part deletes.
const EVERY: Duration = Duration::from_millis(2);
/// Names written again and again, so that there are never many.
const NAMES: u32 = 8;

/// Writes until the process ends.
pub(super) fn write(directory: &Path) -> ! {
    let mut number = 0;
    loop {
        number = (number + 1) % NAMES;
        // One that was kept from running finds the directory gone, and makes it again, as many programs do. Once what
        // that lies in is gone there is nothing to be done.
        if fs::write(directory.join(format!("part-{number}")), "data\n").is_err() {
            let _ = fs::create_dir(directory);
        }
        thread::sleep(EVERY);
    }
}
