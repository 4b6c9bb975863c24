//! The helper process where another process is: in its root directory and its network, so that paths
//! and addresses mean the same as to that process. An absolute link in them, as kubelet's
//! `kubelet-client-current.pem` is, leads nowhere from elsewhere.

use std::{
    fs::{self, File},
    os::{fd::AsFd, linux::fs::MetadataExt, unix::fs::chroot},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::only_roots::OnlyRoots;
use crate::identity::on_host;
use podstuck_confine::proc::{COMMAND_LINE, command_line, parse_mounts};
use podstuck_confine::{
    alive::{self, Occasion},
    helper::NotEntered,
};
use podstuck_model::mounts::Mounts;

/// `/proc/PID` of the host.
pub(super) fn directory(host_root: &Path, pid: u32) -> PathBuf {
    on_host(host_root, Path::new("/proc")).join(pid.to_string())
}

/// What is mounted where a helper is.
pub(super) struct Inside(Option<Mounts>);

impl Inside {
    /// Whether the file system of a path lives. Nothing is asked of it.
    ///
    /// # Errors
    /// Says why it is not to be entered.
    pub(super) fn lives(&self, path: &Path) -> Result<(), NotEntered> {
        let why = self.0.as_ref().and_then(|it| alive::why_not_in(it, path, Occasion::Unknown));
        why.map_or(Ok(()), |why| Err(NotEntered(why)))
    }

    /// Reads files there that only root can have written.
    pub(super) fn only_roots(&self) -> OnlyRoots<'_> {
        OnlyRoots(self.0.as_ref())
    }
}

/// Goes there. For a helper process that is about to answer one question.
///
/// # Errors
/// Fails when the process has ended, or when that takes a privilege that is missing.
pub(super) fn enter(host_root: &Path, pid: u32) -> Result<Inside> {
    let process = directory(host_root, pid);
    // Where it goes there may be no `/proc`.
    let table = fs::read(process.join("mountinfo")).ok();
    let inside = Inside(table.map(|text| parse_mounts(pid, &text)));
    let root = process.join("root");
    enter_network(host_root, pid)?;
    if !is_same("/", &root).with_context(|| format!("the root directory of pid {pid}"))? {
        chroot(&root).with_context(|| format!("entering the root directory of pid {pid}"))?;
        std::env::set_current_dir("/").context("entering it")?;
    }
    Ok(inside)
}

/// Goes into its network, and stays in its own root directory.
///
/// # Errors
/// As [`enter`].
pub(super) fn enter_network(host_root: &Path, pid: u32) -> Result<()> {
    let network = directory(host_root, pid).join("ns/net");
    if !is_same("/proc/self/ns/net", &network)
        .with_context(|| format!("the network of pid {pid}"))?
    {
        let network = File::open(network)?;
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
            .with_context(|| format!("entering the network of pid {pid}"))?;
    }
    Ok(())
}

fn is_same(own: &str, other: &Path) -> Result<bool> {
    let (own, other) = (fs::metadata(own)?, fs::metadata(other)?);
    Ok((own.st_dev(), own.st_ino()) == (other.st_dev(), other.st_ino()))
}

/// The words of its command line.
///
/// # Errors
/// Fails when the process has ended.
pub(super) fn words(host_root: &Path, pid: u32) -> Result<Vec<String>> {
    let text = command_line(&directory(host_root, pid), COMMAND_LINE)
        .with_context(|| format!("the command line of pid {pid}"))?;
    let words =
        text.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    Ok(words.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use podstuck_model::hung::MountPoint;

    #[test]
    fn what_does_not_live_is_not_entered() {
        let text = b"1 0 0:3 / / rw - tmpfs a rw\n2 1 0:4194295 / /etc rw - nfs4 s:/x rw\n";
        let inside = Inside(Some(parse_mounts(7, text)));
        let on = MountPoint { fs_type: "nfs4".into(), minor: 4_194_295, ..MountPoint::default() };
        alive::hangs(4_194_996, &on);
        let why = inside.lives(Path::new("/etc/kubernetes/config")).unwrap_err().to_string();
        assert!(why.contains("/etc (nfs4)"), "{why}");
        inside.lives(Path::new("/var/lib/kubelet/config")).unwrap();
        alive::hangs_no_more(4_194_996);
    }

    #[test]
    fn who_is_here_already_stays() {
        let inside = enter(Path::new("/"), std::process::id()).unwrap();
        inside.lives(Path::new("/proc/self/status")).unwrap();
        assert!(Path::new("/proc/self/status").exists());
        assert!(!words(Path::new("/"), std::process::id()).unwrap().is_empty());
        let gone = enter(Path::new("/"), u32::MAX >> 1).err().unwrap();
        assert!(format!("{gone:#}").contains("pid"), "{gone:#}");
    }
}
