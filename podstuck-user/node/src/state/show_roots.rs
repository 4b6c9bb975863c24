//! Shows the probes the directories that hold targets: the helper's side.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use nix::libc;
use podstuck_common::root::SHOW;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::seen_by::{Root, Seen, shown};
use crate::identity::{layout::normalise, on_host};
use podstuck_confine::{
    alive,
    helper::{Budget, Question, Teller, ask_each, ask_in_parts},
};
use podstuck_confine::{proc, role::Role};
use podstuck_model::{degraded::Feed, mounts::Mounts, path::safe_path};

/// A directory that is looked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sought {
    /// A process in whose root directory the path is to be understood; `None` for the host.
    pub pid: Option<u32>,
    /// Where it is, as that process sees it.
    pub path: OsString,
    /// By which the probes will know it; `None` for one that they need not know.
    pub index: Option<u32>,
}

impl Sought {
    /// Its name, for the report that it hangs.
    fn shown(&self) -> OsString {
        shown(&(self.pid, self.path.clone()))
    }

    /// The same as a process sees it.
    fn seen(&self, host_root: &Path) -> (u32, PathBuf) {
        match self.pid {
            Some(pid) => (pid, PathBuf::from(&self.path)),
            None => (std::process::id(), on_host(host_root, Path::new(&self.path))),
        }
    }

    /// One that the probes need not know.
    pub fn unshown(pid: Option<u32>, path: &Path) -> Self {
        Self { pid, path: path.into(), index: None }
    }
}

/// These directories are opened, and nothing is kept open.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ShowRoots {
    host_root: OsString,
    secret: u64,
    /// Each with its place in the question.
    sought: Vec<(usize, Sought)>,
    /// Only what the kernel finds without waiting.
    in_memory: bool,
}

impl Question for ShowRoots {
    const IS_SHORT: bool = true;
    const BUDGET: Budget = Budget::Roots;
    const ROLE: Role = Role::HelperBeneath;
    type Step = OsString;
    /// Which one, and its path without symbolic links; none of one that is not there.
    type Part = (usize, Option<OsString>);
    type Answer = ();

    fn answer(self, tell: &mut Teller<OsString, (usize, Option<OsString>)>) -> Result<()> {
        for (at, sought) in &self.sought {
            if !self.in_memory {
                tell.at(&sought.shown())?;
            }
            let top = match sought.pid {
                Some(pid) => PathBuf::from(format!("/proc/{pid}/root")),
                None => self.host_root.clone().into(),
            };
            let path = Path::new(&sought.path);
            let found = match beneath(&top, path, self.in_memory) {
                Ok(None) => continue,
                Ok(Some((directory, path))) => {
                    if let Some(index) = sought.index {
                        show(&directory, self.secret, index);
                    }
                    Some(path.into())
                }
                // Most runtimes are not here.
                Err(_) => None,
            };
            tell.part(&(*at, found))?;
        }
        Ok(())
    }
}

/// Where directories are that were sought.
#[derive(Debug, Default)]
pub struct Found {
    /// Their paths without symbolic links, in the order of the search; `None` where a path does not exist.
    pub paths: Vec<Option<PathBuf>>,
    /// Whether each of them was looked for to the end.
    pub is_all: bool,
}

/// Shows directories to the probes. Those whose path the kernel has in memory are found also where their disk
/// does not answer; of the others, what does not answer within two seconds is left out.
pub fn show_roots(host_root: &Path, secret: u64, sought: Vec<Sought>) -> Found {
    let mut open: Vec<(usize, Sought)> = sought.into_iter().enumerate().collect();
    let mut found = Found { paths: vec![None; open.len()], is_all: false };
    found.look_in_memory(host_root, secret, &mut open);
    found.finish(host_root, secret, open);
    found
}

/// The same of directories that the probes need not know: each of them has to answer.
pub fn find_roots(host_root: &Path, sought: Vec<Sought>) -> Found {
    let open: Vec<(usize, Sought)> = sought.into_iter().enumerate().collect();
    let mut found = Found { paths: vec![None; open.len()], is_all: false };
    found.finish(host_root, 0, open);
    found
}

impl Found {
    fn finish(&mut self, host_root: &Path, secret: u64, open: Vec<(usize, Sought)>) {
        let left_out = left_out(host_root, &open);
        let entered = open.into_iter().zip(&left_out).filter(|(_, left_out)| !**left_out);
        let open: Vec<_> = entered.map(|(sought, _)| sought).collect();
        self.is_all = !left_out.contains(&true);
        let question = |left: &[(usize, Sought)]| ShowRoots {
            host_root: host_root.into(),
            secret,
            sought: left.to_vec(),
            in_memory: false,
        };
        ask_each(
            open,
            |(_, sought)| sought.shown(),
            |(_, sought)| sought.seen(host_root),
            question,
            |(_, sought), found: Result<(usize, Option<OsString>), _>| match found {
                Ok((at, path)) => self.take(at, path),
                Err(why) => {
                    let place = safe_path(Path::new(&sought.shown())).into_owned();
                    tracing::info!("{place} was not examined: {why}");
                    self.is_all = false;
                }
            },
        );
    }

    /// Looks for them, and takes from the list what there is an answer for.
    fn look_in_memory(&mut self, host_root: &Path, secret: u64, open: &mut Vec<(usize, Sought)>) {
        let (host_root, sought) = (host_root.into(), open.clone());
        let question = ShowRoots { host_root, secret, sought, in_memory: true };
        let answer = ask_in_parts(question, |(at, path): (usize, Option<OsString>)| {
            self.take(at, path);
            open.retain(|(one, _)| *one != at);
        });
        if let Err(failure) = answer {
            tracing::info!("not all root directories were examined: {failure:?}");
        }
    }

    fn take(&mut self, at: usize, path: Option<OsString>) {
        if let Some(slot) = self.paths.get_mut(at) {
            *slot = path.map(PathBuf::from);
        }
    }
}

fn left_out(host_root: &Path, sought: &[(usize, Sought)]) -> Vec<bool> {
    let places: Vec<(u32, PathBuf)> =
        sought.iter().map(|(_, sought)| sought.seen(host_root)).collect();
    let pids: BTreeSet<u32> = places.iter().map(|(pid, _)| *pid).collect();
    let tables: BTreeMap<u32, Mounts> =
        pids.into_iter().filter_map(|pid| Some((pid, proc::mounts(pid)?))).collect();
    let looks = places.iter().map(|(pid, path)| (tables.get(pid), path.as_path()));
    alive::left_out(Feed::Calls, looks)
}

/// The path of a directory of the host without symbolic links, where it answers.
pub fn resolve(host_root: &Path, path: &Path) -> Option<PathBuf> {
    let sought = vec![Sought::unshown(None, path)];
    find_roots(host_root, sought).paths.pop().flatten()
}

/// The same as far as it answers: of what lies on a file system that does not, where that is mounted, and the rest
/// as it was named.
pub fn resolve_what_answers(host_root: &Path, path: &Path) -> PathBuf {
    let mut above: Vec<&Path> = path.ancestors().collect();
    // Paths below one that does not answer are not accessed.
    above.reverse();
    let sought = above.iter().map(|path| Sought::unshown(None, path)).collect();
    joined(path, &above, find_roots(host_root, sought).paths)
}

/// A path by where the last of those above it is that was found.
fn joined(path: &Path, above: &[&Path], found: Vec<Option<PathBuf>>) -> PathBuf {
    let whole = |(above, found): (&&Path, Option<PathBuf>)| {
        let rest = path.strip_prefix(above).ok()?;
        Some(found?.join(rest))
    };
    let known = above.iter().zip(found).rev().find_map(whole);
    normalise(&known.unwrap_or_else(|| path.to_owned()))
}

/// Opens a directory whose path is to be understood in another root directory: its symbolic links lead
/// nowhere else. With its path there; `None` where the kernel had to wait for it, and must not.
fn beneath(top: &Path, path: &Path, in_memory: bool) -> Result<Option<(Seen, PathBuf)>> {
    let top = Root::at(top).context("opening the root directory")?;
    let directory = if in_memory {
        let Some(directory) = top.directory_in_memory(path)? else { return Ok(None) };
        directory
    } else {
        top.open(path, OFlags::DIRECTORY)?
    };
    let prefix = fs::read_link(top.open(Path::new("/"), OFlags::DIRECTORY)?.path())?;
    let path = fs::read_link(directory.path())?;
    let below = path.strip_prefix(&prefix).unwrap_or(&path);
    Ok(Some((directory, Path::new("/").join(below))))
}

/// See [`podstuck_common::root`].
fn show(directory: &impl AsFd, secret: u64, index: u32) {
    // SAFETY: the kernel refuses the flags before it looks at the address.
    unsafe {
        libc::syscall(libc::SYS_unlinkat, directory.as_fd().as_raw_fd(), secret, SHOW | index);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_lead_nowhere_outside_the_root_directory() {
        let top = tempfile::tempdir().unwrap();
        let inside = top.path().join("data/kubelet");
        fs::create_dir_all(&inside).unwrap();
        fs::create_dir_all(top.path().join("var/lib")).unwrap();
        symlink("/data/kubelet", top.path().join("var/lib/kubelet")).unwrap();
        symlink("../../../../../../..", top.path().join("up")).unwrap();
        let find = |text: &str, in_memory| beneath(top.path(), Path::new(text), in_memory);
        let path = |text: &str| find(text, false).ok().flatten().map(|(_, path)| path);
        assert_eq!(path("/var/lib/kubelet"), Some("/data/kubelet".into()));
        assert_eq!(path("/data/../data/./kubelet"), Some("/data/kubelet".into()));
        assert_eq!(path("/up"), Some("/".into()));
        assert_eq!(path("/var/lib/docker"), None);
        let known = find("/var/lib/kubelet", true);
        let known = known.unwrap().map(|(_, path)| path);
        // Before Linux 5.12 nothing is found so.
        assert!(known.is_none_or(|path| path == Path::new("/data/kubelet")));
        assert!(find("/var/lib/docker", true).map_or(true, |found| found.is_none()));
    }

    #[test]
    fn what_does_not_answer_is_named_by_what_lies_above_it() {
        let path = Path::new("/link/dead/volume/");
        let above = ["/", "/link", "/link/dead", "/link/dead/volume"].map(Path::new);
        let found = |texts: [Option<&str>; 4]| texts.map(|text| text.map(PathBuf::from)).into();
        let joined = |texts| joined(path, &above, found(texts));
        assert_eq!(joined([Some("/"), Some("/data"), None, None]), Path::new("/data/dead/volume"));
        assert_eq!(joined([Some("/"), None, None, Some("/x")]), Path::new("/x"));
        assert_eq!(joined([None; 4]), Path::new("/link/dead/volume"));
    }

    #[test]
    fn showing_a_directory_changes_nothing() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("pods")).unwrap();
        let (directory, _) = beneath(top.path(), Path::new("/pods"), false).unwrap().unwrap();
        let before = fs::metadata(top.path().join("pods")).unwrap();
        show(&directory, u64::MAX, 3);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
        let after = fs::metadata(top.path().join("pods")).unwrap();
        assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    }
}
