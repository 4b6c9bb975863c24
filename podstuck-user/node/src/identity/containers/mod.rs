//! Containers of this node, by the files of their runtimes, and the parts of each: its bundle, its layers, its volumes.
//! They are remembered when they are gone: `docker rm -v` deletes a container before its volume.

mod described;

use std::{
    collections::{BTreeMap, HashMap, HashSet, btree_map::Entry},
    path::{Path, PathBuf},
    sync::Arc,
};

use podstuck_model::bounded::Bounded;
use serde::{Deserialize, Serialize};

pub use self::described::Described;
pub(crate) use self::described::{DockerState, Stored, crio_state, describe, log_driver, stored};
use super::uid::is_long_id;
use podstuck_model::{container::ContainerName, identity::Component, raw_path};

/// Most containers remembered. A full node has some hundreds.
const REMEMBERED: usize = 2048;

/// A container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Its id.
    pub id: String,
    /// containerd, dockerd, or CRI-O for all that use containers-storage.
    pub runtime: Component,
    /// Its description by its runtime's files.
    pub described: Described,
    /// Roots of its targets, by the runtime's paths.
    #[serde(with = "raw_path::list")]
    pub parts: Vec<PathBuf>,
    /// Its first process, by its id in the runtime's PID namespace.
    pub init: Option<u32>,
}

impl Container {
    /// A container of which nothing else is known.
    pub fn new(id: String, runtime: Component) -> Self {
        let (described, parts) = (Described::default(), Vec::new());
        Self { id, runtime, described, parts, init: None }
    }

    /// Its id, name and pod.
    pub fn name(&self) -> ContainerName {
        let Described { name, pod, .. } = self.described.clone();
        ContainerName { id: self.id.clone(), name, pod }
    }

    /// The key that identifies it: short ids are chosen by the client, and may be the same in two namespaces.
    fn key(&self) -> String {
        match self.parts.first() {
            Some(part) if !is_long_id(self.id.as_bytes()) => part.to_string_lossy().into_owned(),
            _ => self.id.clone(),
        }
    }

    /// Whether a path is its bundle, one of its layers or one of its volumes.
    fn has(&self, part: &Path) -> bool {
        self.parts.iter().any(|own| own == part)
    }

    /// Adds what another file says about the same container. A client of containerd knows more than containerd.
    fn add(&mut self, other: Self) {
        if self.runtime == Component::Containerd {
            self.runtime = other.runtime;
        }
        let Described { name, pod, is_sandbox, state, .. } = other.described;
        let own = &mut self.described;
        // Kubernetes' name comes with its pod.
        own.name = if pod.is_some() { name.or(own.name.take()) } else { own.name.take().or(name) };
        own.pod = own.pod.take().or(pod);
        own.is_sandbox |= is_sandbox;
        own.state = own.state.or(state);
        self.init = self.init.or(other.init);
        for part in other.parts {
            if !self.has(&part) {
                self.parts.push(part);
            }
        }
    }
}

/// Joins the descriptions of several files, by container.
pub fn joined(all: impl IntoIterator<Item = Container>) -> Vec<Arc<Container>> {
    let mut joined: BTreeMap<String, Container> = BTreeMap::new();
    for container in all {
        match joined.entry(container.key()) {
            Entry::Vacant(vacant) => drop(vacant.insert(container)),
            Entry::Occupied(mut known) => known.get_mut().add(container),
        }
    }
    joined.into_values().map(Arc::new).collect()
}

/// The present containers, and earlier ones.
#[derive(Debug, Default)]
pub struct Containers {
    all: Bounded<String, Arc<Container>, REMEMBERED>,
    by_part: HashMap<PathBuf, Vec<String>>,
    /// Keys of the present ones.
    present: HashSet<String>,
}

impl Containers {
    /// Takes the present containers; returns whether one of them is new, or more is known of it.
    pub fn learn(&mut self, now: &[Arc<Container>]) -> bool {
        let mut has_changed = false;
        self.present = now.iter().map(|container| container.key()).collect();
        for container in now {
            let key = container.key();
            let known = self.all.get_mut(&key);
            if known.is_some_and(|known| known == container) {
                continue;
            }
            has_changed = true;
            let mut container = container.clone();
            if let Some(known) = self.all.get(&key).filter(|it| it.id == container.id) {
                // A layer is known by its mount, which is removed first.
                let mut parts = known.parts.clone();
                parts.extend(container.parts.iter().filter(|part| !known.has(part)).cloned());
                Arc::make_mut(&mut container).parts = parts;
                has_changed = *known != container;
            }
            self.all.insert(key, container);
        }
        if has_changed {
            self.by_part.clear();
            for (key, container) in self.all.iter() {
                for part in &container.parts {
                    self.by_part.entry(part.clone()).or_default().push(key.clone());
                }
            }
        }
        has_changed
    }

    /// The only present container with this part, or else the only one that had it.
    pub fn with(&self, part: &Path) -> Option<&Arc<Container>> {
        let all = self.by_part.get(part)?;
        let mut present = all.iter().filter(|key| self.present.contains(*key));
        let only = match (present.next(), present.next(), all.as_slice()) {
            (Some(only), None, _) | (None, _, [only]) => only,
            _ => return None,
        };
        self.all.get(only)
    }

    /// The containers with this id, else with this name, else those whose ids begin with the text.
    pub fn find(&self, text: &str) -> Vec<Arc<Container>> {
        let mut all: Vec<Arc<Container>> = self.all.iter().map(|(_, it)| it.clone()).collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        let of = |is_meant: &dyn Fn(&Container) -> bool| {
            all.iter().filter(|it| is_meant(it)).cloned().collect::<Vec<_>>()
        };
        let by_id = of(&|it| it.id == text);
        if !by_id.is_empty() {
            return by_id;
        }
        // Every pod may have a container of the same name.
        let by_name =
            of(&|it| it.described.pod.is_none() && it.described.name.as_deref() == Some(text));
        let begins = |it: &Container| !text.is_empty() && it.id.starts_with(text);
        if by_name.is_empty() { of(&begins) } else { by_name }
    }

    /// How many were forgotten because there were too many.
    pub fn dropped(&self) -> u64 {
        self.all.dropped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use podstuck_model::identity::Pod;

    const LONG: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn container(id: &str, runtime: Component, parts: &[&str]) -> Container {
        let parts = parts.iter().map(PathBuf::from).collect();
        Container { parts, ..Container::new(id.into(), runtime) }
    }

    fn pod(uid: &str) -> Option<Pod> {
        Some(Pod { uid: uid.into(), namespace: None, name: None })
    }

    #[test]
    fn descriptions_by_several_files_are_joined() {
        let mut bundle = container(LONG, Component::Containerd, &["/r/moby/x"]);
        (bundle.described.pod, bundle.init) = (pod("u"), Some(7));
        let mut docker = container(LONG, Component::Dockerd, &["/d/overlay2/l", "/d/volumes/v"]);
        docker.described.name = Some("web".into());
        let [one] = joined([bundle, docker]).try_into().unwrap();
        assert_eq!((one.runtime, one.init), (Component::Dockerd, Some(7)));
        assert_eq!((one.described.name.as_deref(), &one.described.pod), (Some("web"), &pod("u")));
        assert_eq!(one.parts.len(), 3);
        // Two containerd namespaces may have the same short id.
        let of = |bundle| container("f1", Component::Containerd, &[bundle]);
        assert_eq!(joined([of("/r/k8s.io/f1"), of("/r/test/f1")]).len(), 2);
    }

    #[test]
    fn a_container_that_is_gone_is_remembered() {
        let mut known = Containers::default();
        let one = Arc::new(container(LONG, Component::Dockerd, &["/d/overlay2/l", "/d/volumes/v"]));
        assert!(
            known.learn(std::slice::from_ref(&one)) && !known.learn(&[one]) && !known.learn(&[])
        );
        assert_eq!(known.with(Path::new("/d/volumes/v")).unwrap().id, LONG);
        assert!(known.with(Path::new("/d/volumes/w")).is_none());
        // A layer that is not seen any more is still its own.
        let less = Arc::new(container(LONG, Component::Dockerd, &["/d/volumes/v"]));
        assert!(!known.learn(&[less]));
        assert!(known.with(Path::new("/d/overlay2/l")).is_some());
        // A part that two containers share is neither's, unless only one of them is present.
        let other = container(&LONG.replace('0', "f"), Component::Dockerd, &["/d/volumes/v"]);
        let other = Arc::new(other);
        let owner =
            |known: &Containers| known.with(Path::new("/d/volumes/v")).map(|it| it.id.clone());
        assert!(known.learn(std::slice::from_ref(&other)));
        assert_eq!(owner(&known), Some(other.id.clone()));
        known.learn(&[known.all.get(LONG).unwrap().clone(), other]);
        assert_eq!(owner(&known), None);
    }

    #[test]
    fn one_is_found_by_id_by_name_and_by_the_beginning_of_its_id() {
        let mut known = Containers::default();
        let named = |id: &str, name: &str, of: Option<Pod>| {
            let mut one = container(id, Component::Dockerd, &[]);
            (one.described.name, one.described.pod) = (Some(name.into()), of);
            Arc::new(one)
        };
        let other = LONG.replacen("00", "0f", 1);
        known.learn(&[named(LONG, "web", None), named(&other, "0011", None)]);
        known.learn(&[named(&"a".repeat(64), "app", pod("u"))]);
        let ids = |text| known.find(text).iter().map(|it| it.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(LONG), [LONG]);
        assert_eq!((ids("web"), ids("0011")), (vec![LONG.to_owned()], vec![other.clone()]));
        assert_eq!(ids("0"), [LONG.to_owned(), other]);
        assert_eq!((ids("aaa").len(), ids("app").len(), ids("").len()), (1, 0, 0));
    }
}
