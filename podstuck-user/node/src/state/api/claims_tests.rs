//! What is asked about claims, and what is said where it is refused.

use std::time::{Duration, Instant};

use podstuck_testing::api_server::{Answer, ApiServer, NODE};
use serde_json::{Value, json};

use super::*;
use crate::state::api::kubeconfig::{Files, access};
use podstuck_model::{claim::Deletion, identity::Pod};

/// `printf vol-0d1ebs.csi.aws.comnode-of-a-certificate | sha256sum`
const ATTACHMENT: &str = "csi-8edf3756f7ae7d70fa257fc307bbda66f83cca62d852f66485358e1bac9b7447";

fn record(claims: usize) -> PodRecord {
    let claim = |number: usize| Claim {
        volume_name: format!("data-{number}"),
        claim: format!("cart-{number}"),
        read: None,
        deletion: None,
        bound: None,
        attachment: None,
    };
    PodRecord {
        pod: Pod { uid: "u".into(), namespace: Some("shop".into()), name: Some("cart".into()) },
        deletion: None,
        grace_s: 0,
        finalizers: Vec::new(),
        node: Some(NODE.into()),
        is_mirror: false,
        all_terminated: true,
        read: None,
        claims: (0..claims).map(claim).collect(),
        bidirectional: None,
        containers: None,
        reason: None,
        unmade_claims: Vec::new(),
    }
}

fn found(object: &Value) -> Answer {
    Answer::Text(200, object.to_string())
}

fn refused(message: &str) -> Answer {
    Answer::Text(403, json!({"kind": "Status", "message": message}).to_string())
}

/// A server with claim `cart-0` and its volume, and what it says of the attachment.
fn server(attachment: Answer) -> ApiServer {
    ApiServer::start(move |path| match path {
        "/api/v1/namespaces/shop/persistentvolumeclaims/cart-0" => found(&json!({
            "metadata": {
                "deletionTimestamp": "2026-11-21T10:00:00Z",
                "finalizers": ["kubernetes.io/pvc-protection"],
            },
            "spec": {"volumeName": "pv-1"},
        })),
        "/api/v1/persistentvolumes/pv-1" => found(&json!({
            "metadata": {"finalizers": ["kubernetes.io/pv-protection"]},
            "spec": {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-0d1"}},
        })),
        "/apis/storage.k8s.io/v1/csidrivers/ebs.csi.aws.com" => found(&json!({"spec": {}})),
        path if path.starts_with("/apis/storage.k8s.io/v1/volumeattachments/") => {
            attachment.clone()
        }
        _ => Answer::Text(404, "{}".into()),
    })
}

fn asked(server: &ApiServer, record: &PodRecord, limit: Duration) -> (Vec<Claim>, Vec<String>) {
    let access = access(&server.kubeconfig(), &Files::Named).unwrap();
    let client = Client::new(access, Instant::now() + limit).unwrap();
    let mut claims = Vec::new();
    let lost = ask(&client, NODE, record, &mut |part| {
        let Part::Claim(claim) = part else { panic!("{part:?}") };
        claims.push(claim);
        Ok(())
    });
    (claims, lost.unwrap())
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_claim_is_followed_to_its_volume_and_its_attachment() {
    let server = server(found(&json!({
        "metadata": {"deletionTimestamp": "2026-11-21T11:00:00Z", "finalizers": ["x/y"]},
        "status": {"attached": true, "detachError": {"message": "volume in use"}},
    })));
    let (claims, lost) = asked(&server, &record(1), LONG);
    assert!(lost.is_empty(), "{lost:?}");
    let claim = &claims[0];
    let Some(Deletion { finalizers, .. }) = &claim.deletion else { panic!("{claim:?}") };
    assert_eq!(finalizers, &["kubernetes.io/pvc-protection"]);
    let bound = claim.bound.as_ref().unwrap();
    assert_eq!((bound.name.as_str(), &bound.deletion), ("pv-1", &None));
    let csi = bound.csi.as_ref().unwrap();
    assert_eq!((csi.driver.as_str(), csi.handle.as_str()), ("ebs.csi.aws.com", "vol-0d1"));
    assert_eq!(csi.attachment, ATTACHMENT);
    let Some(Attachment::There { attached, deletion, detach_error }) = &claim.attachment else {
        panic!("{claim:?}")
    };
    assert_eq!(detach_error.as_deref(), Some("volume in use"));
    assert!(*attached && deletion.is_some() && claim.read.is_some());
    let asked = format!("/apis/storage.k8s.io/v1/volumeattachments/{ATTACHMENT}");
    assert!(server.requests().contains(&asked), "{:?}", server.requests());
}

/// In the words of the node authorizer, as `responsewriters.ForbiddenStatusError` puts them.
#[test]
fn an_attachment_that_is_gone_is_missing_also_where_a_node_may_not_ask_for_it() {
    let forbidden = format!(
        "volumeattachments.storage.k8s.io \"{ATTACHMENT}\" is forbidden: User \"system:node:{NODE}\" cannot \
         get resource \"volumeattachments\" in API group \"storage.k8s.io\" at the cluster scope: no \
         relationship found between node '{NODE}' and this object"
    );
    for gone in [Answer::Text(404, "{}".into()), refused(&forbidden)] {
        let (claims, lost) = asked(&server(gone), &record(1), LONG);
        assert_eq!((&claims[0].attachment, lost.len()), (&Some(Attachment::Missing), 0));
    }
    let (claims, lost) = asked(&server(refused("no, \u{1b}[2J")), &record(1), LONG);
    assert_eq!(claims[0].attachment, None, "it may be there");
    assert!(lost[0].contains(ATTACHMENT) && lost[0].contains("403 no, \\x1b"), "{lost:?}");
}

/// A driver that was taken from the cluster may have been one that attaches nothing.
#[test]
fn a_driver_that_attaches_nothing_or_is_not_known_misses_no_attachment() {
    let driver = "/apis/storage.k8s.io/v1/csidrivers/Nfs.csi.k8s.io";
    for (attaches, questions) in [
        (found(&json!({"spec": {"attachRequired": false}})), 3),
        (Answer::Text(404, "{}".into()), 4),
    ] {
        let server = ApiServer::start(move |path| match path {
            "/api/v1/namespaces/shop/persistentvolumeclaims/cart-0" => {
                found(&json!({"metadata": {}, "spec": {"volumeName": "pv-1"}}))
            }
            "/api/v1/persistentvolumes/pv-1" => found(&json!({
                "metadata": {},
                "spec": {"csi": {"driver": "Nfs.csi.k8s.io", "volumeHandle": "h"}},
            })),
            path if path == driver => attaches.clone(),
            _ => Answer::Text(404, "{}".into()),
        });
        let (claims, lost) = asked(&server, &record(1), LONG);
        assert!(claims[0].bound.is_some() && claims[0].attachment.is_none() && lost.is_empty());
        assert_eq!(server.requests().len(), questions, "{:?}", server.requests());
    }
}

#[test]
fn refused_missing_and_late_objects_are_reported_as_lost() {
    let refuses = ApiServer::start(|_| refused("forbidden"));
    let (claims, lost) = asked(&refuses, &record(2), LONG);
    assert!(claims.iter().all(|claim| claim.read.is_none() && claim.bound.is_none()));
    assert_eq!(lost[1], "PersistentVolumeClaim shop/cart-1: it says 403 forbidden");
    let hangs = server(Answer::Hang);
    // Long enough for the two answers that come, on a busy machine, too.
    let (claims, lost) = asked(&hangs, &record(1), Duration::from_secs(3));
    assert!(claims[0].bound.is_some() && claims[0].attachment.is_none());
    assert!(lost[0].contains("it does not answer"), "{lost:?}");
}

#[test]
fn no_more_than_a_few_are_asked_for_and_none_of_another_node() {
    let server = ApiServer::start(|_| Answer::Text(404, "{}".into()));
    let (claims, lost) = asked(&server, &record(CLAIMS + 2), LONG);
    assert_eq!((claims.len(), server.requests().len()), (CLAIMS, CLAIMS));
    assert_eq!(lost.last().unwrap(), "2 more claims: 8 are asked for");
    let away = PodRecord { node: Some("another".into()), ..record(1) };
    assert_eq!(asked(&server, &away, LONG), (Vec::new(), Vec::new()));
    let mut odd = record(1);
    odd.claims[0].claim = "../../secrets/x".into();
    asked(&server, &odd, LONG);
    assert_eq!(
        server.requests().len(),
        CLAIMS,
        "a name that the API does not take is not asked for"
    );
}
