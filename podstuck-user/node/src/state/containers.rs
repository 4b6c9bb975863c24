//! What runtimes keep of their containers on the disk: the helper's side. Only what has changed is read again.
//!
//! containerd's shims keep a bundle for each task, `<state>/io.containerd.runtime.v2.task/<namespace>/<id>`, with
//! the OCI specification and `init.pid`, the first process (containerd pkg/process/init.go, `InitPidFile`).
//! Docker keeps `containers/<id>/config.v2.json`, and the names of a container's layers in
//! `image/<driver>/layerdb/mounts/<id>` (moby layer/filestore.go). CRI-O and Podman, by containers-storage, keep
//! `overlay-containers/containers.json` and for each container `userdata/config.json`; CRI-O also `userdata/state.json`.

use std::{
    collections::HashMap,
    ffi::OsString,
    os::linux::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{
    directory::{Contents, Directory},
    seen_by::{Place, Root, shown},
};
use crate::identity::{
    classify::BUNDLE_PARENTS,
    containers::{Container, Described, Stored, crio_state, describe, log_driver, stored},
    target_roots::Holds,
};
use podstuck_confine::helper::{Budget, Question, Teller};
use podstuck_confine::role::Role;
use podstuck_model::{identity::Component, raw_path};

/// Each of these files is some kilobytes, and the list of all containers some hundred of them.
const LONGEST: u64 = 4 << 20;
/// Files that are looked at in one root: several times what a full node has.
const FILES: usize = 4096;

/// Which contents a file had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::state) struct Stamp {
    inode: u64,
    modified: (i64, i64),
}

/// A file that was read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::state) struct Read {
    #[serde(with = "raw_path")]
    pub(in crate::state) file: PathBuf,
    pub(in crate::state) stamp: Stamp,
}

/// The containers below runtimes' roots: for each root a part, or why it cannot be read.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct ReadContainers {
    pub(in crate::state) roots: Vec<(Place, Holds)>,
    /// What was read before, by the index of the root.
    pub(in crate::state) known: Vec<Vec<Read>>,
    /// Directories of which only is asked whether they are there, which is the answer.
    pub(in crate::state) parts: Vec<Place>,
}

/// A file below a root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::state) struct OnDisk {
    #[serde(with = "raw_path")]
    pub(in crate::state) file: PathBuf,
    pub(in crate::state) stamp: Stamp,
    /// The containers that it is about; `None` where it is what was read before.
    pub(in crate::state) containers: Option<Vec<Container>>,
}

/// What is below one root.
pub(in crate::state) type Reading = Result<Vec<OnDisk>, String>;

impl Question for ReadContainers {
    const BUDGET: Budget = Budget::Containers;
    const ROLE: Role = Role::HelperBeneath;
    type Step = OsString;
    type Part = Reading;
    type Answer = Vec<bool>;

    fn answer(self, tell: &mut Teller<OsString, Reading>) -> Result<Vec<bool>> {
        for (index, (place, holds)) in self.roots.iter().enumerate() {
            tell.at(&shown(place))?;
            // Of a process that has ended nothing is there.
            let Ok(root) = Root::of_place(place) else {
                tell.part(&Ok(Vec::new()))?;
                continue;
            };
            let top = Directory { root: &root, path: (&place.1).into() };
            let known = self.known.get(index).into_iter().flatten();
            let known = known.map(|read| (read.file.as_path(), read.stamp)).collect();
            tell.part(&Ok(read(&top, *holds, &known)))?;
        }
        let is_there = |place: &Place| {
            let found = Root::of_place(place).and_then(|root| root.directory(Path::new(&place.1)));
            found.is_ok()
        };
        let mut there = Vec::new();
        for place in &self.parts {
            tell.at(&shown(place))?;
            there.push(is_there(place));
        }
        Ok(there)
    }
}

/// By which file a container is known.
#[derive(Clone, Copy)]
enum Kind {
    /// `config.json` of a bundle.
    Bundle,
    /// Docker's `config.v2.json`.
    Docker,
    /// The specification that CRI-O and Podman made.
    UserData,
    /// CRI-O's record of the container's state.
    State,
    /// The list of containers-storage.
    Stored,
}

fn read(top: &Directory<'_>, holds: Holds, known: &HashMap<&Path, Stamp>) -> Vec<OnDisk> {
    let files = match holds {
        Holds::Pods => return Vec::new(),
        Holds::Data => of_data(top),
        Holds::PluginData => of_plugins(top),
    };
    let found = files.into_iter().take(FILES).filter_map(|(kind, file)| {
        let stamp = stamp(&file)?;
        let is_known = known.get(file.path.as_path()) == Some(&stamp);
        let containers = if is_known { None } else { Some(containers(top, kind, &file)?) };
        Some(OnDisk { file: file.path, stamp, containers })
    });
    found.collect()
}

fn of_plugins<'a>(top: &Directory<'a>) -> Vec<(Kind, Directory<'a>)> {
    let tasks = BUNDLE_PARENTS.iter().map(|tasks| top.join(tasks));
    let namespaces = tasks.flat_map(|tasks| below(&tasks));
    let bundles = namespaces.flat_map(|namespace| below(&namespace));
    bundles.map(|bundle| (Kind::Bundle, bundle.join("config.json"))).collect()
}

fn of_data<'a>(top: &Directory<'a>) -> Vec<(Kind, Directory<'a>)> {
    let docker = below(&top.join("containers"));
    let docker = docker.into_iter().map(|one| (Kind::Docker, one.join("config.v2.json")));
    let storage = top.join("overlay-containers");
    let list = (Kind::Stored, storage.join("containers.json"));
    let own = below(&storage).into_iter();
    let own = own.flat_map(|one| {
        let [config, state] = ["userdata/config.json", "userdata/state.json"];
        [(Kind::UserData, one.join(config)), (Kind::State, one.join(state))]
    });
    docker.chain([list]).chain(own).collect()
}

fn below<'a>(directory: &Directory<'a>) -> Vec<Directory<'a>> {
    directory.names().into_iter().flatten().map(|name| directory.join(name)).collect()
}

fn stamp(file: &Directory<'_>) -> Option<Stamp> {
    let metadata = file.itself().ok()?;
    let modified = (metadata.st_mtime(), metadata.st_mtime_nsec());
    Some(Stamp { inode: metadata.st_ino(), modified })
}

fn text(file: &Directory<'_>) -> Option<Vec<u8>> {
    match file.contents(LONGEST).ok()? {
        Contents::Text(text) => Some(text),
        Contents::Other { .. } => None,
    }
}

fn word(file: &Directory<'_>) -> Option<String> {
    Some(String::from_utf8(text(file)?).ok()?.trim().to_owned())
}

/// `None` for what is being made, and is looked at again.
fn containers(top: &Directory<'_>, kind: Kind, file: &Directory<'_>) -> Option<Vec<Container>> {
    if let Kind::Stored = kind {
        let all = stored(&text(file)?).into_iter();
        let of = |one: Stored| Container {
            parts: vec![top.path.join("overlay").join(&one.layer)],
            described: Described { name: one.names.into_iter().next(), ..Described::default() },
            ..Container::new(one.id, Component::CriO)
        };
        return Some(all.map(of).collect());
    }
    let mut described = match kind {
        Kind::State => {
            let state = crio_state(&text(file)?)?;
            Described { state: Some(state), ..Described::default() }
        }
        _ => describe(&text(file)?)?,
    };
    let directory = match kind {
        Kind::UserData | Kind::State => file.path.parent()?.parent()?,
        _ => file.path.parent()?,
    };
    // While it is removed, containerd has a dot before its name.
    let id = directory.file_name()?.to_str()?.trim_start_matches('.').to_owned();
    let one = match kind {
        Kind::Bundle => Container {
            init: word(&file.beside("init.pid")).and_then(|text| text.parse().ok()),
            parts: [vec![directory.with_file_name(&id)], described.volumes.clone()].concat(),
            ..Container::new(id, Component::Containerd)
        },
        Kind::Docker => {
            described.log_driver =
                text(&file.beside("hostconfig.json")).and_then(|text| log_driver(&text));
            let of_volumes = described.volume_names.iter();
            let volumes = of_volumes.map(|name| top.path.join("volumes").join(name));
            Container {
                parts: layers(top, &id).into_iter().chain(volumes).collect(),
                init: described.state.filter(|it| it.running).map(|it| it.pid),
                ..Container::new(id, Component::Dockerd)
            }
        }
        _ => Container { parts: described.volumes.clone(), ..Container::new(id, Component::CriO) },
    };
    Some(vec![Container { described, ..one }])
}

/// A container's writable layer and the one below it, whatever the storage driver is called.
fn layers(top: &Directory<'_>, id: &str) -> Vec<PathBuf> {
    let of_driver = |driver: Directory<'_>| {
        let mounts = driver.join("layerdb/mounts").join(id);
        let own = ["mount-id", "init-id"].map(|file| word(&mounts.join(file)));
        let driver = driver.path.file_name()?.to_owned();
        let is_plain = |layer: &String| !layer.is_empty() && !layer.contains('/');
        let layers = own.into_iter().flatten().filter(is_plain);
        Some(layers.map(move |layer| top.path.join(&driver).join(layer)).collect::<Vec<_>>())
    };
    below(&top.join("image")).into_iter().filter_map(of_driver).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::scratch::write;
    use podstuck_model::identity::Pod;

    use std::fs;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    fn look(path: &Path, holds: Holds, known: &[OnDisk]) -> Vec<OnDisk> {
        let root = Root::of(std::process::id()).unwrap();
        let known = known.iter().map(|it| (it.file.as_path(), it.stamp)).collect();
        read(&Directory { root: &root, path: path.into() }, holds, &known)
    }

    fn of(found: &[OnDisk], id: &str) -> Vec<Container> {
        let all = found.iter().flat_map(|file| file.containers.clone().unwrap_or_default());
        all.filter(|container| container.id == id).collect()
    }

    #[test]
    fn a_bundle_says_whose_it_is() {
        let top = tempfile::tempdir().unwrap();
        let bundles = top.path().join("io.containerd.runtime.v2.task/k8s.io");
        let group = format!(r#"{{"linux":{{"cgroupsPath":"/kubepods/pod{UID}/aa"}}}}"#);
        write(bundles.join("aa/config.json"), &group);
        write(bundles.join("aa/init.pid"), "77");
        write(bundles.join(".bb/config.json"), "{}");
        write(bundles.join("cc/config.json"), "{\"linux\":");
        fs::create_dir_all(bundles.join("dd/config.json")).unwrap();
        let found = look(top.path(), Holds::PluginData, &[]);
        let pod = Pod { uid: UID.into(), namespace: None, name: None };
        let [one] = of(&found, "aa").try_into().unwrap();
        assert_eq!((one.described.pod, one.init), (Some(pod), Some(77)));
        assert_eq!((one.runtime, one.parts), (Component::Containerd, vec![bundles.join("aa")]));
        assert_eq!(of(&found, "bb")[0].parts, [bundles.join("bb")]);
        assert_eq!(found.len(), 2, "what says nothing is read again: {found:?}");
        assert!(look(top.path(), Holds::Data, &[]).is_empty());
    }

    #[test]
    fn only_what_has_changed_is_read_again() {
        let top = tempfile::tempdir().unwrap();
        let config = top.path().join("containers/aa/config.v2.json");
        write(config.clone(), r#"{"Name":"/one","State":{"Running":true,"Pid":7}}"#);
        let first = look(top.path(), Holds::Data, &[]);
        assert_eq!(of(&first, "aa")[0].init, Some(7));
        let second = look(top.path(), Holds::Data, &first);
        assert_eq!((second[0].stamp, &second[0].containers), (first[0].stamp, &None));
        // dockerd writes a new one and renames it.
        write(top.path().join("new"), r#"{"Name":"/one","State":{"Dead":true}}"#);
        fs::rename(top.path().join("new"), config).unwrap();
        let third = look(top.path(), Holds::Data, &second);
        assert!(of(&third, "aa")[0].described.state.unwrap().is_to_go());
        fs::remove_dir_all(top.path().join("containers")).unwrap();
        assert!(look(top.path(), Holds::Data, &third).is_empty());
    }

    #[test]
    fn dockers_layers_and_volumes_belong_to_its_container() {
        let top = tempfile::tempdir().unwrap();
        let at = |path: &str| top.path().join(path);
        let points = r#"{"/d":{"Type":"volume","Name":"v1","Driver":"local"}}"#;
        let config = format!(r#"{{"Name":"/web","MountPoints":{points}}}"#);
        write(at("containers/aa/config.v2.json"), &config);
        write(at("image/overlay2/layerdb/mounts/aa/mount-id"), "layer\n");
        write(at("image/overlay2/layerdb/mounts/aa/init-id"), "layer-init");
        write(at("image/vfs/layerdb/mounts/aa/mount-id"), "../../etc");
        let [one] = of(&look(top.path(), Holds::Data, &[]), "aa").try_into().unwrap();
        assert_eq!(one.parts, [at("overlay2/layer"), at("overlay2/layer-init"), at("volumes/v1")]);
        assert_eq!((one.described.name.as_deref(), one.runtime), (Some("web"), Component::Dockerd));
    }

    #[test]
    fn containers_storage_tells_layers_in_one_file_and_pods_in_another() {
        let top = tempfile::tempdir().unwrap();
        let at = |path: &str| top.path().join(path);
        let list = r#"[{"id":"aa","names":["web"],"layer":"l1"}]"#;
        write(at("overlay-containers/containers.json"), list);
        let of_pod = format!(
            r#"{{"annotations":{{"io.kubernetes.pod.uid":"{UID}"}},"mounts":[{{"source":"/v/x/_data"}}]}}"#
        );
        write(at("overlay-containers/aa/userdata/config.json"), &of_pod);
        let state = r#"{"ociVersion":"1.0","status":"running","pid":77,"exitCode":-1}"#;
        write(at("overlay-containers/aa/userdata/state.json"), state);
        let found = of(&look(top.path(), Holds::Data, &[]), "aa");
        let state = found[2].described.state.unwrap();
        assert_eq!((state.running, state.pid, found[2].init), (true, 77, None));
        assert_eq!(found[0].parts, [at("overlay/l1")]);
        assert_eq!(found[0].described.name.as_deref(), Some("web"));
        assert_eq!(found[1].parts, [Path::new("/v/x")]);
        assert_eq!(found[1].described.pod.as_ref().unwrap().uid, UID);
    }
}
