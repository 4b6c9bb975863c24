//! The links of a volume's CSI driver.

use super::{
    facts::Facts,
    link::{halted, logged, seen},
};
use crate::model::{
    chain::{Link, Who},
    csi::{self, CsiState, DriverState},
    identity::Component,
    node::{PodState, VolumeState},
    path::{clip, safe, safe_path},
    said::Said,
};

/// Longest name of a driver that is shown; the CSI specification allows 63 bytes.
const NAME: usize = 63;

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
            Who::component(driver(csi, facts.said), None),
            &must,
            Some("its start".into()),
            fact,
            source,
        )];
    };
    let who = Who::component(driver(csi, facts.said), Some(process.pid))
        .started(facts.clock.at(process.started));
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

/// The driver by kubelet's file about the volume, or by what logs about the pod call its volumes.
pub(super) fn driver(csi: &CsiState, said: &[Said]) -> String {
    let name = csi.data.driver().or_else(|| named(said)).map(|name| format!(" {name}"));
    format!("CSI driver{}", name.unwrap_or_default())
}

/// The only driver of the CSI volumes that the logs name.
fn named(said: &[Said]) -> Option<String> {
    let mut names = said.iter().filter_map(|said| csi::driver_of(&said.volume));
    let first = names.next()?;
    names.all(|name| name == first).then(|| clip(&safe(first.as_bytes()), NAME))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_volume_without_kubelets_file_has_the_driver_that_the_logs_name() {
        let said = |volume: &str| {
            let said = Said::new(Component::Kubelet, "log", "u", Timestamp::UNIX_EPOCH, "x");
            Said { volume: volume.into(), ..said }
        };
        let (ebs, efs) =
            (said("kubernetes.io/csi/ebs.csi.aws.com^v"), said("kubernetes.io/csi/efs^v"));
        let token = said("kubernetes.io/projected/u-t");
        assert_eq!(named(&[]), None);
        assert_eq!(named(&[token, ebs.clone()]).as_deref(), Some("ebs.csi.aws.com"));
        assert_eq!(named(&[ebs, efs]), None, "which of them is not known");
    }
}
