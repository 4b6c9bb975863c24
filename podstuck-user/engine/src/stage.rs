//! The progress of a pod's deletion on this node, from the state alone.

use crate::model::{
    diagnosis::{PodStage, Stage},
    identity::Pod,
    node::{NodeSample, PodState},
    path::safe_path,
    pod_group::PodGroup,
};

/// The stage of a pod; `None` if it has no directory and a kubelet root could not be read.
pub(crate) fn stage(pod: &Pod, sample: &NodeSample) -> Option<PodStage> {
    let (stage, fact) = match sample.pod(&pod.uid) {
        Some(state) => of(state, sample),
        None if sample.may_have_pod(&pod.uid) => return None,
        None => (Stage::Gone, "it has no directory below any kubelet's root".to_owned()),
    };
    Some(PodStage::new(pod.clone(), stage, fact))
}

/// The stage of a pod that has a directory, with the evidence.
pub(crate) fn of(state: &PodState, sample: &NodeSample) -> (Stage, String) {
    of_runtime(state, sample).unwrap_or_else(|| of_kubelet(state, sample))
}

/// A container that its runtime has not cleared away: kubelet continues only after that.
fn of_runtime(state: &PodState, sample: &NodeSample) -> Option<(Stage, String)> {
    let left = sample.rootfs.iter().find(|left| left.pod == state.uid)?;
    let point = safe_path(&left.mount.point);
    Some((
        Stage::Containers,
        format!("{point}, the root file system of a container that has ended, is still mounted"),
    ))
}

fn of_kubelet(state: &PodState, sample: &NodeSample) -> (Stage, String) {
    if state.populated == Some(true) {
        let is_its = |group: &&PodGroup| group.uid == state.uid && group.is_moved();
        let fact = match sample.cgroups.iter().find(is_its) {
            Some(_) => "processes of it are left outside its control groups",
            None => "processes are left in its control groups",
        };
        return (Stage::Containers, fact.into());
    }
    let mut mounts = state.volumes.iter().flat_map(|volume| &volume.mounts);
    if let Some(mount) = mounts.next() {
        let more = mounts.count();
        let more = if more == 0 { String::new() } else { format!(", and {more} more") };
        return (Stage::Volumes, format!("{} is still mounted{more}", safe_path(&mount.point)));
    }
    if let Some(volume) = state.volumes.first() {
        return (Stage::Volumes, format!("{} is still there", safe_path(&volume.path)));
    }
    if let Some(device) = state.devices.first() {
        let driver = device.driver().map(|driver| format!(" of {driver}")).unwrap_or_default();
        let left = safe_path(device.path());
        let how = if device.mounts.is_empty() { "is still there" } else { "is still mapped" };
        return (Stage::Volumes, format!("{left}, a raw block volume{driver}, {how}"));
    }
    let unknown =
        if state.populated.is_none() { ", and its control groups are unknown" } else { "" };
    (Stage::Directories, format!("{} has no volumes{unknown}", safe_path(&state.directory)))
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use super::*;
    use crate::{
        model::{identity::Target, node::VolumeState},
        testing::{block_volume, mounted, pod_group, pod_state, task},
    };

    fn stage_of(state: Option<&PodState>) -> Stage {
        let sample =
            NodeSample { pods: state.cloned().into_iter().collect(), ..NodeSample::default() };
        let pod = Pod { uid: "u".into(), namespace: None, name: None };
        // The unread root is unknown, and does not matter if the pod is found in this one.
        let unread = NodeSample { unread: vec!["/k2".into()], ..sample.clone() };
        let known = stage(&pod, &unread).map(|known| known.stage);
        let stage = stage(&pod, &sample).unwrap().stage;
        assert_eq!(known, Some(stage).filter(|stage| *stage != Stage::Gone));
        stage
    }

    #[test]
    fn what_is_left_tells_the_stage() {
        assert_eq!(stage_of(None), Stage::Gone);
        assert_eq!(stage_of(Some(&pod_state("u"))), Stage::Directories);
        let mut held = pod_state("u");
        let mount = mounted(Path::new("/k/pods/u/volumes/p/v"), 1);
        let path = "/k/pods/u/volumes/p/v".into();
        let target = Arc::new(Target::unknown());
        let volume =
            VolumeState { target_id: 7, target, path, file: None, csi: None, mounts: vec![mount] };
        held.volumes.push(volume);
        assert_eq!(stage_of(Some(&held)), Stage::Volumes);
        held.volumes.clear();
        assert_eq!(stage_of(Some(&held)), Stage::Directories);
        held.devices.push(block_volume("u", "pv"));
        assert_eq!(stage_of(Some(&held)), Stage::Volumes);
        let (_, fact) = of_kubelet(&held, &NodeSample::default());
        assert!(
            fact.contains("/volumeDevices/kubernetes.io~csi/pv") && fact.contains("raw block"),
            "{fact}"
        );
        held.populated = Some(true);
        assert_eq!(stage_of(Some(&held)), Stage::Containers);
        let cgroups = vec![PodGroup { outside: vec![task("pause", 7)], ..pod_group("u") }];
        let (_, fact) = of_kubelet(&held, &NodeSample { cgroups, ..NodeSample::default() });
        assert_eq!(fact, "processes of it are left outside its control groups");
    }
}
