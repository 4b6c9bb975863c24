//! Whether a directory in the paths of calls can be a kubelet's root directory. The path of a call proves nothing: a
//! user's program, or one of root's that cleans up after it, may use paths like a pod's. But in kubelet's root, only root
//! can create a directory.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use rustix::fs::{OFlags, StatxFlags};
use serde::{Deserialize, Serialize};

use super::{namespaces, seen_by::Root};
use crate::identity::target_roots::{Holds, TargetRoot};
use podstuck_confine::helper::{Budget, Question, Teller, ask};
use podstuck_confine::role::Role;
use podstuck_model::path::safe_path;

/// A directory in which a process of the node works on what reads like pods' directories.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Above the directories of pods.
    pub root: PathBuf,
    /// The process.
    pub pid: u32,
    /// Its mount namespace.
    pub namespace: u32,
}

impl Candidate {
    /// The root directory that it is.
    ///
    /// # Errors
    /// Returns why it is no kubelet root, or why that is not known.
    pub fn examine(self, host_root: &Path) -> Result<TargetRoot, String> {
        let host = namespaces::of_process(1).or_else(|| namespaces::of_process(std::process::id()));
        let of_host = self.namespace == 0 || Some(self.namespace) == host;
        let pid = match of_host {
            true => None,
            // It may have ended since: a helper of kubelet's lives for milliseconds.
            false => Some(in_namespace(self.pid, self.namespace).ok_or("the process has ended")?),
        };
        let (host_root, root) = (host_root.into(), self.root.clone().into());
        let found = ask(ExamineRoot { host_root, pid, root }).map_err(|why| why.to_string())??;
        let root = TargetRoot::of_host(self.root, Holds::Pods);
        let root = TargetRoot { canonical: Some(found.into()), ..root };
        Ok(pid.map_or(root.clone(), |pid| root.seen_by(pid, self.namespace)))
    }
}

/// A process in a mount namespace: this one as long as it lives.
fn in_namespace(pid: u32, namespace: u32) -> Option<u32> {
    if namespaces::of_process(pid) == Some(namespace) {
        return Some(pid);
    }
    namespaces::with_processes().get(&namespace)?.first().copied()
}

/// Whether a directory, as a process or the host sees it, has kubelet's `pods`, and is root's alone.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ExamineRoot {
    host_root: PathBuf,
    pid: Option<u32>,
    root: OsString,
}

impl Question for ExamineRoot {
    const BUDGET: Budget = Budget::Roots;
    const ROLE: Role = Role::HelperBeneath;
    type Step = ();
    type Part = ();
    /// Its path without symbolic links, or why it is no kubelet root.
    type Answer = Result<OsString, String>;

    fn enters(&self) -> Option<(u32, &Path)> {
        Some((self.pid.unwrap_or_else(std::process::id), self.root.as_ref()))
    }

    fn answer(self, _: &mut Teller<(), ()>) -> Result<Result<OsString, String>> {
        let top = match self.pid {
            Some(pid) => PathBuf::from(format!("/proc/{pid}/root")),
            None => self.host_root,
        };
        Ok(examine(&top, self.root.as_ref()).map(Into::into))
    }
}

fn examine(top: &Path, root: &Path) -> Result<PathBuf, String> {
    let failed = |error: std::io::Error| error.to_string();
    let top = Root::at(top).map_err(failed)?;
    let shown = |path: &Path| safe_path(path).into_owned();
    let held = top.open(root, OFlags::DIRECTORY).map_err(failed)?;
    let above = fs::read_link(top.open(Path::new("/"), OFlags::DIRECTORY).map_err(failed)?.path());
    let found = fs::read_link(held.path()).map_err(failed)?;
    let found = found.strip_prefix(above.map_err(failed)?).unwrap_or(&found);
    let found = Path::new("/").join(found);
    let pods = found.join("pods");
    let mut ways: Vec<&Path> = pods.ancestors().collect();
    ways.reverse();
    let mut is_sticky = false;
    for way in ways {
        let stat = top.directory(way).and_then(|held| held.statx(StatxFlags::BASIC_STATS));
        let stat = stat.map_err(|error| format!("{}: {error}", shown(way)))?;
        // In a directory like `/tmp`, other users cannot replace root's entries.
        if stat.stx_uid != 0 || (stat.stx_mode & 0o022 != 0 && stat.stx_mode & 0o1000 == 0) {
            let (owner, mode) = (stat.stx_uid, stat.stx_mode & 0o7777);
            return Err(format!(
                "{} is not root's alone (owner {owner}, mode {mode:o})",
                shown(way)
            ));
        }
        is_sticky = stat.stx_mode & 0o1000 != 0 && stat.stx_mode & 0o022 != 0;
    }
    // `pods` itself must not be writable for others: in a sticky one any user can create a directory.
    if is_sticky { Err(format!("every user may write to {}", shown(&pods))) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn a_kubelets_root_is_roots_alone_and_has_pods() {
        if !rustix::process::getuid().is_root() {
            return podstuck_testing::skip("root is needed to make directories of root's");
        }
        let top = tempfile::tempdir().unwrap();
        let at = |path: &str| top.path().join(path);
        fs::create_dir_all(at("data/kubelet/pods")).unwrap();
        symlink("/data/kubelet", at("kubelet")).unwrap();
        let look = |path: &str| examine(top.path(), Path::new(path));
        assert_eq!(look("/data/kubelet"), Ok("/data/kubelet".into()));
        assert_eq!(look("/kubelet"), Ok("/data/kubelet".into()));
        assert!(look("/data").unwrap_err().contains("/data/pods"));
        let mode = |path: &str, mode| {
            fs::set_permissions(at(path), PermissionsExt::from_mode(mode)).unwrap();
        };
        mode("data", 0o1777);
        assert!(look("/data/kubelet").is_ok(), "as in /tmp");
        mode("data", 0o777);
        assert!(look("/data/kubelet").unwrap_err().contains("/data is not root's alone"));
        mode("data", 0o755);
        mode("data/kubelet/pods", 0o1777);
        assert!(look("/data/kubelet").unwrap_err().contains("every user may write"));
        mode("data/kubelet/pods", 0o750);
        chown(at("data/kubelet"), Some(1000), None).unwrap();
        assert!(look("/data/kubelet").unwrap_err().contains("owner 1000"));
    }
}
