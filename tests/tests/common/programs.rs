//! Programs of this machine, and the runtimes of another release in their place.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use nix::mount::{MsFlags, mount};
pub(crate) use podstuck_tests::done as output;
use podstuck_tests::{root_and_btf, skip};

/// Debian's programs, not whatever lies in `/usr/local`.
const PROGRAMS: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Names the root of another release, whose daemons and clients are tested in place of the machine's.
const DAEMONS: &str = "PODSTUCK_DAEMONS";
/// What is taken from there.
const OF_RUNTIMES: [&str; 5] = ["containerd", "ctr", "dockerd", "docker", "podman"];
/// Has the other release's `/usr` in a mount namespace of its own, so that its programs find their libraries, and are
/// called what they are called. What is mounted on our own directory is seen in both.
const BESIDE: &str = "mount --make-private / && mount --bind \"$0\" /usr && exec \"$@\"";

pub(crate) fn program(name: &str) -> Command {
    let other = std::env::var_os(DAEMONS).filter(|_| OF_RUNTIMES.contains(&name));
    let mut command = Command::new(if other.is_some() { "unshare" } else { name });
    if let Some(root) = other {
        command.args(["--mount", "--propagation", "unchanged", "sh", "-c", BESIDE]);
        command.arg(Path::new(&root).join("usr")).arg(name);
    }
    command.env("PATH", PROGRAMS).stdin(Stdio::null());
    command
}

/// What starts and removes containers for all of them: runc, unless something else is named.
pub(crate) fn oci_runtime() -> String {
    std::env::var("PODSTUCK_OCI_RUNTIME").unwrap_or_else(|_| "runc".into())
}

/// Whether the runtimes are not the machine's own.
pub(crate) fn is_of_another_release() -> bool {
    std::env::var_os(DAEMONS).is_some()
}

/// Has what is mounted below a mount point be seen in the other release's mount namespace, too, and the reverse.
pub(crate) fn share(point: &Path) {
    if is_of_another_release() {
        mount(None::<&str>, point, None::<&str>, MsFlags::MS_SHARED, None::<&str>).unwrap();
    }
}

/// Whether a test that starts these can run here; if not, it is noted as skipped.
pub(crate) fn has_programs(names: &[&str]) -> bool {
    if let Err(reason) = root_and_btf() {
        skip(reason);
        return false;
    }
    let is_installed =
        |name: &str| PROGRAMS.split(':').any(|dir| Path::new(dir).join(name).exists());
    let missing = names.iter().find(|name| !is_installed(name));
    if let Some(name) = missing {
        skip(format!("no {name} in {PROGRAMS}"));
    }
    missing.is_none()
}

/// Sets or takes an attribute of a file, as with `+i`.
pub(crate) fn chattr(word: &str, path: &str) {
    let mut chattr = program("chattr");
    chattr.args([word, path]);
    output(chattr);
}

/// The one layer of an image with a shell, as an archive. Its files are made below a directory.
pub(crate) fn busybox(below: &Path) -> Vec<u8> {
    let image = below.join("image");
    fs::create_dir_all(image.join("bin")).unwrap();
    // Debian's package busybox-static.
    fs::copy("/bin/busybox", image.join("bin/busybox")).unwrap();
    for name in ["sh", "sleep", "mkdir", "touch", "rm"] {
        let link = image.join("bin").join(name);
        if !link.is_symlink() {
            std::os::unix::fs::symlink("busybox", link).unwrap();
        }
    }
    let mut tar = program("tar");
    tar.arg("-C").arg(&image).args(["-c", "."]);
    let layer = tar.output().unwrap();
    assert!(layer.status.success(), "tar: {}", String::from_utf8_lossy(&layer.stderr));
    layer.stdout
}
