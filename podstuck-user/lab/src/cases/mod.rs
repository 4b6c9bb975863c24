//! The table of cases, with one file per group of obstacles.

mod busy;
mod call;
mod entries;
mod healthy;
mod node;
mod process;
mod silent;

use crate::case::{Case, Driver, Kind, Volume};

/// All cases, by the names of their files, the healthy ones first.
pub const FAMILIES: &[(&str, &[Case])] = &[
    ("healthy", healthy::CASES),
    ("busy", busy::CASES),
    ("entries", entries::CASES),
    ("silent", silent::CASES),
    ("call", call::CASES),
    ("process", process::CASES),
    ("node", node::CASES),
];

/// All cases.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    FAMILIES.iter().flat_map(|(_, cases)| *cases)
}

/// The case with this id, if there is one.
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

/// The token volume that nearly every pod has.
const TOKENS: Volume =
    Volume { plugin: "kubernetes.io~projected", name: "kube-api-access-7w2xk", kind: Kind::Memory };
const LOGS: Volume = empty_dir("logs", Kind::Files);
/// A PersistentVolume's name, which is also the name of the CSI volume's directory.
const PV: &str = "pvc-5d1c8f0e-6a43-4c55-9b37-2f0a7be91c44";

/// Missing calls are reported after 244 s by default.
const SOON: &[&str] = &["--not-attempted-after", "4s"];

/// By default, a call counts as hung after 10 to 120 s, depending on what it waits for. For a call that never returns,
/// a lower limit suffices.
const IMPATIENT: &[&str] = &["--hung-after", "200ms"];

/// Requirements that a machine with a small kernel lacks.
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
