//! A disk with a whole release of Debian's on it, for guests whose tests start what an archive in memory has no room
//! for: real runtimes.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use podstuck_process as process;

/// With room for what the tests write, which no file of ours takes: it is sparse, and a guest's changes are its own.
const SIZE: u64 = 12 << 30;
/// Folders that lie in `/usr`, which a package makes that cannot be unpacked beside others.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// The file of a disk that holds what was unpacked into this folder, made below another one.
pub(super) fn image(root: &Path, folder: &Path) -> Result<PathBuf> {
    let image = folder.join("runtimes.img");
    let changed = |file: &Path| fs::metadata(file).and_then(|file| file.modified());
    let is_newer = || Some(changed(&image).ok()? > changed(&root.join("packages")).ok()?);
    if is_newer() == Some(true) {
        return Ok(image);
    }
    for name in MERGED {
        let link = root.join(name);
        if !link.exists() {
            symlink(format!("usr/{name}"), &link)
                .with_context(|| format!("cannot create {}", link.display()))?;
        }
    }
    let unfinished = image.with_extension("new");
    let cannot = || format!("cannot write {}", unfinished.display());
    File::create(&unfinished).and_then(|file| file.set_len(SIZE)).with_context(cannot)?;
    process::output(Command::new("mkfs.ext4").args(["-q", "-F", "-d"]).arg(root).arg(&unfinished))?;
    fs::rename(&unfinished, &image).with_context(cannot)?;
    Ok(image)
}
