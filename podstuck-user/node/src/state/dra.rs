//! kubelet's `dra_manager_state`: the ResourceClaims that it keeps for pods, the helper's side. kubelet writes a claim
//! before it has it prepared, and removes it after all its drivers have unprepared it (pkg/kubelet/cm/dra).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::directory::{Contents, Directory};
use crate::identity::uid::is_pod_uid;

/// Below kubelet's root.
pub(super) const FILE: &str = "dra_manager_state";
/// A claim takes some 500 bytes, and each of its devices some 200.
const SIZE: u64 = 4 << 20;

/// A claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClaimOnDisk {
    pub(super) namespace: String,
    pub(super) name: String,
    /// UIDs of the pods that it is kept for.
    pub(super) pods: Vec<String>,
    pub(super) drivers: Vec<String>,
}

/// All claims; none where the file is missing or not understood, which proves nothing.
pub(super) fn claims(root: &Directory<'_>) -> Vec<ClaimOnDisk> {
    match root.join(FILE).contents(SIZE) {
        Ok(Contents::Text(text)) => parse(&text).unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// The file: since Kubernetes 1.32 with the data as a text of JSON, before with the entries themselves
/// (pkg/kubelet/cm/dra/state/checkpoint.go). Its checksum is kubelet's to verify: it replaces the file as a whole.
#[derive(Deserialize)]
struct Checkpoint {
    #[serde(rename = "Data")]
    data: Option<String>,
    entries: Option<Vec<Entry>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Data {
    entries: Option<Vec<Entry>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    claim_name: String,
    namespace: String,
    /// A set of Go: its members are the keys.
    #[serde(rename = "PodUIDs", default)]
    pods: Option<BTreeMap<String, IgnoredAny>>,
    /// By driver, since 1.31.
    #[serde(default)]
    driver_state: Option<BTreeMap<String, IgnoredAny>>,
    /// Before.
    driver_name: Option<String>,
}

fn parse(text: &[u8]) -> Option<Vec<ClaimOnDisk>> {
    let file: Checkpoint = serde_json::from_slice(text).ok()?;
    let entries = match file.data {
        Some(data) => serde_json::from_str::<Data>(&data).ok()?.entries,
        None => file.entries,
    };
    let claim = |entry: Entry| {
        let pods = entry.pods.unwrap_or_default().into_keys();
        let drivers = entry.driver_state.unwrap_or_default().into_keys();
        ClaimOnDisk {
            namespace: entry.namespace,
            name: entry.claim_name,
            pods: pods.filter(|uid| is_pod_uid(uid.as_bytes())).collect(),
            drivers: drivers.chain(entry.driver_name).collect(),
        }
    };
    Some(entries.unwrap_or_default().into_iter().map(claim).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{scratch::write, seen_by::Root};

    const UID: &str = "139cdb46-f989-4f17-9561-ca10cfb509a6";
    const OTHER: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    #[test]
    fn fuzz_dra_state() {
        podstuck_fuzz::fuzz("dra_state", |input| {
            let _ = parse(input);
        });
    }

    /// As kubelet writes it since 1.32.
    fn since_1_32(data: &str) -> String {
        serde_json::json!({ "Data": data, "Checksum": 1_597_924_435_u32 }).to_string()
    }

    fn claim(pods: &[&str], driver: &str) -> ClaimOnDisk {
        ClaimOnDisk {
            namespace: "shop".into(),
            name: "gpu".into(),
            pods: pods.iter().map(|it| (*it).to_owned()).collect(),
            drivers: vec![driver.into()],
        }
    }

    #[test]
    fn both_forms_of_the_file_are_read() {
        let entry = format!(
            r#""ClaimUID":"067798be-454e-4be4-9047-1aa06aea63f7","ClaimName":"gpu","Namespace":"shop","PodUIDs":{{"{OTHER}":{{}},"{UID}":{{}}}}"#
        );
        let data = format!(
            r#"{{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","Entries":[{{{entry},"DriverState":{{"gpu.example.com":{{"Devices":[{{"PoolName":"worker-1","DeviceName":"dev-1","RequestNames":["r"],"CDIDeviceIDs":null}}]}}}}}}]}}"#
        );
        let expected = || Some(vec![claim(&[OTHER, UID], "gpu.example.com")]);
        assert_eq!(parse(since_1_32(&data).as_bytes()), expected());
        let before = format!(
            r#"{{"version":"v1","entries":[{{"DriverName":"gpu.example.com","ClassName":"c",{entry},"ResourceHandles":[{{"data":"x"}}],"CDIDevices":{{}}}}],"checksum":1}}"#
        );
        assert_eq!(parse(before.as_bytes()), expected());
        let empty = since_1_32(r#"{"kind":"DRACheckpoint","apiVersion":"x","Entries":null}"#);
        assert_eq!(parse(empty.as_bytes()), Some(Vec::new()));
    }

    #[test]
    fn a_file_that_is_missing_or_damaged_has_no_claims() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::of(std::process::id()).unwrap();
        let read = || claims(&Directory { root: &root, path: dir.path().into() });
        assert_eq!(read(), []);
        write(dir.path().join(FILE), "{");
        assert_eq!(read(), []);
        let one = format!(
            r#"{{"Entries":[{{"ClaimName":"gpu","Namespace":"shop","PodUIDs":{{"{UID}":{{}}}},"DriverState":{{"d.example.com":{{}}}}}}]}}"#
        );
        write(dir.path().join(FILE), &since_1_32(&one));
        assert_eq!(read(), [claim(&[UID], "d.example.com")]);
    }
}
