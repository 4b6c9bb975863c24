//! A node's machine, as the components that control it report it: whether it is off, by an object that is matched to the
//! node by its provider's name. Only a positive report counts: without one, nothing is concluded.

use jiff::Timestamp;

use crate::model::{
    cluster::{self, Facts, Key, Known, Object},
    path::safe,
};

/// Groups and types of objects that report a fenced node. Each has the node's name.
const FENCING: [(&str, &str); 2] = [
    ("self-node-remediation.medik8s.io", "selfnoderemediations"),
    ("fence-agents-remediation.medik8s.io", "fenceagentsremediations"),
];
/// Groups of Machines.
const MACHINES: [&str; 2] = ["cluster.x-k8s.io", "machine.openshift.io"];
const HOSTS: &str = "metal3.io";

/// A sentence that proves that the machine is off or was switched off after `heard`, kubelet's last report.
pub(super) fn off(node: &Object, heard: Option<Timestamp>, facts: &Facts) -> Option<String> {
    let groups = facts.groups().is()?;
    let is_served = |group: &str| groups.iter().any(|it| it == group);
    // All are asked for before one is used, so that they are read at a time.
    let host = is_served(HOSTS).then(|| of_host(node, heard, facts)).flatten();
    let fenced: Vec<_> = FENCING.iter().filter(|(group, _)| is_served(group)).collect();
    let fenced: Vec<_> = fenced
        .iter()
        .map(|(group, plural)| of_fencing(node, heard, group, plural, facts))
        .collect();
    let machines: Vec<_> = MACHINES.iter().filter(|group| is_served(group)).collect();
    let machines: Vec<_> =
        machines.iter().map(|group| of_machine(node, heard, group, facts)).collect();
    host.or_else(|| fenced.into_iter().flatten().next())
        .or_else(|| machines.into_iter().flatten().next())
}

/// Whether a report is newer than kubelet's last one: an older one says nothing about the machine since then.
fn is_newer(reported: Option<Timestamp>, heard: Option<Timestamp>) -> bool {
    reported.zip(heard).is_some_and(|(reported, heard)| reported > heard)
}

/// All objects of a type, in the version that the API server prefers.
fn all(group: &str, plural: &str, facts: &Facts) -> Option<std::sync::Arc<[Object]>> {
    let types = facts.types(group).is()?;
    let kind: &cluster::Kind = types.iter().find(|it| it.plural == plural)?;
    facts.all(kind, None, None).is()
}

/// Namespace and name of the BareMetalHost that a node's `providerID` names, and its UID or the name of its consumer.
fn host_of(provider: &str) -> Option<(&str, &str, &str)> {
    let path = provider
        .strip_prefix("metal3://")
        .or_else(|| provider.strip_prefix("baremetalhost:///"))?;
    let mut parts = path.split('/');
    let found = (parts.next()?, parts.next()?, parts.next()?);
    parts.next().is_none().then_some(found)
}

fn of_host(node: &Object, heard: Option<Timestamp>, facts: &Facts) -> Option<String> {
    let provider = node.spec.provider_id.as_deref()?;
    let (namespace, name, last) = host_of(provider)?;
    let Known::Is(host) = facts.object(&Key::of(cluster::Kind::BARE_METAL_HOST, namespace, name))
    else {
        return None;
    };
    let is_same = match &host.spec.consumer_ref {
        _ if provider.starts_with("baremetalhost:") => host.metadata.uid == last,
        Some(consumer) => consumer.name == last,
        None => false,
    };
    let is_off = host.status.powered_on == Some(false);
    if !is_same || !is_off || !is_newer(host.status.last_updated, heard) {
        return None;
    }
    let at = host.status.last_updated?;
    let text = format!(
        "spec.providerID of the node names BareMetalHost {namespace}/{name}, whose status.poweredOn is false since {at:.0} at \
         the latest, after kubelet's last report"
    );
    Some(safe(text.as_bytes()).into_owned())
}

fn of_fencing(
    node: &Object,
    heard: Option<Timestamp>,
    group: &str,
    plural: &str,
    facts: &Facts,
) -> Option<String> {
    let name = &node.metadata.name;
    let all = all(group, plural, facts)?;
    let of_node = all.iter().filter(|it| it.metadata.name == *name);
    let mut succeeded = of_node.filter_map(|it| {
        let condition = it.condition("Succeeded").filter(|it| it.status == "True")?;
        let at = condition.last_transition_time;
        is_newer(at, heard).then_some((it, at?))
    });
    let (object, at) = succeeded.next()?;
    let place = object.metadata.namespace.clone().unwrap_or_default();
    let text = format!(
        "the condition Succeeded of {plural}.{group} {place}/{name} is True since {at:.0}, after kubelet's last report: the \
         machine was switched off or restarted, and what ran there has ended"
    );
    Some(safe(text.as_bytes()).into_owned())
}

fn of_machine(
    node: &Object,
    heard: Option<Timestamp>,
    group: &str,
    facts: &Facts,
) -> Option<String> {
    let provider = node.spec.provider_id.as_deref().filter(|it| !it.is_empty())?;
    let all = all(group, "machines", facts)?;
    let mut own = all.iter().filter(|it| it.spec.provider_id.as_deref() == Some(provider));
    let machine = own.next()?;
    let status = &machine.status;
    let instance = status.provider_status.as_ref().and_then(|it| it.instance_state.as_deref());
    let is_off = instance.filter(|state| {
        let is_off = ["terminated", "stopped"].iter().any(|off| state.eq_ignore_ascii_case(off));
        is_off && is_newer(status.last_updated, heard)
    });
    let what = match is_off {
        Some(state) => format!("status.providerStatus.instanceState is {state}"),
        // The provider has deleted the machine. Failed says only that something went wrong.
        None if status.phase == "Deleted" => "status.phase is Deleted".into(),
        None => return None,
    };
    let place = machine.metadata.namespace.clone().unwrap_or_default();
    let text = format!(
        "machines.{group} {place}/{} has the spec.providerID of the node, and its {what}",
        machine.metadata.name
    );
    Some(safe(text.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::host_of;

    #[test]
    fn a_provider_names_a_host_by_namespace_and_name() {
        assert_eq!(host_of("metal3://m3/host-1/machine-1"), Some(("m3", "host-1", "machine-1")));
        assert_eq!(
            host_of("baremetalhost:///openshift-machine-api/w-1/c1f6-uid"),
            Some(("openshift-machine-api", "w-1", "c1f6-uid"))
        );
        // The older form has only the UID.
        for other in ["metal3://c1f6bfd2-uid", "aws:///eu-1/i-0", "metal3://a/b/c/d", ""] {
            assert_eq!(host_of(other), None, "{other}");
        }
    }
}
