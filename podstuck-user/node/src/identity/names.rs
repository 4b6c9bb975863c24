//! Names of pods by their UID: from the API server, from logs, from kubelet's log directories
//! `NAMESPACE_NAME_UID` (pkg/kubelet, `BuildPodLogsDirectory`; no part can contain an underscore), and from
//! other traces. Names are remembered when their source is gone.
//!
//! Some log directories are found by the path of a call, so any process may have created them: only names that the API
//! server accepts are believed, and none that contradicts an earlier one.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use podstuck_model::bounded::Bounded;

use super::{
    classify::kubelet_root_of,
    dns_name::{is_label, is_subdomain},
    name_source::NameSource,
    roots::log_dirs_for,
    uid::is_pod_uid,
};
use podstuck_confine::proc;

/// Most names remembered: several times the pods that a node runs.
const REMEMBERED: usize = 10_000;
/// Most prefixes that are searched for logs. A node has one; a process that deletes below many is no kubelet.
const TRIED: usize = 64;
/// Shortest time between two reads of the directories after a miss.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a read may take: for a name that was asked for, and for one that is only shown.
const ASKED: Duration = Duration::from_secs(5);
const SHOWN: Duration = Duration::from_millis(200);

/// The entries of directories.
#[derive(Debug, Default)]
pub struct Listed {
    /// Names of the entries.
    pub names: Vec<String>,
    /// Number of entries in each directory, in the order of the directories.
    pub counts: Vec<usize>,
    /// Whether each directory has answered.
    pub is_all: bool,
}

/// Reads the names of the entries of directories, those that arrive within that time.
pub(crate) type ReadDirectories = Box<dyn FnMut(&[PathBuf], Duration) -> Vec<String>>;

struct Name {
    namespace: String,
    name: String,
    source: NameSource,
}

/// Pod names of this node.
pub struct PodNames {
    log_dirs: Vec<PathBuf>,
    directories: ReadDirectories,
    by_uid: Bounded<String, Name, REMEMBERED>,
    read: Option<Instant>,
    /// Other places that were searched.
    places: Vec<String>,
    /// Host names of pods, by UID.
    hosts: BTreeMap<String, String>,
    /// Directories that were tried, at most [`TRIED`]; later ones are ignored.
    tried: Vec<PathBuf>,
}

impl PodNames {
    /// Will search these directories with this function.
    pub fn new(log_dirs: Vec<PathBuf>, directories: ReadDirectories) -> Self {
        Self {
            log_dirs,
            directories,
            by_uid: Bounded::default(),
            read: None,
            places: Vec::new(),
            hosts: BTreeMap::new(),
            tried: Vec::new(),
        }
    }

    /// The directories that are searched.
    pub fn log_dirs(&self) -> &[PathBuf] {
        &self.log_dirs
    }

    /// Namespace and name of a pod.
    pub fn lookup(&mut self, uid: &str) -> Option<(String, String)> {
        if !self.by_uid.contains(uid) && self.read.is_none_or(|read| read.elapsed() >= AGAIN) {
            self.read_all(SHOWN);
        }
        self.by_uid.get_mut(uid).map(|known| (known.namespace.clone(), known.name.clone()))
    }

    /// The source of a pod's name.
    pub fn source(&self, uid: &str) -> Option<NameSource> {
        self.by_uid.get(uid).map(|known| known.source)
    }

    /// Number of names from each source.
    pub fn by_source(&self) -> BTreeMap<NameSource, usize> {
        let mut counts = BTreeMap::new();
        self.by_uid.iter().for_each(|(_, name)| *counts.entry(name.source).or_default() += 1);
        counts
    }

    /// Other places that were searched for names.
    pub fn places(&self) -> &[String] {
        &self.places
    }

    /// Notes other places that were searched.
    pub fn looked_in(&mut self, places: impl IntoIterator<Item = String>) {
        self.places.extend(places);
    }

    /// Takes names, as (namespace, name, UID). Only a name from the API server replaces another one.
    pub fn learn(
        &mut self,
        source: NameSource,
        named: impl IntoIterator<Item = (String, String, String)>,
    ) {
        self.read_all(ASKED);
        for (namespace, name, uid) in named {
            if !is_label(&namespace) || !is_subdomain(&name) || !is_pod_uid(uid.as_bytes()) {
                continue;
            }
            let new = || Name { namespace: namespace.clone(), name: name.clone(), source };
            let known = self.by_uid.or_insert_with(uid, new);
            let agrees = (&known.namespace, &known.name) == (&namespace, &name);
            if (agrees && source < known.source) || (!agrees && source == NameSource::Api) {
                *known = new();
            }
        }
    }

    /// Takes a pod's host name, which has no namespace.
    pub fn learn_host(&mut self, host: String, uid: String) {
        if is_subdomain(&host) && self.hosts.len() < REMEMBERED {
            self.hosts.insert(uid, host);
        }
    }

    /// UIDs of the pods with this host name and without a name from another source.
    pub(crate) fn find_host(&self, host: &str) -> Vec<String> {
        let same = self.hosts.iter().filter(|(_, known)| *known == host);
        same.map(|(uid, _)| uid).filter(|uid| !self.by_uid.contains(*uid)).cloned().collect()
    }

    /// How many names were forgotten because there were too many.
    pub fn dropped(&self) -> u64 {
        self.by_uid.dropped()
    }

    /// UIDs of the pods with a name: several if it was created again.
    pub fn find(&mut self, namespace: &str, name: &str) -> Vec<String> {
        self.read_all(ASKED);
        let same = |known: &Name| known.namespace == namespace && known.name == name;
        let mut uids: Vec<String> =
            self.by_uid.iter().filter(|(_, n)| same(n)).map(|(uid, _)| uid.clone()).collect();
        uids.sort();
        uids
    }

    /// All pods known, as (namespace, name, UID).
    pub fn all(&self) -> Vec<(&str, &str, &str)> {
        let mut all: Vec<_> = self
            .by_uid
            .iter()
            .map(|(uid, known)| (known.namespace.as_str(), known.name.as_str(), uid.as_str()))
            .collect();
        all.sort_unstable();
        all
    }

    /// Adds the log directories beside the kubelet root of a path: those of a nested node or a lab.
    pub(crate) fn learn_root(&mut self, path: &Path) {
        let dirs = kubelet_root_of(path).map(|root| log_dirs_for(&root)).unwrap_or_default();
        for dir in dirs {
            // The path may be of another mount namespace and lead to a dead mount here. So it is tried once, and only if
            // every file system on the way answers without a daemon.
            let new = !self.tried.contains(&dir) && self.tried.len() < TRIED;
            if !new || self.log_dirs.contains(&dir) {
                continue;
            }
            // Without the mount table: tried again with the next path.
            let Some(answers) = answers(&dir) else { return };
            self.tried.push(dir.clone());
            if answers {
                self.log_dirs.push(dir);
                self.read = None;
            }
        }
    }

    fn read_all(&mut self, wait: Duration) {
        self.read = Some(Instant::now());
        for name in (self.directories)(&self.log_dirs, wait) {
            let Some((namespace, pod, uid)) = split(&name) else { continue };
            // The node's own directories come first. A pod that still has one counts as used.
            self.by_uid.or_insert_with(uid.into(), || Name {
                namespace: namespace.into(),
                name: pod.into(),
                source: NameSource::LogDirectory,
            });
        }
    }
}

/// Whether every mount on the way to a path is of a type that answers without a daemon or another machine, by this
/// process's mount table; `None` when that cannot be read.
fn answers(path: &Path) -> Option<bool> {
    const LOCAL: [&str; 13] = [
        "bcachefs", "btrfs", "devtmpfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs",
        "rootfs", "squashfs", "tmpfs", "xfs",
    ];
    let mounts = proc::mounts(std::process::id())?;
    let mut on_the_way = mounts.all.iter().filter(|m| path.starts_with(&m.point)).peekable();
    let is_there = on_the_way.peek().is_some();
    Some(is_there && on_the_way.all(|m| LOCAL.contains(&m.fs_type.as_str())))
}

fn split(directory: &str) -> Option<(&str, &str, &str)> {
    let (rest, uid) = directory.rsplit_once('_')?;
    let (namespace, name) = rest.split_once('_')?;
    let valid = is_label(namespace) && is_subdomain(name) && is_pod_uid(uid.as_bytes());
    valid.then_some((namespace, name, uid))
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use super::*;

    /// Names from directories that answer.
    pub(in crate::identity) fn names(log_dirs: Vec<PathBuf>) -> PodNames {
        let read = |dirs: &[PathBuf], _| {
            let entries = dirs.iter().flat_map(fs::read_dir).flatten().flatten();
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
        };
        PodNames::new(log_dirs, Box::new(read))
    }

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    #[test]
    fn a_name_is_remembered_after_its_directory_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join(format!("shop_cart-0_{UID}"));
        fs::create_dir(&log).unwrap();
        let mut names = names(vec![dir.path().into()]);
        let expected = Some(("shop".to_owned(), "cart-0".to_owned()));
        assert_eq!(names.lookup(UID), expected);
        fs::remove_dir(&log).unwrap();
        assert_eq!(names.lookup(UID), expected);
        assert_eq!(names.find("shop", "cart-0"), [UID]);
        assert_eq!(names.find("shop", "cart-1"), Vec::<String>::new());
    }

    #[test]
    fn other_directories_name_no_pod() {
        assert_eq!(split("shop_cart"), None);
        assert_eq!(split(&format!("a_b_c_{UID}")), None);
        assert_eq!(split("shop_cart_not-a-uid"), None);
        assert_eq!(split(&format!("shop_cart_{UID}")), Some(("shop", "cart", UID)));
    }

    #[test]
    fn the_first_directory_that_names_a_pod_is_believed() {
        let (own, later) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(own.path().join(format!("shop_cart-0_{UID}"))).unwrap();
        fs::create_dir(later.path().join(format!("shop_innocent_{UID}"))).unwrap();
        let mut names = names(vec![own.path().into(), later.path().into()]);
        assert_eq!(names.lookup(UID), Some(("shop".into(), "cart-0".into())));
        assert_eq!(names.find("shop", "innocent"), Vec::<String>::new());
    }

    #[test]
    fn names_from_elsewhere_do_not_contradict_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(format!("shop_cart-0_{UID}"))).unwrap();
        let mut names = names(vec![dir.path().into()]);
        let other = UID.replace('0', "1");
        let said = |name: &str, uid: &str| ("shop".to_owned(), name.to_owned(), uid.to_owned());
        let all = [said("innocent", UID), said("gone", &other), said("A b", "x")];
        names.learn(NameSource::Log, all);
        assert_eq!(names.lookup(UID), Some(("shop".into(), "cart-0".into())));
        assert_eq!(names.find("shop", "gone"), std::slice::from_ref(&other));
        assert_eq!(names.all().len(), 2);
        let sources = [names.source(UID), names.source(&other)];
        assert_eq!(sources, [NameSource::LogDirectory, NameSource::Log].map(Some));
        assert_eq!(names.by_source().into_values().collect::<Vec<_>>(), [1, 1]);
        names.learn(NameSource::Log, [said("cart-0", UID)]);
        assert_eq!(names.source(UID), Some(NameSource::Log), "the better one is shown");
        names.learn(NameSource::Api, [said("cart-1", UID)]);
        assert_eq!(names.lookup(UID), Some(("shop".into(), "cart-1".into())));
    }

    #[test]
    fn a_host_name_counts_where_no_other_source_names_the_pod() {
        let mut names = names(Vec::new());
        let other = UID.replace('0', "1");
        names.learn_host("cart-0".into(), UID.into());
        names.learn_host("cart-0".into(), other.clone());
        names.learn_host("A b".into(), UID.replace('0', "2"));
        assert_eq!(names.find_host("cart-0"), [UID, other.as_str()]);
        names.learn(NameSource::Token, [("a".into(), "b".into(), other)]);
        assert_eq!(names.find_host("cart-0"), [UID]);
        assert!(names.find_host("A b").is_empty());
    }

    #[test]
    fn a_path_that_may_be_dead_is_not_touched() {
        assert_eq!(answers(Path::new("/var")), Some(true));
        assert_eq!(answers(Path::new("/dev/shm/podstuck-lab-x/var/log/pods")), Some(true));
        assert_eq!(
            answers(Path::new("/proc/self")),
            Some(false),
            "not a file system that pods' logs lie on"
        );
    }
}
