//! The questions about a pod's claims: each PersistentVolumeClaim, its PersistentVolume, and its attachment by
//! the name that the attach/detach controller gives it. A list of attachments no node may read.

use std::collections::BTreeMap;

use anyhow::Result;
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::{
    Part,
    client::{Client, Refusal},
    objects::{RawAttachment, RawClaim, RawCsiDriver, RawVolume},
};
use crate::identity::dns_name::{is_label, is_subdomain};
use podstuck_model::{
    claim::{Attachment, Claim, CsiSource, PersistentVolume},
    path::safe,
    pod_record::PodRecord,
};

/// Claims of one pod that are asked for. Each takes four questions.
const CLAIMS: usize = 8;

/// What is asked of whom about the claims of one pod.
pub(super) struct Claims<'a> {
    client: &'a Client,
    node: &'a str,
    namespace: &'a str,
    /// By their names: whether drivers require their volumes to be attached.
    attach: BTreeMap<String, Option<bool>>,
    /// What is not known, and why.
    lost: Vec<String>,
}

/// Asks for each, tells what is known, and returns what is not known and why. Nothing of it is needed.
pub(super) fn ask(
    client: &Client,
    node: &str,
    record: &PodRecord,
    tell: &mut dyn FnMut(Part) -> Result<()>,
) -> Result<Vec<String>> {
    let namespace = record.pod.namespace.as_deref().unwrap_or_default();
    if record.node.as_deref() != Some(node) || !is_label(namespace) {
        return Ok(Vec::new());
    }
    let (attach, lost) = (BTreeMap::new(), Vec::new());
    let mut claims = Claims { client, node, namespace, attach, lost };
    for claim in record.claims.iter().take(CLAIMS) {
        tell(Part::Claim(claims.read(claim.clone())))?;
    }
    if let Some(more) = record.claims.len().checked_sub(CLAIMS).filter(|more| *more > 0) {
        claims.lost.push(format!("{more} more claims: {CLAIMS} are asked for"));
    }
    Ok(claims.lost)
}

impl Claims<'_> {
    /// A claim with all that is said about it.
    fn read(&mut self, mut claim: Claim) -> Claim {
        if !is_subdomain(&claim.claim) {
            return claim;
        }
        let read = Timestamp::now();
        let name = format!("{}/{}", self.namespace, claim.claim);
        let path =
            format!("/api/v1/namespaces/{}/persistentvolumeclaims/{}", self.namespace, claim.claim);
        let found = self.client.get::<RawClaim>(&path);
        let Some(found) = self.known(&format!("PersistentVolumeClaim {name}"), found) else {
            return claim;
        };
        claim.read = Some(read);
        let volume;
        (claim.deletion, volume) = found.deletion_and_volume();
        if let Some(volume) = volume.filter(|volume| is_subdomain(volume)) {
            claim.bound = self.volume(volume);
        }
        let csi = claim.bound.as_ref().and_then(|bound| bound.csi.as_ref());
        claim.attachment = csi.and_then(|csi| self.attachment(csi));
        claim
    }

    fn volume(&mut self, name: String) -> Option<PersistentVolume> {
        let found = self.client.get::<RawVolume>(&format!("/api/v1/persistentvolumes/{name}"));
        let found = self.known(&format!("PersistentVolume {name}"), found)?;
        let (deletion, csi) = found.deletion_and_csi();
        let csi = csi.map(|(driver, handle)| {
            let attachment = attachment_name(&handle, &driver, self.node);
            CsiSource { driver, handle, attachment }
        });
        Some(PersistentVolume { name, deletion, csi })
    }

    fn attachment(&mut self, csi: &CsiSource) -> Option<Attachment> {
        let required = self.requires_attaching(&csi.driver);
        if required == Some(false) {
            return None;
        }
        let path = format!("/apis/storage.k8s.io/v1/volumeattachments/{}", csi.attachment);
        match self.client.get::<RawAttachment>(&path) {
            // To the node authorizer one that does not exist is one of no relation to the node.
            Err(Refusal::NotFound | Refusal::Unrelated) => required.map(|_| Attachment::Missing),
            found => {
                let found = self.known(&format!("VolumeAttachment {}", csi.attachment), found)?;
                Some(found.attachment())
            }
        }
    }

    /// Whether it has attachments at all: one that says nothing does (`CSIDriverSpec`). Of a driver that was
    /// taken from the cluster it is not known, although kubelet then takes it so (pkg/volume/csi, `skipAttach`).
    fn requires_attaching(&mut self, driver: &str) -> Option<bool> {
        // A name of a driver may have capitals.
        if !is_subdomain(&driver.to_ascii_lowercase()) {
            return None;
        }
        if let Some(known) = self.attach.get(driver) {
            return *known;
        }
        let path = format!("/apis/storage.k8s.io/v1/csidrivers/{driver}");
        let required = match self.client.get::<RawCsiDriver>(&path) {
            Err(Refusal::NotFound) => None,
            found => self.known(&format!("CSIDriver {driver}"), found).map(RawCsiDriver::attaches),
        };
        self.attach.insert(driver.to_owned(), required);
        required
    }

    fn known<T>(&mut self, what: &str, found: Result<T, Refusal>) -> Option<T> {
        found.map_err(|why| self.lost.push(format!("{}: {why}", safe(what.as_bytes())))).ok()
    }
}

/// What the attachment of a volume to a node is called (pkg/volume/csi, `getAttachmentName`).
fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    let digest = Sha256::digest(format!("{handle}{driver}{node}"));
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("csi-{hex}")
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
