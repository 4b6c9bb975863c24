//! What kubelet's own file says of the devices that drivers must unprepare before kubelet unmounts anything.

use crate::{
    model::{
        chain::Who,
        csi::Registration,
        dra::{DeviceDriver, KeptClaim},
        evidence::Source,
        node::PodState,
        path::safe,
    },
    verdict::Draft,
};

/// Claims that are named.
const NAMED: usize = 4;

/// Adds a fact for each ResourceClaim that kubelet keeps for the pod, with the state of its drivers' sockets; of those of
/// one driver only, if that is known.
pub(super) fn tell(draft: &mut Draft, pod: &PodState, driver: Option<&str>) {
    let is_asked = |claim: &&KeptClaim| {
        driver.is_none_or(|name| claim.drivers.iter().any(|driver| driver.name == name))
    };
    for claim in pod.claims.iter().filter(is_asked).take(NAMED) {
        let drivers: Vec<String> = claim.drivers.iter().map(with_socket).collect();
        draft.fact(
            format!(
                "kubelet keeps ResourceClaim {} for this pod alone, until it is unprepared by {}",
                claim.shown(),
                drivers.join(" and by ")
            ),
            Source::file(&*claim.source),
        );
    }
}

fn with_socket(driver: &DeviceDriver) -> String {
    let name = safe(driver.name.as_bytes());
    let socket = match driver.registration {
        Registration::Listening => "a process listens on its socket in plugins_registry",
        Registration::Deaf => "no process listens on its socket in plugins_registry",
        Registration::Absent => "it has no socket in plugins_registry",
        Registration::Unknown => "its socket is not known",
    };
    format!("driver {name} ({socket})")
}

/// Names the driver that fails: the one that the error names, or else the only one that kubelet has to ask.
pub(super) fn driver_fails(draft: &mut Draft, pod: &PodState, named: Option<String>) {
    let mut drivers = pod.claims.iter().flat_map(|claim| &claim.drivers);
    let only = match &named {
        Some(name) => drivers.find(|it| it.name == *name),
        None => drivers.next().filter(|first| drivers.all(|other| other.name == first.name)),
    };
    let Some(name) = named.or_else(|| Some(only?.name.clone())) else {
        draft.held_by(Who::component("a DRA driver of the pod", None));
        draft.advice(
            "look into the DRA driver's log on this node for the claim that the error names",
            "none",
        );
        return;
    };
    let name = safe(name.as_bytes());
    draft.held_by(Who::component(format!("the DRA driver {name}"), None));
    let what = if only.is_none_or(|it| it.registration == Registration::Listening) {
        format!(
            "look into the log of the DRA driver {name} on this node for the claim that the error names"
        )
    } else {
        format!("start the DRA driver {name} on this node: kubelet's next attempt then goes on")
    };
    draft.advice(what, "none");
}
