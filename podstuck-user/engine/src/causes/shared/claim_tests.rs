//! Tests of the facts about claims, and of the note about storage that is detached under a mount.

use std::sync::Arc;

use jiff::Timestamp;

use super::*;
use crate::{
    causes::file_system::causes::DEVICE_ERROR,
    model::{
        call::Call,
        errno::Errno,
        evidence::Certainty,
        identity::{Pod, Target},
        node::{PodState, VolumeState},
        path::JsonPath,
    },
    testing::{FILE, failed, mounted, pod_record, pod_state, volume_state},
    tracker::TrackerId,
};

const READ: Timestamp = Timestamp::UNIX_EPOCH;

fn record(attachment: Option<Attachment>) -> PodRecord {
    let csi = CsiSource {
        driver: "d.example".into(),
        handle: "h\u{1b}1".into(),
        attachment: "csi-1".into(),
    };
    let deletion = None;
    let bound = PersistentVolume { name: "pv-1".into(), deletion: None, csi: Some(csi) };
    let claim = Claim {
        volume_name: "data".into(),
        claim: "cart".into(),
        read: Some(READ),
        deletion,
        bound: Some(bound),
        attachment,
    };
    PodRecord {
        pod: Pod { uid: "u".into(), namespace: Some("shop".into()), name: Some("cart-0".into()) },
        deletion: Some(READ),
        grace_s: 0,
        node: Some("n".into()),
        read: Some(READ),
        claims: vec![claim],
        ..pod_record("u")
    }
}

fn volume(plugin: &str, name: &str) -> Volume {
    Volume { name: name.into(), plugin: plugin.into(), path: JsonPath("/k/v".into()) }
}

/// A finding about this volume of pod `u`, with one doubt.
fn draft(volume: Volume) -> Draft {
    let mut op = failed(Call::Umount2, Errno::EIO, "m", 1.0);
    let pod = Some(Pod { uid: "u".into(), namespace: None, name: None });
    op.target = Arc::new(Target { pod, volume: Some(volume), ..Target::clone(&op.target) });
    let mut draft = Draft::about(TrackerId::FileSystem, &DEVICE_ERROR, &op);
    for other in DEVICE_ERROR.look_alikes {
        draft.rule_out(other.cause, "x");
    }
    draft.doubt(UNSEEN_DEVICE);
    draft.fact("calls fail", Source::Probe);
    draft
}

fn facts_of(volume: Volume, record: &PodRecord) -> (Vec<String>, Certainty) {
    let mut draft = draft(volume);
    tell(&mut draft, record);
    let facts = draft.evidence.iter().skip(1).map(|known| known.fact.clone()).collect();
    (facts, draft.certainty())
}

fn there(attached: bool, deletion: Option<Timestamp>, error: Option<&str>) -> Option<Attachment> {
    let detach_error = error.map(str::to_owned);
    Some(Attachment::There { attached, deletion, detach_error })
}

#[test]
fn a_finding_names_the_claim_of_its_volume_and_of_no_other() {
    let record = record(None);
    let (facts, certainty) = facts_of(volume(CSI, "pv-1"), &record);
    let whose = r"it is the pod's volume data: claim shop/cart, PersistentVolume pv-1, driver d.example, volume handle h\x1b1";
    assert_eq!((facts.as_slice(), certainty), ([whose.to_owned()].as_slice(), Certainty::Likely));
    assert_eq!(facts_of(volume(SUBPATH, "pv-1"), &record).0.len(), 1);
    for other in [
        volume(CSI, "pv-2"),
        volume("kubernetes.io/empty-dir", "pv-1"),
        volume("kubernetes.io/nfs", "pv-1"),
    ] {
        assert!(facts_of(other, &record).0.is_empty());
    }
    let mut other = record.clone();
    other.pod.uid = "v".into();
    assert!(facts_of(volume(CSI, "pv-1"), &other).0.is_empty(), "another pod's record");
}

#[test]
fn storage_that_is_detached_is_why_a_device_fails() {
    for (attachment, fact, certainty) in [
        (
            Some(Attachment::Missing),
            Some("there is no VolumeAttachment csi-1: the storage is detached"),
            Certainty::Firm,
        ),
        (
            there(false, None, None),
            Some("VolumeAttachment csi-1 says that the storage is not attached"),
            Certainty::Firm,
        ),
        (
            there(true, Some(READ), None),
            Some("the deletion of VolumeAttachment csi-1 was requested at 1970-01-01T00:00:00Z"),
            Certainty::Likely,
        ),
        (
            there(true, None, Some("in use")),
            Some("the driver could not detach the volume: in use"),
            Certainty::Likely,
        ),
        (there(true, None, None), None, Certainty::Likely),
    ] {
        let (facts, certain) = facts_of(volume(CSI, "pv-1"), &record(attachment));
        assert_eq!((facts.get(1).map(String::as_str), certain), (fact, certainty));
    }
}

fn sample(is_mounted: bool) -> NodeSample {
    let mounts = if is_mounted { vec![mounted("/k/v/mount", 9)] } else { Vec::new() };
    let target = Target { volume: Some(volume(CSI, "pv-1")), ..Target::unknown() }.into();
    let volume = VolumeState { file: Some(FILE), target, ..volume_state("/k/v", mounts) };
    let pod = PodState { volumes: vec![volume], ..pod_state("u") };
    NodeSample { pods: vec![pod], ..NodeSample::default() }
}

#[test]
fn storage_that_is_detached_under_a_mount_is_a_note_whatever_was_found() {
    let detached = record(Some(Attachment::Missing));
    let found = notes(&detached, &sample(true));
    assert!(
        found[0].starts_with("the storage of claim shop/cart is still mounted here"),
        "{found:?}"
    );
    assert!(notes(&detached, &sample(false)).is_empty(), "that is how it should end");
    assert!(notes(&record(there(true, None, Some("x"))), &sample(true)).is_empty());
    assert!(notes(&record(None), &sample(true)).is_empty(), "it is not known");
}

#[test]
fn a_claim_that_is_to_go_waits_for_the_pod_and_not_the_pod_for_it() {
    let mut record = record(None);
    let deletion =
        |name: &str| Some(Deletion { at: READ, finalizers: vec![format!("kubernetes.io/{name}")] });
    record.claims[0].deletion = deletion("pvc-protection");
    record.claims[0].bound.as_mut().unwrap().deletion = deletion("pv-protection");
    let (facts, certainty) = facts_of(volume(CSI, "pv-1"), &record);
    assert_eq!(
        facts[1..],
        [
            "the deletion of claim shop/cart was requested at 1970-01-01T00:00:00Z: it waits for the pod \
             (kubernetes.io/pvc-protection), which does not wait for it",
            "the deletion of PersistentVolume pv-1 was requested at 1970-01-01T00:00:00Z: it waits for its claim \
             (kubernetes.io/pv-protection), which does not wait for it",
        ]
    );
    assert_eq!(certainty, Certainty::Likely, "it says nothing about a cause");
}

/// A recording from before claims were read.
#[test]
fn a_record_without_claims_is_read() {
    let mut old = serde_json::to_value(record(None)).unwrap();
    old.as_object_mut().unwrap().remove("claims");
    let read: PodRecord = serde_json::from_value(old).unwrap();
    assert_eq!(read, PodRecord { claims: Vec::new(), ..record(None) });
    assert!(notes(&read, &sample(true)).is_empty());
}
