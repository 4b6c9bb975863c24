//! The helper process where another process is: in its root directory and its network, so that the paths
//! and addresses that it was told mean what they mean to it. An absolute link in them, as kubelet's
//! `kubelet-client-current.pem` is, leads nowhere from elsewhere.

use std::{
    fs::{self, File},
    os::{fd::AsFd, linux::fs::MetadataExt, unix::fs::chroot},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{
    identity::on_host,
    proc::{COMMAND_LINE, command_line},
};

/// `/proc/PID` of the host.
pub(super) fn directory(host_root: &Path, pid: u32) -> PathBuf {
    on_host(host_root, Path::new("/proc")).join(pid.to_string())
}

/// Goes there. For a helper process that is about to answer one question.
///
/// # Errors
/// Fails when the process has ended, or when that takes a privilege that is missing.
pub(super) fn enter(host_root: &Path, pid: u32) -> Result<()> {
    let process = directory(host_root, pid);
    let root = process.join("root");
    let same = |own: &str, other: &Path| -> Result<bool> {
        let (own, other) = (fs::metadata(own)?, fs::metadata(other)?);
        Ok((own.st_dev(), own.st_ino()) == (other.st_dev(), other.st_ino()))
    };
    let network = process.join("ns/net");
    if !same("/proc/self/ns/net", &network).with_context(|| format!("the network of pid {pid}"))? {
        let network = File::open(network)?;
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
            .with_context(|| format!("entering the network of pid {pid}"))?;
    }
    if !same("/", &root).with_context(|| format!("the root directory of pid {pid}"))? {
        chroot(&root).with_context(|| format!("entering the root directory of pid {pid}"))?;
        std::env::set_current_dir("/").context("entering it")?;
    }
    Ok(())
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

    #[test]
    fn who_is_here_already_stays() {
        enter(Path::new("/"), std::process::id()).unwrap();
        assert!(Path::new("/proc/self/status").exists());
        assert!(!words(Path::new("/"), std::process::id()).unwrap().is_empty());
        let gone = enter(Path::new("/"), u32::MAX >> 1).unwrap_err();
        assert!(format!("{gone:#}").contains("pid"), "{gone:#}");
    }
}
