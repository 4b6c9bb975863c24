//! The names of pods, without an API server: kubelet names a pod's log directory
//! `<namespace>_<pod>_<uid>`. None of the three can contain an underscore. The directory outlives
//! the pod for a while, and its name is remembered here for longer.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{classify::kubelet_root_of, local::is_local, roots::under, uid::is_pod_uid};
use crate::model::identity::Pod;

/// kubelet's default for pod logs; its `podLogsDir` is hardly ever changed.
const LOGS: &str = "/var/log/pods";
/// kubelet's default root, from the root of a node: what comes before is the node's prefix.
const KUBELET: &str = "var/lib/kubelet";
/// Pods that are remembered.
const MOST: usize = 10_000;
/// Prefixes of which it is remembered that they were tried.
const MOST_PREFIXES: usize = 64;
/// How long a miss is believed before the directories are read again.
const BELIEVE: Duration = Duration::from_secs(1);

/// The log directories of pods that belong to a kubelet root, as the node names them: below the
/// same prefix (a node within a node, a lab), and the node's own.
pub fn log_dirs_for(kubelet_root: &Path) -> Vec<PathBuf> {
    let own = PathBuf::from(LOGS);
    match logs_below_prefix(kubelet_root) {
        Some(logs) if logs != own => vec![logs, own],
        _ => vec![own],
    }
}

fn logs_below_prefix(kubelet_root: &Path) -> Option<PathBuf> {
    if !kubelet_root.ends_with(KUBELET) {
        return None;
    }
    let prefix = kubelet_root.ancestors().nth(Path::new(KUBELET).components().count())?;
    Some(under(prefix, Path::new(LOGS)))
}

/// Namespace, pod and UID of a log directory's name.
fn parse(directory: &str) -> Option<(&str, &str, &str)> {
    let mut parts = directory.split('_');
    let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    let good = parts.next().is_none()
        && is_name(namespace)
        && is_name(name)
        && is_pod_uid(uid.as_bytes());
    good.then_some((namespace, name, uid))
}

/// What Kubernetes allows as the name of a pod or a namespace.
pub(super) fn is_name(text: &str) -> bool {
    let allowed = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    (1..=253).contains(&text.len()) && text.bytes().all(allowed)
}

/// UIDs and names of the pods whose log directories were seen.
#[derive(Debug)]
pub struct PodNames {
    host_root: PathBuf,
    dirs: Vec<PathBuf>,
    /// UID to namespace and name.
    known: HashMap<String, (String, String)>,
    /// UIDs in the order in which they were learned. An old one whose directory still exists is
    /// found again when it is asked for.
    order: VecDeque<String>,
    scanned: Option<Instant>,
    tried: HashSet<PathBuf>,
}

impl PodNames {
    /// Nothing is read before the first question.
    pub fn new(host_root: &Path, log_dirs: Vec<PathBuf>) -> Self {
        let mut dirs: Vec<PathBuf> = Vec::new();
        for dir in log_dirs {
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
        Self {
            host_root: host_root.to_owned(),
            dirs,
            known: HashMap::new(),
            order: VecDeque::new(),
            scanned: None,
            tried: HashSet::new(),
        }
    }

    /// The directories that are searched, as the node names them.
    pub fn log_dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// Namespace and name of a pod.
    pub fn lookup(&mut self, uid: &str) -> Option<(String, String)> {
        self.lookup_at(uid, Instant::now())
    }

    fn lookup_at(&mut self, uid: &str, now: Instant) -> Option<(String, String)> {
        if !self.known.contains_key(uid) {
            self.scan(now);
        }
        self.known.get(uid).cloned()
    }

    /// Adds the names to a pod of which only the UID is known.
    pub fn fill(&mut self, pod: &mut Pod) {
        if pod.name.is_none()
            && let Some((namespace, name)) = self.lookup(&pod.uid)
        {
            pod.namespace = Some(namespace);
            pod.name = Some(name);
        }
    }

    /// The UIDs of all pods seen under this name: one made anew has another UID.
    pub fn find(&mut self, namespace: &str, name: &str) -> Vec<String> {
        let wanted = |(_, (ns, n)): &(&String, &(String, String))| ns == namespace && n == name;
        self.scan(Instant::now());
        let mut uids: Vec<String> =
            self.known.iter().filter(wanted).map(|(uid, _)| uid.clone()).collect();
        uids.sort_unstable();
        uids
    }

    /// All pods seen.
    pub fn pods(&mut self) -> Vec<Pod> {
        self.scan(Instant::now());
        let pod = |(uid, (namespace, name)): (&String, &(String, String))| Pod {
            uid: uid.clone(),
            namespace: Some(namespace.clone()),
            name: Some(name.clone()),
        };
        self.known.iter().map(pod).collect()
    }

    /// Takes a path in a pod's directory as a hint that its kubelet's logs are on this node too.
    /// The path comes from a caller in whatever mount namespace, so it is only followed where no
    /// file system on the way can be dead.
    pub fn learn_root(&mut self, pod_path_root: &Path) {
        self.learn(pod_path_root, || fs::read("/proc/self/mountinfo").unwrap_or_default());
    }

    fn learn(&mut self, path: &Path, mountinfo: impl FnOnce() -> Vec<u8>) {
        let Some(logs) = kubelet_root_of(path).and_then(|root| logs_below_prefix(&root)) else {
            return;
        };
        let known = self.dirs.contains(&logs) || self.tried.contains(&logs);
        if known || self.tried.len() >= MOST_PREFIXES {
            return;
        }
        self.tried.insert(logs.clone());
        let readable = under(&self.host_root, &logs);
        if is_local(&mountinfo(), &readable) && readable.is_dir() {
            tracing::debug!("pod names are also in {}", logs.display());
            self.dirs.push(logs);
            self.scanned = None;
        }
    }

    /// Reads the directories, unless that was done a moment ago. What they hold is not touched.
    fn scan(&mut self, now: Instant) {
        if self.scanned.is_some_and(|then| now.saturating_duration_since(then) < BELIEVE) {
            return;
        }
        self.scanned = Some(now);
        for dir in self.dirs.clone() {
            match fs::read_dir(under(&self.host_root, &dir)) {
                Ok(entries) => {
                    for entry in entries.flatten() {
                        entry.file_name().to_str().and_then(parse).into_iter().for_each(|p| self.add(p));
                    }
                }
                Err(error) => tracing::debug!("no pod names from {}: {error}", dir.display()),
            }
        }
    }

    /// The first answer stays, so that a directory learned later cannot rename a pod.
    fn add(&mut self, (namespace, name, uid): (&str, &str, &str)) {
        if self.known.contains_key(uid) {
            return;
        }
        if self.order.len() >= MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.order.push_back(uid.to_owned());
        self.known.insert(uid.to_owned(), (namespace.to_owned(), name.to_owned()));
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
