//! The container that a run is about.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Only,
    bundles::is_process_of,
    containers::All,
    layers::{self, mounted_by_docker},
    shims::NodeShims,
    views::View,
};
use crate::{
    identity::{
        classify::classify,
        containers::{Container, DockerState},
        on_host,
    },
    state::containers::{ReadContainers, Reading},
};
use podstuck_confine::helper::ask_in_parts;
use podstuck_model::{
    container::{ContainerPart, ContainerState},
    identity::Target,
    mounted::Mounted,
    mounts::Mount,
};

/// It, also when it is gone, and which of its parts are there.
#[derive(Debug, Default)]
pub(super) struct AskedContainer(Option<(Arc<Container>, Vec<bool>)>);

impl AskedContainer {
    /// As it is now, by all containers of the node.
    pub(super) fn state(
        &mut self,
        host_root: &Path,
        only: &Only,
        all: &All,
        views: &[View],
        shims: &NodeShims,
    ) -> Vec<ContainerState> {
        let Only::Container { id, .. } = only else { return Vec::new() };
        let now = all.iter().find(|container| container.id == *id).cloned();
        let recorded = now.is_some();
        let Some(mut known) = now.or(self.0.take().map(|(known, _)| known)) else {
            return Vec::new();
        };
        if let Some((before, _)) = &self.0 {
            // A layer is known by its mount, which goes first.
            let gone = before.parts.iter().filter(|part| !known.parts.contains(part));
            let gone: Vec<PathBuf> = gone.cloned().collect();
            if !gone.is_empty() {
                Arc::make_mut(&mut known).parts.extend(gone);
            }
        }
        let places = known.parts.iter();
        let places = places.map(|part| (None, on_host(host_root, part).into())).collect();
        let question = ReadContainers { roots: Vec::new(), known: Vec::new(), parts: places };
        let before = self.0.take().map(|(_, there)| there);
        let there = ask_in_parts(question, drop::<Reading>).ok().or(before).unwrap_or_default();
        let mut state = state(&known, recorded, &there, views);
        state.shim = shims.of_container(&known.id, state.init);
        self.0 = Some((known, there));
        vec![state]
    }
}

fn state(container: &Container, recorded: bool, there: &[bool], views: &[View]) -> ContainerState {
    let is_rootfs = |mount: &Mount| {
        let of = |part: &PathBuf| {
            mount.point.parent() == Some(part)
                && mount.point.file_name().is_some_and(|name| name == "rootfs" || name == "merged")
        };
        let is_of_docker =
            mounted_by_docker(&mount.point).is_some_and(|(_, id)| id == &*container.id);
        container.parts.iter().any(of)
            || is_of_docker
                && layers::of_mount(&mount.super_options)
                    .is_some_and(|it| container.parts.contains(&it))
    };
    let mut mounts: Vec<Mounted> = Vec::new();
    for view in views {
        for mount in view.mounts.all.iter().filter(|mount| is_rootfs(mount)) {
            let same = |known: &Mounted| known.device == mount.device && known.point == mount.point;
            if !mounts.iter().any(same) {
                mounts.push(view.mounted(mount));
            }
        }
    }
    let device = mounts.first().map(|mount| mount.device);
    let there = there.iter().copied().chain(std::iter::repeat(true));
    let parts = container.parts.iter().zip(there).filter(|(_, is_there)| *is_there);
    let parts = parts.map(|(path, _)| ContainerPart {
        kind: classify(path).kind,
        path: path.clone(),
        target_id: 0,
        target: Target::unknown().into(),
    });
    ContainerState {
        container: container.name(),
        runtime: container.runtime,
        init: container.init.filter(|pid| is_process_of(*pid, &container.id, device)),
        shim: None,
        recorded,
        to_go: recorded && container.described.state.is_some_and(DockerState::is_to_go),
        seen_by: views.first().map(|view| (view.pid, view.namespace)),
        mounts,
        parts: parts.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use podstuck_model::{identity::Component, mounts::Mounts};

    #[test]
    fn the_actual_state_of_a_container_is_reported() {
        let mut one = Container::new("aa".into(), Component::Dockerd);
        one.parts =
            ["/d/overlay2/l", "/d/overlay2/l-init", "/d/volumes/v"].map(PathBuf::from).into();
        let point = PathBuf::from("/d/overlay2/l/merged");
        let mount = Mount { point, fs_type: "overlay".into(), ..Mount::default() };
        let mounts = Arc::new(Mounts { all: vec![mount], ..Mounts::default() });
        let views = [View { pid: 1, namespace: 1, mounts }];
        let found = state(&one, true, &[true, false, true], &views);
        assert_eq!(found.mounts[0].point, Path::new("/d/overlay2/l/merged"));
        let left: Vec<_> = found.parts.iter().map(|part| part.path.to_str().unwrap()).collect();
        assert_eq!(left, ["/d/overlay2/l", "/d/volumes/v"]);
        assert_eq!((found.init, found.to_go), (None, false));
    }
}
