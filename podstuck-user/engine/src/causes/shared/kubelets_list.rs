//! What two reads of kubelet's own list of its pods prove about a deletion that the API server has.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    model::{cluster::Change, evidence::Source, path::safe},
    verdict::Draft,
};

/// kubelet's health check fails after five minutes without a round of its loop.
const ROUND: Duration = Duration::from_secs(5 * 60);

/// Adds the evidence that kubelet's list lacks the deletion.
pub(crate) fn lacks_deletion(draft: &mut Draft, apart: Duration) {
    let fact = format!(
        "kubelet's own list of its pods has this UID without deletionTimestamp, in two reads {} s apart",
        apart.as_secs()
    );
    draft.fact(fact, Source::Kubelet);
}

/// Adds the evidence that kubelet processes changes, by its list and its health check. A kubelet whose loop is blocked
/// has the same list, for another cause.
pub(crate) fn takes_changes(
    draft: &mut Draft,
    requested: Timestamp,
    now: Timestamp,
    latest: Option<&Change>,
    is_well: impl FnOnce() -> bool,
) {
    let age = Duration::try_from(now.duration_since(requested)).unwrap_or_default();
    if let Some(Change { at, namespace, name }) = latest.filter(|it| it.at > requested) {
        let named = format!("{namespace}/{name}");
        let fact = format!(
            "kubelet's own list has a later change, of {} at {at:.0}: kubelet receives other \
            changes",
            safe(named.as_bytes())
        );
        draft.fact(fact, Source::Kubelet);
    } else if age > ROUND && is_well() {
        draft.fact(
            "kubelet's /healthz is ok: its loop, which processes changes, completed a round \
            after the deletion was requested",
            Source::Kubelet,
        );
    } else {
        draft.doubt(
            "whether kubelet processes any change: its list has none that is later than this \
            deletion",
        );
    }
}
