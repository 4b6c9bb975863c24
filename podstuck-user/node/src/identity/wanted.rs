//! Finds the pod that was given on the command line.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use thiserror::Error;

use podstuck_model::{path::safe_path, pod_record::PodRecord, shell::is_object_name};

use super::{
    Listed, NameSource, PodNames,
    cgroup_walk::find_pod_cgroup,
    roots::on_host,
    traces::host_name,
    uid::{is_pod_uid, parse_pod_uid},
};

/// Most pods that an error lists.
const LISTED: usize = 8;

/// Why a pod cannot be watched.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum WantedError {
    /// Not a UID.
    #[error(
        "{0:?} is not a pod UID: expected 8-4-4-4-12 hexadecimal digits, or 32 for a static pod"
    )]
    Grammar(String),
    /// Not `NAMESPACE/NAME`.
    #[error("{0:?} is not a pod's name: expected NAMESPACE/NAME")]
    Name(String),
    /// Nothing on this node.
    #[error("no pod {wanted} on this node; searched {looked}; {hint}")]
    Unknown {
        /// The UID or name that was given.
        wanted: String,
        /// The places that were searched.
        looked: String,
        /// Advice for the user.
        hint: String,
    },
    /// Nothing on this node, with the reason from the API server.
    #[error("no pod {wanted} on this node: {place}, says the API server")]
    Elsewhere {
        /// The UID or name that was given.
        wanted: String,
        /// Where the pod is.
        place: String,
        /// Its record at the API server.
        record: Box<PodRecord>,
        /// Whether it was on this node.
        was_here: bool,
    },
    /// Several pods of one name.
    #[error("several pods are named {name}: choose one with --pod-uid: {uids}")]
    Ambiguous {
        /// The name.
        name: String,
        /// Their UIDs.
        uids: String,
    },
}

/// The places on a node with traces of pods.
pub struct PodTraces<'a> {
    /// `/`, or where the host's file system is.
    pub host_root: &'a Path,
    /// kubelet's roots.
    pub kubelet_roots: &'a [PathBuf],
    /// The entries of kubelet's `pods` directories.
    pub directories: Listed,
}

impl PodTraces<'_> {
    /// The UID in kubelet's spelling, if this node has a trace of the pod.
    ///
    /// # Errors
    /// Fails when the text is no UID, and when there is no trace of the pod.
    pub fn by_uid(&self, uid: &str, names: &mut PodNames) -> Result<String, WantedError> {
        let uid = parse_pod_uid(uid).ok_or_else(|| WantedError::Grammar(uid.into()))?;
        let known = self.may_have_directory(&uid)
            || names.lookup(&uid).is_some()
            || find_pod_cgroup(&self.cgroups(), &uid).is_some();
        if known { Ok(uid) } else { Err(self.unknown(&uid, names)) }
    }

    /// The UID of the pod with a name, `NAMESPACE/NAME`.
    ///
    /// # Errors
    /// Fails when the text is no such name, when no pod on this node has it, and when several pods do.
    pub fn by_name(&self, text: &str, names: &mut PodNames) -> Result<String, WantedError> {
        let (namespace, name) = text
            .split_once('/')
            .filter(|(ns, n)| !ns.is_empty() && !n.is_empty())
            .ok_or_else(|| WantedError::Name(text.into()))?;
        let all = names.find(namespace, name);
        let of_api = all.iter().filter(|uid| names.source(uid) == Some(NameSource::Api));
        if let [one] = of_api.collect::<Vec<_>>().as_slice() {
            return Ok((*one).clone());
        }
        // A pod that was created again leaves the logs of its predecessor.
        let here: Vec<&String> = all.iter().filter(|uid| self.may_have_directory(uid)).collect();
        match (here.as_slice(), all.as_slice()) {
            ([one], _) => Ok((*one).clone()),
            ([], [one]) => Ok(one.clone()),
            ([], []) => {
                let mut hosts = names.find_host(host_name(name));
                hosts.retain(|uid| self.may_have_directory(uid));
                if let [uid] = hosts.as_slice() {
                    let named = (namespace.into(), name.into(), uid.clone());
                    names.learn(NameSource::HostName, [named]);
                    return Ok(uid.clone());
                }
                let mut unknown = self.unknown(text, names);
                if let WantedError::Unknown { hint, .. } = &mut unknown {
                    hint.insert_str(0, &ask_the_api(namespace, name));
                }
                Err(unknown)
            }
            _ => Err(WantedError::Ambiguous { name: text.into(), uids: all.join(", ") }),
        }
    }

    /// kubelet's `pods` directories, as this process can read them.
    pub fn of_pods(host_root: &Path, kubelet_roots: &[PathBuf]) -> Vec<PathBuf> {
        kubelet_roots.iter().map(|root| on_host(host_root, &root.join("pods"))).collect()
    }

    /// UIDs of the pods that have a directory.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        let names = self.directories.names.iter().map(String::as_str);
        names.filter(|name| is_pod_uid(name.as_bytes()))
    }

    /// Whether the pod still has a directory, or a `pods` directory did not answer.
    pub fn may_have_directory(&self, uid: &str) -> bool {
        !self.directories.is_all || self.directories.names.iter().any(|name| name == uid)
    }

    /// The kubelet root with a directory of this pod: of several the first, which is trusted most.
    pub fn root_of(&self, uid: &str) -> Option<&Path> {
        let Listed { names, counts, .. } = &self.directories;
        let at = names.iter().position(|name| name == uid)?;
        let mut before = 0;
        let mut roots = self.kubelet_roots.iter().zip(counts);
        let root = roots.find(|(_, count)| {
            before += **count;
            at < before
        });
        root.map(|(root, _)| root.as_path())
    }

    fn cgroups(&self) -> PathBuf {
        on_host(self.host_root, Path::new("/sys/fs/cgroup"))
    }

    fn unknown(&self, wanted: &str, names: &PodNames) -> WantedError {
        let mut places: Vec<PathBuf> = self.kubelet_roots.iter().map(|r| r.join("pods")).collect();
        places.extend(names.log_dirs().iter().cloned());
        places.push(self.cgroups());
        let mut looked: Vec<_> = places.iter().map(|p| safe_path(p).into_owned()).collect();
        looked.extend(names.places().iter().cloned());
        let mut pods = names.all();
        // The names and UIDs with the most similar spelling come first.
        pods.sort_by_key(|(namespace, name, uid)| {
            let full = format!("{namespace}/{name}");
            [uid, name, full.as_str()]
                .map(|known| strsim::levenshtein(wanted, known))
                .into_iter()
                .min()
        });
        let mut hint = String::from("is it on another node, or is --kubelet-root missing?");
        if !pods.is_empty() {
            hint.push_str(" Pods on this node: ");
        }
        for (i, (namespace, name, uid)) in pods.iter().take(LISTED).enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            // Writing to a string cannot fail.
            let _ = write!(hint, "{comma}{namespace}/{name} ({uid})");
        }
        if pods.len() > LISTED {
            let _ = write!(hint, " and {} more", pods.len() - LISTED);
        }
        WantedError::Unknown { wanted: wanted.into(), looked: looked.join(", "), hint }
    }
}

/// Advice to find the UID: without logs, only the UID identifies a pod on the node.
fn ask_the_api(namespace: &str, name: &str) -> String {
    if !is_object_name(namespace) || !is_object_name(name) {
        return String::new();
    }
    format!(
        "without logs, podstuck finds a pod only by its UID (--pod-uid), which this command prints: kubectl \
         -n {namespace} get pod {name} -o jsonpath='{{.metadata.uid}}'. Otherwise, "
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const OLD: &str = "0f0e0d0c-1111-2222-3333-444455556666";
    const NEW: &str = "1f0e0d0c-1111-2222-3333-444455556666";

    struct Host {
        dir: tempfile::TempDir,
        roots: [PathBuf; 1],
    }

    impl Host {
        fn new(pods: &[&str], logs: &[&str]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            for uid in pods {
                fs::create_dir_all(dir.path().join("k/pods").join(uid)).unwrap();
            }
            for uid in logs {
                fs::create_dir_all(dir.path().join(format!("logs/shop_cart_{uid}"))).unwrap();
            }
            Self { dir, roots: ["/k".into()] }
        }

        fn names(&self) -> PodNames {
            super::super::names::tests::names(vec![self.dir.path().join("logs")])
        }

        fn traces(&self) -> PodTraces<'_> {
            let host_root = self.dir.path();
            let entries = fs::read_dir(host_root.join("k/pods")).into_iter().flatten().flatten();
            let names: Vec<String> =
                entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
            let directories = Listed { counts: vec![names.len()], names, is_all: true };
            PodTraces { host_root, kubelet_roots: &self.roots, directories }
        }
    }

    #[test]
    fn a_directory_or_a_log_is_enough() {
        let host = Host::new(&[OLD], &[NEW]);
        let mut names = host.names();
        assert_eq!(host.traces().by_uid(OLD, &mut names), Ok(OLD.into()));
        assert_eq!(host.traces().by_uid(NEW, &mut names), Ok(NEW.into()));
        assert_eq!(host.traces().by_name("shop/cart", &mut names), Ok(NEW.into()));
    }

    #[test]
    fn a_pod_is_of_the_first_root_that_has_it() {
        let names = [OLD, "x", OLD, NEW].map(String::from).into();
        let roots = ["/none", "/first", "/second"].map(PathBuf::from);
        let directories = Listed { names, counts: vec![0, 2, 2], is_all: true };
        let traces = PodTraces { host_root: Path::new("/"), kubelet_roots: &roots, directories };
        let root = |uid| traces.root_of(uid).and_then(Path::to_str);
        assert_eq!([root(OLD), root(NEW), root("y")], [Some("/first"), Some("/second"), None]);
    }

    #[test]
    fn of_two_pods_of_one_name_the_one_with_a_directory_is_meant() {
        let host = Host::new(&[NEW], &[OLD, NEW]);
        assert_eq!(host.traces().by_name("shop/cart", &mut host.names()), Ok(NEW.into()));
        let both = Host::new(&[OLD, NEW], &[OLD, NEW]);
        let error = both.traces().by_name("shop/cart", &mut both.names()).unwrap_err();
        assert!(error.to_string().contains(OLD) && error.to_string().contains(NEW));
    }

    #[test]
    fn the_one_that_the_api_server_has_is_meant() {
        let host = Host::new(&[OLD, NEW], &[OLD, NEW]);
        let mut names = host.names();
        names.learn(NameSource::Api, [("shop".into(), "cart".into(), NEW.into())]);
        assert_eq!(host.traces().by_name("shop/cart", &mut names), Ok(NEW.into()));
    }

    #[test]
    fn where_kubelets_disk_does_not_answer_a_pod_may_be_there() {
        let host = Host::new(&[], &[OLD]);
        let mut silent = host.traces();
        silent.directories.is_all = false;
        assert_eq!(silent.by_uid(NEW, &mut host.names()), Ok(NEW.into()));
        assert_eq!(silent.by_name("shop/cart", &mut host.names()), Ok(OLD.into()));
        assert!(silent.by_name("shop/none", &mut host.names()).is_err(), "its UID is not known");
        assert!(silent.may_have_directory(OLD));
    }

    #[test]
    fn a_host_name_is_taken_when_it_is_the_only_one() {
        let host = Host::new(&[OLD, NEW], &[]);
        let mut names = host.names();
        names.learn_host("cart".into(), OLD.into());
        assert_eq!(host.traces().by_name("shop/cart", &mut names), Ok(OLD.into()));
        assert_eq!(names.source(OLD), Some(NameSource::HostName));
        let mut names = host.names();
        names.learn_host("cart".into(), OLD.into());
        names.learn_host("cart".into(), NEW.into());
        assert!(host.traces().by_name("shop/cart", &mut names).is_err(), "which one?");
        let traces = host.traces();
        let mut uids: Vec<&str> = traces.uids().collect();
        uids.sort_unstable();
        assert_eq!(uids, [OLD, NEW]);
    }

    #[test]
    fn the_pods_that_are_spelled_alike_come_first() {
        let host = Host::new(&[], &[]);
        for (n, name) in ["aaa", "bbb", "checkout-7d4", "zzz"].iter().enumerate() {
            let uid = OLD.replace("0f0e0d0c", &format!("0f0e0d0{n}"));
            fs::create_dir_all(host.dir.path().join(format!("logs/shop_{name}_{uid}"))).unwrap();
        }
        let nearest = |wanted: &str| {
            let text = host.traces().by_name(wanted, &mut host.names()).unwrap_err().to_string();
            text.split("Pods on this node: ").nth(1).unwrap().split(' ').next().unwrap().to_owned()
        };
        assert_eq!(nearest("shop/chekout-7d4"), "shop/checkout-7d4");
        assert_eq!(nearest("shop/zzzz"), "shop/zzz");
    }

    #[test]
    fn the_error_for_an_unknown_pod_lists_the_searched_places() {
        let host = Host::new(&[], &[OLD]);
        let text = host.traces().by_uid(NEW, &mut host.names()).unwrap_err().to_string();
        assert!(text.contains("/k/pods") && text.contains("shop/cart"), "{text}");
        let error = host.traces().by_uid("nonsense", &mut host.names()).unwrap_err();
        assert!(matches!(error, WantedError::Grammar(_)));
        let text = host.traces().by_name("a b/x", &mut host.names()).unwrap_err().to_string();
        assert!(!text.contains("kubectl"), "no object has such a name: {text}");
        let text = host.traces().by_name("shop/zzzz", &mut host.names()).unwrap_err().to_string();
        assert!(text.contains("kubectl -n shop get pod zzzz -o"), "{text}");
        let error = host.traces().by_name("nonsense", &mut host.names()).unwrap_err();
        assert!(matches!(error, WantedError::Name(_)));
    }
}
