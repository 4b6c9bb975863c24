//! The progress of a container's removal on this node, from the state alone.

use crate::model::{
    container::{ContainerName, ContainerProgress, ContainerStage, ContainerState},
    identity::TargetKind,
    node::NodeSample,
    path::safe_path,
};

/// The stage of a container.
pub(crate) fn stage(container: &ContainerName, sample: &NodeSample) -> ContainerProgress {
    let mut all = sample.containers.iter();
    let state = all.find(|state| state.container.id == container.id);
    let gone = || (ContainerStage::Gone, "no runtime has a record of it".to_owned());
    let (stage, fact) = state.map_or_else(gone, of);
    let known = state.map_or(container, |state| &state.container);
    ContainerProgress { container: known.clone(), stage, fact }
}

fn of(state: &ContainerState) -> (ContainerStage, String) {
    let runtime = state.runtime.name();
    if let Some(init) = state.init {
        return (ContainerStage::Running, format!("its first process is pid {init}"));
    }
    if let Some(mount) = state.mounts.first() {
        let fact = format!("{} is still mounted", safe_path(&mount.point));
        return (ContainerStage::Mounted, fact);
    }
    let part = |kind| state.parts.iter().find(|part| part.kind == kind);
    let left = |kind, stage| {
        part(kind).map(|part| (stage, format!("{} is still there", safe_path(&part.path))))
    };
    let begun = if state.to_go { ", which says that its removal was begun" } else { "" };
    let recorded = || (ContainerStage::Recorded, format!("{runtime} has a record of it{begun}"));
    left(TargetKind::ContainerBundle, ContainerStage::Bundle)
        .or_else(|| left(TargetKind::ContainerLayer, ContainerStage::Layer))
        .or_else(|| state.recorded.then(recorded))
        .or_else(|| left(TargetKind::DockerVolume, ContainerStage::Volume))
        .unwrap_or((ContainerStage::Gone, format!("{runtime} has no record of it any more")))
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use super::*;
    use crate::{
        model::{
            container::ContainerPart,
            identity::{Component, Target},
        },
        testing::mounted,
    };

    fn state() -> ContainerState {
        let part = |kind, path: &str| ContainerPart {
            kind,
            path: path.into(),
            target_id: 7,
            target: Arc::new(Target::unknown()),
        };
        ContainerState {
            container: ContainerName { id: "aa".into(), name: None, pod: None },
            runtime: Component::Dockerd,
            init: Some(9),
            shim: None,
            recorded: true,
            to_go: false,
            seen_by: None,
            mounts: vec![mounted(Path::new("/d/overlay2/l/merged"), 1)],
            parts: vec![
                part(TargetKind::DockerVolume, "/d/volumes/v"),
                part(TargetKind::ContainerLayer, "/d/overlay2/l"),
                part(TargetKind::ContainerBundle, "/r/moby/aa"),
            ],
        }
    }

    #[test]
    fn what_is_left_tells_the_stage() {
        let mut state = state();
        let stage = |state: &ContainerState| {
            let containers = vec![state.clone()];
            let sample = NodeSample { containers, ..NodeSample::default() };
            let found = super::stage(&state.container, &sample);
            (found.stage, found.fact)
        };
        assert_eq!(stage(&state).0, ContainerStage::Running);
        state.init = None;
        let still = |what: &str| format!("{what} is still mounted");
        assert_eq!(stage(&state), (ContainerStage::Mounted, still("/d/overlay2/l/merged")));
        state.mounts.clear();
        assert_eq!(stage(&state).0, ContainerStage::Bundle);
        state.parts.pop();
        assert_eq!(stage(&state).0, ContainerStage::Layer);
        state.parts.pop();
        state.to_go = true;
        let (at, fact) = stage(&state);
        assert_eq!(at, ContainerStage::Recorded);
        assert!(fact.contains("removal was begun"), "{fact}");
        state.recorded = false;
        assert_eq!(stage(&state).0, ContainerStage::Volume);
        state.parts.clear();
        assert_eq!(stage(&state).0, ContainerStage::Gone);
        let unknown = ContainerName { id: "bb".into(), name: None, pod: None };
        assert_eq!(super::stage(&unknown, &NodeSample::default()).stage, ContainerStage::Gone);
    }
}
