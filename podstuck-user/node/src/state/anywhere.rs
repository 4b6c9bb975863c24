//! Whether a path is anywhere on the node, as any of its processes sees it.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Result;
use nix::libc;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::{namespaces, seen_by::Root};
use podstuck_confine::helper::{Budget, Question, Teller, ask};
use podstuck_confine::role::Role;

/// Looks in the root directory of the host, and in that of each of these processes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FindAnywhere {
    host_root: OsString,
    pids: Vec<u32>,
    path: OsString,
}

impl Question for FindAnywhere {
    const BUDGET: Budget = Budget::Roots;
    const ROLE: Role = Role::HelperBeneath;
    type Step = ();
    type Part = ();
    /// Whether it may be somewhere: what may not be looked at may have it.
    type Answer = bool;

    fn answer(self, _: &mut Teller<(), ()>) -> Result<bool> {
        let roots = self.pids.iter().map(|pid| PathBuf::from(format!("/proc/{pid}/root")));
        let mut roots = [PathBuf::from(&self.host_root)].into_iter().chain(roots);
        Ok(roots.any(|root| may_be_below(&root, Path::new(&self.path))))
    }
}

fn may_be_below(root: &Path, path: &Path) -> bool {
    let root = match Root::at(root) {
        Ok(root) => root,
        // The process has ended, and its root with it.
        Err(error) => return !is_not_there(&error),
    };
    root.open(path, OFlags::NOFOLLOW).map_or_else(|error| !is_not_there(&error), |_| true)
}

fn is_not_there(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ESRCH))
}

/// In how many root directories beside the host's a path was looked for in vain; `None` where it is in one of
/// them, or one of them does not answer.
pub fn is_nowhere(host_root: &Path, path: &Path) -> Option<usize> {
    let mut roots: BTreeMap<(u32, PathBuf), u32> = BTreeMap::new();
    for (namespace, pids) in namespaces::with_processes() {
        for pid in pids {
            // Reading the link enters no file system.
            if let Ok(root) = fs::read_link(format!("/proc/{pid}/root")) {
                roots.entry((namespace, root)).or_insert(pid);
            }
        }
    }
    let looked = roots.len();
    let (host_root, path, pids) = (host_root.into(), path.into(), roots.into_values().collect());
    match ask(FindAnywhere { host_root, pids, path }) {
        Ok(false) => Some(looked),
        Ok(true) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_to_be_missing_everywhere_is_nowhere() {
        let pids = vec![std::process::id(), u32::MAX >> 1];
        let anywhere = |path: &str| {
            let (host_root, path) = ("/nonexistent".into(), path.into());
            FindAnywhere { host_root, pids: pids.clone(), path }.answer(&mut Teller::new()).unwrap()
        };
        assert!(anywhere("/proc"), "a process sees it, and the host does not");
        assert!(!anywhere("/nonexistent") && !anywhere("/proc/version/below"));
        let long = format!("/{}", "x".repeat(300));
        assert!(anywhere(&long), "the kernel did not look: ENAMETOOLONG");
    }
}
