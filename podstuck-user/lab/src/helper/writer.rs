//! Keeps writing into a directory.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
    thread,
    time::Duration,
};

/// Interval between writes: much shorter than the removal's interval between deletions.
const EVERY: Duration = Duration::from_millis(2);
/// Number of file names, which are reused so that there are never many files.
const NAMES: u32 = 8;

/// Writes until the process ends.
pub(super) fn write(directory: &Path) -> ! {
    let mut number = 0;
    loop {
        number = (number + 1) % NAMES;
        // The directory may have been removed while this process did not run. Like many programs, it recreates it; if
        // the parent is gone too, this fails and is ignored.
        if write_part(&directory.join(format!("part-{number}"))).is_err() {
            let _ = fs::create_dir(directory);
        }
        thread::sleep(EVERY / 2);
    }
}

/// Writes a file, and has it open half of the time, as a program that writes more than a line has.
fn write_part(path: &Path) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(b"data\n")?;
    thread::sleep(EVERY / 2);
    Ok(())
}
