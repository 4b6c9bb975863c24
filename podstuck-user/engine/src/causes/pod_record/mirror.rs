//! Mirror pods: the record of a static pod, whose deletion ends nothing on the node.

use crate::{
    cause::{Cause, Kind, Origin, TriedWith, hidden, log, seen, way},
    causes::pod_record::{Here, of},
    command::Step,
    ids,
    model::{
        chain::Who,
        diagnosis::Stage,
        evidence::Source,
        finding::Severity,
        path::safe,
        pod_record::PodRecord,
        shell::{is_object_name, word},
    },
    verdict::Draft,
};

/// kubeadm's directory of static pod manifests.
const MANIFESTS: &str = "/etc/kubernetes/manifests";

/// The manifest of the static pod is still there.
pub(crate) static MIRROR: Cause = Cause {
    id: ids::MIRROR_POD_DELETED,
    title: "the deleted record is the mirror pod of a static pod, which kubelet runs as long as \
        its manifest exists",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "kubelet runs a static pod from a manifest on the node, and creates a record of it \
        at the API server, the mirror pod. Deleting the mirror pod does not end the static pod: \
        its containers run on, and kubelet creates the record again, or older releases leave it \
        in Terminating. Removing the manifest ends the pod.",
    confirmed_by: &[
        seen(
            "the record has the annotation kubernetes.io/config.mirror, and its deletionTimestamp has passed",
            &[Origin::Api],
        ),
        seen("the pod's processes run on this node, and none was sent SIGKILL", &[Origin::Proc]),
        hidden("kubelet has not begun to end the static pod: no manifest is read"),
    ],
    log: log("kubelet", "SyncLoop DELETE ... source=\"api\""),
    look_alikes: &[],
    ways_out: &[
        way(
            "move the pod's manifest out of the directory of kubelet's staticPodPath",
            "the static pod ends",
        ),
        way("delete the record by force; kubelet creates it again, and the pod runs on", ""),
    ],
    field: &["kubernetes#18429", "kubernetes#22625", "kubernetes#123177"],
    tried: &[TriedWith::Test],
    source: &[
        "kubernetes pkg/kubelet/kubelet.go, SyncPod: IsStaticPod",
        "kubernetes pkg/kubelet/pod/mirror_client.go",
    ],
};

/// Whether the static pod still runs, and no process of it was sent SIGKILL.
pub(super) fn runs_on(record: &PodRecord, here: Here<'_>) -> bool {
    record.is_mirror && here.stage == Some(Stage::Containers) && here.is_killed() == Some(false)
}

pub(super) fn draft(record: &PodRecord, here: Here<'_>) -> Draft {
    let mut draft = super::draft(&MIRROR, record, here);
    (draft.severity, draft.blocks_deletion) = (Severity::Warning, Some(true));
    let place = ", in the directory of kubelet's staticPodPath";
    draft.held_by(Who::object("the static pod's manifest").and(place));
    draft.must = Some("be removed");
    draft.fact("it has the annotation kubernetes.io/config.mirror", of(record));
    draft.fact(
        "processes of the pod run, and none of them was sent SIGKILL",
        Source::proc("control groups"),
    );
    draft.explanation = "The record is the mirror pod of a static pod. Its deletion ends nothing \
        on the node: kubelet runs the pod as long as its manifest exists, and neither kubelet \
        nor the runtime has to kill its containers."
        .into();
    // kubelet names the mirror pod after the manifest's pod and the node.
    let name = record.pod.name.as_deref().unwrap_or_default();
    let own = name.strip_suffix(here.node).and_then(|it| it.strip_suffix('-')).unwrap_or(name);
    if is_object_name(own) {
        let find = format!(
            "grep --recursive --files-with-matches --word-regexp {} {MANIFESTS}",
            word(own)
        );
        let does = format!("show which manifest names {own}, where staticPodPath is kubeadm's");
        draft.remedy(Step::new(does, find), "none");
    }
    draft.advice(
        format!(
            "to end the pod, move its manifest out of the directory of kubelet's staticPodPath (kubeadm: {MANIFESTS}): \
             kubelet ends the pod and deletes the record"
        ),
        "the static pod ends: where it is a part of the control plane, that part is down",
    );
    if let (Some(namespace), true) = (&record.pod.namespace, is_object_name(name))
        && is_object_name(namespace)
    {
        let delete =
            format!("kubectl --namespace {namespace} delete pod {name} --grace-period=0 --force");
        let does = format!("delete the record of {} alone; the pod runs on", safe(name.as_bytes()));
        draft.remedy(Step::new(does, delete), "low: kubelet creates the record again");
    }
    draft.doubt(
        "whether kubelet has begun to end the pod because its manifest is gone: no \
        manifest was read",
    );
    draft
}
