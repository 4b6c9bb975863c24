//! The table of cases: one file for what a deletion is kept from doing.

mod busy;
mod call;
mod entries;
mod healthy;
mod node;
mod process;
mod silent;

use crate::case::{Case, Driver, Kind, Volume};

/// All cases, under the names of their files, the healthy one first.
pub const FAMILIES: &[(&str, &[Case])] = &[
    ("healthy", healthy::CASES),
    ("busy", busy::CASES),
    ("entries", entries::CASES),
    ("silent", silent::CASES),
    ("call", call::CASES),
    ("process", process::CASES),
    ("node", node::CASES),
];

/// All cases in one row.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    FAMILIES.iter().flat_map(|(_, cases)| *cases)
}

/// The case of this id; `None` for an unknown one.
pub fn find(id: &str) -> Option<&'static Case> {
    cases().find(|case| case.id == id)
}

const fn empty_dir(name: &'static str, kind: Kind) -> Volume {
    Volume { plugin: "kubernetes.io~empty-dir", name, kind }
}

const fn csi(name: &'static str, driver: Driver) -> Volume {
    Volume { plugin: "kubernetes.io~csi", name, kind: Kind::Csi(driver) }
}

const fn local_disk(name: &'static str) -> Volume {
    Volume { plugin: "kubernetes.io~local-volume", name, kind: Kind::Disk }
}

/// The tokens that nearly every pod has.
const TOKENS: Volume =
    Volume { plugin: "kubernetes.io~projected", name: "kube-api-access-7w2xk", kind: Kind::Memory };
const LOGS: Volume = empty_dir("logs", Kind::Files);
/// A PersistentVolume's name: kubelet calls the directory of a CSI volume after it.
const PV: &str = "pvc-5d1c8f0e-6a43-4c55-9b37-2f0a7be91c44";

/// Calls that are not made are reported as missing after 244 s by default.
const SOON: &[&str] = &["--not-attempted-after", "4s"];

/// A call that is slow after 2 s may hang after 10 to 120 s, by what it waits for; a tenth of that is enough for
/// one that never returns.
const IMPATIENT: &[&str] = &["--hung-after", "200ms"];

/// What a machine with a small kernel lacks.
const LOOP_DEVICES: Option<&str> = Some("loop devices and ext4");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_case_has_an_id_of_its_own() {
        let ids: BTreeSet<&str> = cases().map(|case| case.id).collect();
        assert_eq!(ids.len(), cases().count());
    }

    #[test]
    fn each_case_with_a_cause_expects_a_finding() {
        for case in cases() {
            assert_eq!(case.cause.is_some(), case.expected.is_some(), "{}", case.id);
        }
    }
}
