//! A disk with a complete Debian release, for guests whose tests need more than fits into an in-memory archive: real
//! runtimes.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use podstuck_process as process;

/// Includes room for what the tests write. The file is sparse, and a guest's changes are discarded.
const SIZE: u64 = 12 << 30;
/// Folders that are links into `/usr`. The package that creates them cannot be unpacked beside others.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// The image of a disk with the contents of `root`, created below `folder`.
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
