//! The deletion of a pod's record without kubelet, where nothing of the pod uses the node any more.

use crate::{
    causes::shared::holders::is_same_pod,
    command::Step,
    model::{identity::Pod, node::PodState, shell::is_object_name},
    verdict::Draft,
};

/// In the catalogue.
pub(crate) const WAY: &str = "delete the record without kubelet, if no process of the pod lives and none \
    of its volumes is mounted";
pub(crate) const WAY_RISK: &str = "a StatefulSet creates its next pod at once";
const RISK: &str = "the record is deleted without kubelet: no process is left in the pod's control groups, \
    and nothing of it is mounted except kubelet's own in-memory files, which \
    kubelet removes afterwards. A StatefulSet creates its next pod at once";

/// Adds it, if the pod is free; as a command where the namespace and the name are given. `stays` follows in the risk.
pub(crate) fn remedy(draft: &mut Draft, pod: &PodState, named: Option<&Pod>, stays: &str) {
    if !pod.is_free() {
        return;
    }
    let risk = format!("{RISK}{stays}");
    let named = named.and_then(|it| Some((it.namespace.as_deref()?, it.name.as_deref()?)));
    let named = named.filter(|(namespace, name)| {
        [*namespace, *name, pod.uid.as_str()].into_iter().all(is_object_name)
    });
    let Some((namespace, name)) = named else {
        draft.advice(
            "where the pod's deletion was requested, delete its record at once (`kubectl delete pod NAME \
             --grace-period=0 --force`)",
            risk,
        );
        return;
    };
    let act = format!("kubectl --namespace {namespace} delete pod {name} --grace-period=0 --force");
    let step = Step::new("delete the pod's record at once", act);
    let check = is_same_pod(namespace, name, &pod.uid);
    draft.remedy(step.only_if(check, "the record is still this pod's".into()), risk);
}
