//! A pod whose deletion waits inside kubelet, and what lets kubelet, or its record, go on.

use std::time::Duration;

use jiff::SignedDuration;

use crate::{
    backoff,
    cause::Cause,
    causes::shared::holders::is_same_pod,
    command::Step,
    model::{
        evidence::Source,
        finding::Severity,
        node::{PodState, VolumeState},
        pod_record::PodRecord,
        shell::is_object_name,
        time::Monotonic,
    },
    tracker::TrackerId,
    verdict::Draft,
};

/// How long a pod must outlast its grace period before kubelet counts as late: it reports an end within ten seconds.
pub(super) const LATE: SignedDuration = SignedDuration::from_secs(10);
/// The same if no failure is seen, or if kubelet may be removing containers meanwhile.
pub(super) const VERY_LATE: SignedDuration = SignedDuration::from_secs(60);
/// kubelet fails again after two minutes at the latest.
pub(super) const FRESH: Duration = Duration::from_secs(2 * backoff::CAP.as_secs());

/// The forced deletion of a record, in the catalogue.
pub(super) const FORCE: &str = "delete the record without kubelet, if no process of the pod lives and none \
    of its volumes is mounted";
pub(super) const FORCE_RISK: &str = "a StatefulSet creates its next pod at once";

/// A pod whose deletion kubelet does not finish.
pub(super) struct Suspect<'a> {
    pub(super) pod: &'a PodState,
    pub(super) record: Option<&'a PodRecord>,
    /// Its process id
    pub(super) kubelet: u32,
    pub(super) now: Monotonic,
    /// When the scan was made
    pub(super) at: Monotonic,
}

impl Suspect<'_> {
    pub(super) fn draft(&self, cause: &'static Cause) -> Draft {
        let pod = self.record.map_or_else(|| self.pod.named(), |record| record.pod.clone());
        let directory = Some(self.pod.directory.as_path());
        let mut draft = Draft::about_pod(TrackerId::KubeletsPart, cause, pod, directory, self.at);
        (draft.severity, draft.blocks_deletion) = (Severity::Warning, Some(true));
        draft.is_settled = true;
        if let Some(record) = self.record.filter(|record| record.deletion.is_some()) {
            let by = record.deletion.map(|by| format!(" ({by:.0})")).unwrap_or_default();
            draft.fact(format!("its deletionTimestamp has passed{by}"), Source::Record);
        }
        draft
    }

    pub(super) fn kubelet(&self) -> String {
        format!("kubelet (pid {})", self.kubelet)
    }

    /// Whether no process of the pod lives, and nothing of it is mounted but kubelet's own files in memory.
    pub(super) fn is_free(&self) -> bool {
        let mut mounted = self.pod.volumes.iter().filter(|volume| !volume.mounts.is_empty());
        let is_mapped = self.pod.devices.iter().any(|device| !device.mounts.is_empty());
        self.pod.populated == Some(false) && !is_mapped && mounted.all(VolumeState::is_of_api)
    }

    /// Adds the forced deletion of the record, if the pod is free.
    pub(super) fn force(&self, draft: &mut Draft) {
        const RISK: &str = "the record is deleted without kubelet: no process of the pod lives \
            here, and nothing of it is mounted except kubelet's own in-memory files, which \
            kubelet removes afterwards. A StatefulSet creates its next pod at once";
        if !self.is_free() {
            return;
        }
        let named = self
            .record
            .and_then(|record| Some((record.pod.namespace.as_ref()?, record.pod.name.as_ref()?)));
        let named = named.filter(|(namespace, name)| {
            [namespace, name, &&self.pod.uid].iter().all(|it| is_object_name(it))
        });
        match named {
            Some((namespace, name)) => {
                let act = format!(
                    "kubectl --namespace {namespace} delete pod {name} --grace-period=0 --force"
                );
                let step = Step::new("delete the pod's record at once", act);
                let check = is_same_pod(namespace, name, &self.pod.uid);
                draft.remedy(step.only_if(check, "the record is still this pod's".into()), RISK);
            }
            None => {
                draft.advice(
                    "where the pod's deletion was requested, delete its record at once (`kubectl delete pod NAME \
                     --grace-period=0 --force`)",
                    RISK,
                );
            }
        }
    }
}

pub(crate) const RESTART_RISK: &str =
    "low: containers keep running, and kubelet finds the node's pods and volumes again";

pub(super) fn restart(draft: &mut Draft, and_then: &str) {
    draft.advice(
        format!("restart kubelet (`systemctl restart kubelet`, where it is a service of that name): {and_then}"),
        RESTART_RISK,
    );
}

/// The doubt of each conclusion about kubelet's memory.
pub(super) const IN_MEMORY: &str = "what kubelet's memory has about the pod: no log shows that";
