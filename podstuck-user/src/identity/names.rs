//! Names of pods by their UID, from kubelet's log directories `NAMESPACE_NAME_UID` (pkg/kubelet,
//! `BuildPodLogsDirectory`). No part can contain an underscore. The directory outlives the pod's
//! volumes, and what was read once is remembered when it is gone.
//!
//! Some of these directories are named by the path of a call, so anybody may have made them: only
//! names that the API server would take are believed, and none that contradicts an earlier one.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use podstuck_engine::bounded::Bounded;

use super::{classify::kubelet_root_of, uid::is_pod_uid};
use crate::proc;

/// Names remembered: several times the pods that a node runs.
const REMEMBERED: usize = 10_000;
/// Prefixes that are looked at for logs. A node has one; what deletes below many is no kubelet.
const TRIED: usize = 64;
/// A miss reads the directories again, but not more often than this.
const AGAIN: Duration = Duration::from_secs(1);

/// Pod names of this node.
pub(crate) struct PodNames {
    log_dirs: Vec<PathBuf>,
    by_uid: Bounded<String, (String, String)>,
    read: Option<Instant>,
    logs: Vec<String>,
    /// At most [`TRIED`]: those that come later are not looked at, whatever anybody does.
    tried: Vec<PathBuf>,
}

impl PodNames {
    /// Will look in these directories.
    pub(crate) fn new(log_dirs: Vec<PathBuf>) -> Self {
        Self {
            log_dirs,
            by_uid: Bounded::new(REMEMBERED),
            read: None,
            logs: Vec::new(),
            tried: Vec::new(),
        }
    }

    /// The directories that are looked in.
    pub(crate) fn log_dirs(&self) -> &[PathBuf] {
        &self.log_dirs
    }

    /// Namespace and name of a pod.
    pub(crate) fn lookup(&mut self, uid: &str) -> Option<(String, String)> {
        if !self.by_uid.contains(uid) && self.read.is_none_or(|read| read.elapsed() >= AGAIN) {
            self.read_all();
        }
        self.by_uid.get_mut(uid).cloned()
    }

    /// The logs that were looked at for names.
    pub(crate) fn logs(&self) -> &[String] {
        &self.logs
    }

    /// Takes names from logs, as (namespace, name, UID). What the directories say comes first.
    pub(crate) fn learn(
        &mut self,
        logs: Vec<String>,
        named: impl IntoIterator<Item = (String, String, String)>,
    ) {
        self.logs = logs;
        self.read_all();
        for (namespace, name, uid) in named {
            if is_label(&namespace) && is_subdomain(&name) && is_pod_uid(uid.as_bytes()) {
                self.by_uid.or_insert_with(uid, || (namespace, name));
            }
        }
    }

    /// How many names were forgotten because there were too many.
    pub(crate) fn dropped(&self) -> u64 {
        self.by_uid.dropped()
    }

    /// UIDs of the pods of a name: several for one that was created again.
    pub(crate) fn find(&mut self, namespace: &str, name: &str) -> Vec<String> {
        self.read_all();
        let same = |found: &(String, String)| found.0 == namespace && found.1 == name;
        let mut uids: Vec<String> =
            self.by_uid.iter().filter(|(_, n)| same(n)).map(|(uid, _)| uid.clone()).collect();
        uids.sort();
        uids
    }

    /// All pods known, as (namespace, name, UID).
    pub(crate) fn all(&self) -> Vec<(&str, &str, &str)> {
        let mut all: Vec<_> = self
            .by_uid
            .iter()
            .map(|(uid, (ns, n))| (ns.as_str(), n.as_str(), uid.as_str()))
            .collect();
        all.sort_unstable();
        all
    }

    /// Looks beside kubelet's directory that a path shows, too: a nested node or a lab has its
    /// logs there.
    pub(crate) fn learn_root(&mut self, path: &Path) {
        let dirs = kubelet_root_of(path).map(|root| log_dirs_for(&root)).unwrap_or_default();
        for dir in dirs {
            // The path may be one of another mount namespace and mean a dead mount here, so it is
            // looked at once, and only where every file system on the way answers by itself.
            let new = !self.tried.contains(&dir) && self.tried.len() < TRIED;
            if new && !self.log_dirs.contains(&dir) {
                self.tried.push(dir.clone());
                if answers(&dir) && dir.is_dir() {
                    self.log_dirs.push(dir);
                    self.read = None;
                }
            }
        }
    }

    fn read_all(&mut self) {
        self.read = Some(Instant::now());
        for dir in &self.log_dirs {
            let Ok(entries) = fs::read_dir(dir) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name();
                let Some((namespace, pod, uid)) = name.to_str().and_then(split) else { continue };
                // The node's own directories come first. What still has one counts as used.
                self.by_uid.or_insert_with(uid.into(), || (namespace.into(), pod.into()));
            }
        }
    }
}

/// Whether every mount on the way to a path is of a kind that needs no daemon and no other machine
/// to answer, by our own mount table.
fn answers(path: &Path) -> bool {
    const LOCAL: [&str; 13] = [
        "bcachefs", "btrfs", "devtmpfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs",
        "rootfs", "squashfs", "tmpfs", "xfs",
    ];
    let Some(mounts) = proc::mounts(std::process::id()) else { return false };
    let mut on_the_way = mounts.all.iter().filter(|m| path.starts_with(&m.point)).peekable();
    on_the_way.peek().is_some() && on_the_way.all(|m| LOCAL.contains(&m.fs_type.as_str()))
}

fn split(directory: &str) -> Option<(&str, &str, &str)> {
    let (rest, uid) = directory.rsplit_once('_')?;
    let (namespace, name) = rest.split_once('_')?;
    let valid = is_label(namespace) && is_subdomain(name) && is_pod_uid(uid.as_bytes());
    valid.then_some((namespace, name, uid))
}

/// A label of DNS-1123, as a namespace's name is.
fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// A subdomain of DNS-1123, as a pod's name is.
fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && !text.starts_with('-') && !text.ends_with('-') && text.bytes().all(plain)
}

/// Log directories that go with a kubelet root: beside it, under the same prefix, and the usual
/// one.
pub(crate) fn log_dirs_for(kubelet_root: &Path) -> Vec<PathBuf> {
    let usual = PathBuf::from("/var/log/pods");
    let text = kubelet_root.to_str().unwrap_or_default();
    match text.strip_suffix("/var/lib/kubelet").filter(|prefix| !prefix.is_empty()) {
        Some(prefix) => vec![Path::new(prefix).join("var/log/pods"), usual],
        None => vec![usual],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    #[test]
    fn a_name_is_remembered_after_its_directory_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join(format!("shop_cart-0_{UID}"));
        fs::create_dir(&log).unwrap();
        let mut names = PodNames::new(vec![dir.path().into()]);
        let expected = Some(("shop".to_owned(), "cart-0".to_owned()));
        assert_eq!(names.lookup(UID), expected);
        fs::remove_dir(&log).unwrap();
        assert_eq!(names.lookup(UID), expected);
        assert_eq!(names.find("shop", "cart-0"), [UID]);
        assert_eq!(names.find("shop", "cart-1"), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_pod_is_no_pod() {
        assert_eq!(split("shop_cart"), None);
        assert_eq!(split(&format!("a_b_c_{UID}")), None);
        assert_eq!(split("shop_cart_not-a-uid"), None);
        assert_eq!(split(&format!("shop_cart_{UID}")), Some(("shop", "cart", UID)));
    }

    #[test]
    fn only_names_that_the_api_takes_are_believed() {
        let believed =
            |namespace: &str, name: &str| split(&format!("{namespace}_{name}_{UID}")).is_some();
        assert!(believed("kube-system", "etcd-10.0.0.1") && believed("0", &"a".repeat(253)));
        for name in ["", "-a", "a-", ".a", "a..b", "A", "é", "$(reboot)", "a b", "a\u{1b}[2J"] {
            assert!(!believed("shop", name), "{name:?}");
            assert!(!believed(name, "cart"), "{name:?}");
        }
        assert!(!believed("a.b", "cart") && !believed(&"a".repeat(64), "cart"));
        assert!(!believed("shop", &"a".repeat(254)));
    }

    #[test]
    fn the_first_directory_that_names_a_pod_is_believed() {
        let (own, told) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(own.path().join(format!("shop_cart-0_{UID}"))).unwrap();
        fs::create_dir(told.path().join(format!("shop_innocent_{UID}"))).unwrap();
        let mut names = PodNames::new(vec![own.path().into(), told.path().into()]);
        assert_eq!(names.lookup(UID), Some(("shop".into(), "cart-0".into())));
        assert_eq!(names.find("shop", "innocent"), Vec::<String>::new());
    }

    #[test]
    fn names_from_elsewhere_do_not_contradict_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(format!("shop_cart-0_{UID}"))).unwrap();
        let mut names = PodNames::new(vec![dir.path().into()]);
        let other = UID.replace('0', "1");
        let said = |name: &str, uid: &str| ("shop".to_owned(), name.to_owned(), uid.to_owned());
        names.learn(Vec::new(), [said("innocent", UID), said("gone", &other), said("A b", "x")]);
        assert_eq!(names.lookup(UID), Some(("shop".into(), "cart-0".into())));
        assert_eq!(names.find("shop", "gone"), [other]);
        assert_eq!(names.all().len(), 2);
    }

    #[test]
    fn a_path_that_may_be_dead_is_not_touched() {
        assert!(answers(Path::new("/var")));
        assert!(answers(Path::new("/dev/shm/podstuck-lab-x/var/log/pods")));
        assert!(!answers(Path::new("/proc/self")), "not a file system that pods' logs lie on");
    }

    #[test]
    fn logs_are_looked_for_under_the_prefix_of_kubelet() {
        let dirs = log_dirs_for(Path::new("/lab/var/lib/kubelet"));
        assert_eq!(dirs, ["/lab/var/log/pods", "/var/log/pods"].map(PathBuf::from));
        assert_eq!(log_dirs_for(Path::new("/var/lib/kubelet")), [PathBuf::from("/var/log/pods")]);
    }
}
