//! The kernel modules that the tests use, as uncompressed files that busybox can load.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use podstuck_process as process;

/// File systems for deletions, the loop device for their disks, the device mapper for disks that hang, the emulator's
/// disks, container networks, the socket diagnosis, which a node loads on demand, and NFS with its server.
pub(super) const WANTED: [&str; 14] = [
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
    "nfsv4",
    "nfsd",
];
/// Suffixes of compressed modules, each with the program that decompresses them in place.
const COMPRESSED: [(&str, &str); 3] = [("xz", "unxz"), ("zst", "unzstd"), ("gz", "gunzip")];
const FOLDER: &str = "modules";

/// Copies the wanted modules of an unpacked kernel and their dependencies.
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
        // This machine's configuration does not apply to the kernel.
        modprobe.args(["-C", "/dev/null", "-S", release, "--show-depends", "-d"]).arg(&base);
        // The output is `builtin NAME`, or `insmod PATH OPTIONS` for each module, in load order.
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

/// The modules that [`pick`] copied, in load order.
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
