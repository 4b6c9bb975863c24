//! A pod whose deletion waits inside kubelet, and what lets kubelet, or its record, go on.

use std::time::Duration;

use jiff::SignedDuration;

use crate::{
    backoff,
    cause::Cause,
    causes::shared::forced_deletion,
    model::{
        chain::Who, evidence::Source, finding::Severity, node::PodState, pod_record::PodRecord,
        said::Said, time::Monotonic,
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

/// A pod whose deletion kubelet does not finish.
pub(super) struct Suspect<'a> {
    pub(super) pod: &'a PodState,
    pub(super) record: Option<&'a PodRecord>,
    /// dockerd's last error about a request for a container of the pod.
    pub(super) dockerd: Option<&'a Said>,
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

    pub(super) fn kubelet(&self) -> Who {
        Who::component("kubelet", Some(self.kubelet))
    }

    /// Adds the forced deletion of the record, if nothing of the pod uses the node.
    pub(super) fn force(&self, draft: &mut Draft) {
        forced_deletion::remedy(draft, self.pod, self.record.map(|record| &record.pod), "");
    }
}

/// The doubt of each conclusion about kubelet's memory.
pub(super) const IN_MEMORY: &str = "what kubelet's memory has about the pod: no log shows that";
