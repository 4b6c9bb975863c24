//! The links of a volume's CSI driver.

use super::{
    facts::Facts,
    link::{halted, logged, seen},
};
use crate::model::{
    chain::{Link, Who},
    csi::{CsiState, DriverState},
    identity::Component,
    node::{PodState, VolumeState},
    path::safe_path,
};

/// The volume that holds kubelet: a mounted one before others.
pub(super) fn first_left(state: &PodState) -> Option<&VolumeState> {
    let mut volumes = state.volumes.iter();
    volumes.clone().find(|volume| !volume.mounts.is_empty()).or_else(|| volumes.next())
}

pub(super) fn mount_of(volume: &VolumeState) -> Option<String> {
    let mount = volume.mounts.first()?;
    Some(format!("{}, {}, to be unmounted", safe_path(&mount.point), mount.what))
}

/// The links of the CSI driver of the volume that holds kubelet.
pub(super) fn of_driver(state: &PodState, facts: &Facts<'_>) -> Vec<Link> {
    let parts = || {
        let volume = first_left(state)?;
        let csi = volume.csi.as_ref()?;
        Some((volume, csi, csi.driver.as_ref()?))
    };
    let Some((volume, csi, DriverState { process, socket, source, .. })) = parts() else {
        return Vec::new();
    };
    let must = format!("unmount {}", safe_path(&volume.path));
    let Some(process) = process else {
        let fact = format!("no process listens on its socket {}", safe_path(socket));
        return vec![seen(
            Who::component(driver(csi), None),
            &must,
            Some("its start".into()),
            fact,
            source,
        )];
    };
    let who =
        Who::component(driver(csi), Some(process.pid)).started(facts.clock.at(process.started));
    if let Some(why) = &process.halted {
        return vec![seen(who, &must, None, halted(why), "/proc")];
    }
    let mut waits = facts.waits.follow(process.pid, &must, facts.clock).links;
    if let Some(first) = waits.first_mut() {
        first.who = who;
        return waits;
    }
    let link = seen(who, &must, mount_of(volume), "it runs and listens".into(), source);
    vec![logged(link, facts.last_of(&[Component::CsiDriver]))]
}

pub(super) fn driver(csi: &CsiState) -> String {
    let name = csi.data.driver().map(|name| format!(" {name}"));
    format!("CSI driver{}", name.unwrap_or_default())
}
