//! Facts from the API server about a pod's claims: the claim of a volume, whether its storage is still attached, and
//! which objects wait for the pod.

use crate::{
    model::{
        claim::{Attachment, Claim, CsiSource, Deletion, PersistentVolume},
        evidence::Source,
        identity::{SUBPATH, Volume},
        node::NodeSample,
        path::safe,
        pod_record::PodRecord,
    },
    verdict::Draft,
};

/// Plugins whose volumes are the pod's own: one of them may have the name of a PersistentVolume.
const OF_THE_POD: [&str; 6] = [
    "kubernetes.io/empty-dir",
    "kubernetes.io/secret",
    "kubernetes.io/configmap",
    "kubernetes.io/projected",
    "kubernetes.io/downward-api",
    "kubernetes.io/git-repo",
];
/// The plugin of all CSI drivers.
const CSI: &str = "kubernetes.io/csi";

/// Doubt that a failing device is at fault; settled if the attachment is gone.
pub(crate) const UNSEEN_DEVICE: &str = "whether the device fails: the kernel shows nothing of it";
/// Doubt about the device that a wait is for; settled if the attachment is gone.
pub(crate) const UNKNOWN_DEVICE: &str =
    "whether its device or server makes progress: podstuck does not know which one it is";

/// The claim of a volume. The volume's directory has the name of the PersistentVolume.
pub(crate) fn of_volume<'a>(record: &'a PodRecord, volume: &Volume) -> Option<&'a Claim> {
    record.claims.iter().find(|claim| {
        claim.bound.as_ref().is_some_and(|bound| {
            let fits = match volume.plugin.as_str() {
                SUBPATH => true,
                CSI => bound.csi.is_some(),
                other => bound.csi.is_none() && !OF_THE_POD.contains(&other),
            };
            fits && bound.name == volume.name
        })
    })
}

/// Adds the facts about the volume's claim to a finding. Detached storage settles the doubts about the device.
pub(crate) fn tell(draft: &mut Draft, record: &PodRecord) {
    let Some(volume) = draft.target.volume.as_ref() else { return };
    if draft.target.pod.as_ref().is_none_or(|pod| pod.uid != record.pod.uid) {
        return;
    }
    let Some(claim) = of_volume(record, volume) else { return };
    let (Some(read), Some(bound)) = (claim.read, &claim.bound) else { return };
    draft.fact(whose(record, claim, bound), Source::Api(read));
    for fact in deleted(record, claim, bound) {
        draft.fact(fact, Source::Api(read));
    }
    let Some((csi, attachment)) = bound.csi.as_ref().zip(claim.attachment.as_ref()) else { return };
    for fact in attached(csi, attachment) {
        draft.fact(fact, Source::Api(read));
    }
    if attachment.is_detached() {
        let answered = [UNSEEN_DEVICE, UNKNOWN_DEVICE];
        draft.doubts.retain(|doubt| !answered.contains(doubt));
    }
}

fn whose(record: &PodRecord, claim: &Claim, bound: &PersistentVolume) -> String {
    let [volume, pv] = [&claim.volume_name, &bound.name].map(|text| safe(text.as_bytes()));
    let name = name(record, claim);
    let driven = bound.csi.as_ref().map(|CsiSource { driver, handle, .. }| {
        let [driver, handle] = [driver, handle].map(|text| safe(text.as_bytes()));
        format!(", driver {driver}, volume handle {handle}")
    });
    let driven = driven.unwrap_or_default();
    format!("it is the pod's volume {volume}: claim {name}, PersistentVolume {pv}{driven}")
}

/// The claim as `NAMESPACE/NAME`.
fn name(record: &PodRecord, claim: &Claim) -> String {
    let namespace = record.pod.namespace.as_deref().unwrap_or_default();
    let [namespace, name] = [namespace, &claim.claim].map(|text| safe(text.as_bytes()));
    format!("{namespace}/{name}")
}

/// Facts about an attachment that is not in order.
fn attached(csi: &CsiSource, attachment: &Attachment) -> Vec<String> {
    let name = safe(csi.attachment.as_bytes());
    let Attachment::There { attached, deletion, detach_error } = attachment else {
        return vec![format!("there is no VolumeAttachment {name}: the storage is detached")];
    };
    let mut facts = Vec::new();
    if !attached {
        facts.push(format!("VolumeAttachment {name} says that the storage is not attached"));
    }
    facts.extend(
        deletion
            .map(|at| format!("the deletion of VolumeAttachment {name} was requested at {at:.0}")),
    );
    facts.extend(detach_error.as_ref().map(|error| {
        format!("the driver could not detach the volume: {}", safe(error.as_bytes()))
    }));
    facts
}

/// Notes about storage that was detached while it is still mounted in the last sample, independent of findings.
pub(crate) fn notes(record: &PodRecord, sample: &NodeSample) -> Vec<String> {
    let state = sample.pod(&record.pod.uid);
    let is_mounted = |claim: &Claim| {
        state.into_iter().flat_map(|state| &state.volumes).any(|volume| {
            let own = volume.target.volume.as_ref().and_then(|own| of_volume(record, own));
            own == Some(claim) && !volume.mounts.is_empty()
        })
    };
    let mut notes = Vec::new();
    for claim in &record.claims {
        let name = name(record, claim);
        let is_ending = claim.attachment.as_ref().is_some_and(Attachment::is_ending);
        if let Some(read) = claim.read.filter(|_| is_ending && is_mounted(claim)) {
            notes.push(format!(
                "the storage of claim {name} is still mounted here, but the API server shows it \
                as detached or about to be (at {read:.0}): by force, after 6 minutes on a node \
                that is not ready or at once by the taint node.kubernetes.io/out-of-service, or \
                by hand. Calls on it fail or hang, and another node may use it: do not write to \
                it"
            ));
        }
    }
    notes
}

/// Facts if the claim or its volume is also being deleted.
fn deleted(record: &PodRecord, claim: &Claim, bound: &PersistentVolume) -> Vec<String> {
    let waits = |what: String, Deletion { at, finalizers }: &Deletion, for_whom: &str| {
        let names: Vec<_> = finalizers.iter().map(|name| safe(name.as_bytes())).collect();
        let by = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        format!(
            "the deletion of {what} was requested at {at:.0}: it waits for {for_whom}{by}, which \
            does not wait for it"
        )
    };
    let of_claim = claim
        .deletion
        .as_ref()
        .map(|deletion| waits(format!("claim {}", name(record, claim)), deletion, "the pod"));
    let of_volume = bound.deletion.as_ref().map(|deletion| {
        let what = format!("PersistentVolume {}", safe(bound.name.as_bytes()));
        waits(what, deletion, "its claim")
    });
    of_claim.into_iter().chain(of_volume).collect()
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
