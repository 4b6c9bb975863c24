//! CSI volumes that are not unmounted although no call fails.

use podstuck_engine::ids;

use super::{LOGS, PV, SOON, TOKENS, csi};
use crate::case::{Case, Driver, Expected, Fixture};

const NO_CALL: Expected = Expected { actor: None, object: "/mount", ..Expected::STUCK };

pub(super) const CASES: &[Case] = &[
    Case {
        id: "csi-driver-lost-publish-state-silent",
        cause: Some(ids::CSI_DRIVER_LOST_PUBLISH_STATE),
        summary: "the CSI driver forgot its mount, and kubelet (1.30 or later) only waits: no call fails",
        volumes: &[TOKENS, LOGS, csi(PV, Driver::ForgotInSilence)],
        fixtures: &[Fixture::DriverUp],
        options: &[],
        watch_options: SOON,
        expected: Some(NO_CALL),
        ..Case::PLAIN
    },
    Case {
        id: "csi-driver-not-registered",
        cause: Some(ids::CSI_DRIVER_NOT_REGISTERED),
        summary: "the CSI driver is not on the node: kubelet cannot call it and unmounts nothing",
        volumes: &[TOKENS, LOGS, csi(PV, Driver::Missing)],
        options: &[],
        watch_options: SOON,
        expected: Some(NO_CALL),
        ..Case::PLAIN
    },
    Case {
        id: "csi-driver-down",
        cause: Some(ids::CSI_DRIVER_DOWN),
        summary: "the CSI driver has ended, but its registrar still runs: kubelet's calls fail",
        volumes: &[TOKENS, LOGS, csi(PV, Driver::Silent)],
        fixtures: &[Fixture::DriverDown],
        options: &[],
        watch_options: SOON,
        expected: Some(NO_CALL),
        ..Case::PLAIN
    },
    Case {
        id: "csi-unpublish-hung-lock",
        cause: Some(ids::CSI_UNPUBLISH_HUNG_LOCK),
        summary: "the CSI driver's process is stopped: it does not answer kubelet's call",
        volumes: &[TOKENS, LOGS, csi(PV, Driver::Silent)],
        fixtures: &[Fixture::DriverStopped],
        options: &[],
        watch_options: SOON,
        expected: Some(NO_CALL),
        ..Case::PLAIN
    },
    Case {
        id: "vol-data-missing-or-corrupt",
        cause: Some(ids::VOL_DATA_MISSING_OR_CORRUPT),
        summary: "kubelet's vol_data.json is empty: kubelet cannot find the driver and unmounts nothing",
        volumes: &[TOKENS, LOGS, csi(PV, Driver::Unknown)],
        options: &[],
        watch_options: SOON,
        expected: Some(Expected { object: "/vol_data.json", ..NO_CALL }),
        ..Case::PLAIN
    },
];
