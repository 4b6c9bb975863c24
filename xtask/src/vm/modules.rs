//! The kernel modules that the tests use, as plain files that busybox can load.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use podstuck_process as process;

/// File systems that deletions happen on, the loop device for a disk to put them on, what makes a disk hang, the
/// emulator's disks, the networks of containers, and the list of local sockets, which a node loads when it is asked for.
pub(super) const WANTED: [&str; 12] = [
    "loop",
    "ext4",
    "overlay",
    "fuse",
    "xfs",
    "vfat",
    "dm-mod",
    "virtio_pci",
    "virtio_blk",
    "bridge",
    "veth",
    "unix_diag",
];
/// Endings of compressed modules, each with the program that decompresses them in place.
const COMPRESSED: [(&str, &str); 3] = [("xz", "unxz"), ("zst", "unzstd"), ("gz", "gunzip")];
const FOLDER: &str = "modules";

/// Copies the wanted modules of an unpacked kernel, with those that they depend on.
pub(super) fn pick(unpacked: &Path, release: &str, place: &Path) -> Result<()> {
    let folder = place.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let base = [unpacked.to_path_buf(), unpacked.join("usr")]
        .into_iter()
        .find(|base| base.join("lib/modules").join(release).is_dir())
        .with_context(|| format!("the packages of Linux {release} hold no modules"))?;
    let program = |name: &str| process::find(name).with_context(|| format!("no {name}"));
    process::output(Command::new(program("depmod")?).arg("-b").arg(&base).arg(release))?;
    let mut order: Vec<PathBuf> = Vec::new();
    for wanted in WANTED {
        let mut modprobe = Command::new(program("modprobe")?);
        // This machine's own settings are not the kernel's.
        modprobe.args(["-C", "/dev/null", "-S", release, "--show-depends", "-d"]).arg(&base);
        // `builtin NAME`, or `insmod PATH OPTIONS` for each, in the order to load them.
        for line in process::output(modprobe.arg(wanted))?.lines() {
            let mut words = line.split_whitespace();
            if let (Some("insmod"), Some(path)) = (words.next(), words.next())
                && !order.iter().any(|known| known.as_path() == Path::new(path))
            {
                order.push(path.into());
            }
        }
    }
    for (number, path) in order.iter().enumerate() {
        let name = path.file_name().with_context(|| format!("{} has no name", path.display()))?;
        let copy = folder.join(format!("{number:02}-{}", name.display()));
        fs::copy(path, &copy).with_context(|| format!("cannot copy {}", path.display()))?;
        let ending = copy.extension().unwrap_or_default();
        match COMPRESSED.iter().find(|(compressed, _)| ending == *compressed) {
            Some((_, decompress)) => {
                process::output(Command::new(decompress).arg(&copy)).map(drop)?;
            }
            None if ending == "ko" => {}
            None => bail!("no program is known that decompresses {}", path.display()),
        }
    }
    Ok(())
}

/// What [`pick`] left, in the order in which to load it.
pub(super) fn list(place: &Path) -> Result<Vec<PathBuf>> {
    let folder = place.join(FOLDER);
    let cannot = || format!("cannot read {}", folder.display());
    let mut modules = Vec::new();
    for entry in fs::read_dir(&folder).with_context(cannot)? {
        modules.push(entry.with_context(cannot)?.path());
    }
    modules.sort();
    Ok(modules)
}
