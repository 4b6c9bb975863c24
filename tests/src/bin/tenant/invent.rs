//! Directories that read like the volumes of pods, made and removed.

use std::{fs, path::Path};

use anyhow::{Context, Result};

/// Makes and removes the volumes of `count` pods, each of another one.
pub(crate) fn invent(top: &Path, count: u64) -> Result<()> {
    for number in 0..count {
        let pod = top.join(format!("pods/{:08x}-1111-4222-8333-{number:012x}", number % 7919));
        let volume = pod.join("volumes/kubernetes.io~empty-dir/data");
        fs::create_dir_all(&volume).with_context(|| volume.display().to_string())?;
        let below = volume.ancestors().take_while(|path| **path != *top.join("pods"));
        for directory in below {
            fs::remove_dir(directory).with_context(|| directory.display().to_string())?;
        }
    }
    Ok(())
}
