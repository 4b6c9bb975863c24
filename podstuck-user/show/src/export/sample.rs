//! Series for the tests of all formats.

use jiff::Timestamp;
use podstuck_common::{bucket::bucket_of, count::CallTotals};

use podstuck_model::{
    call::{Call, Outcome},
    identity::Component,
    series::{Series, SeriesKey, SeriesTable, Span},
};

pub(super) const UID: &str = "3f2a1f5c-8a54-4c0e-9d38-0d7e5a1b2c3d";

pub(super) fn start() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

pub(super) fn key(call: Call, outcome: Outcome, pod: &str, volume: &str) -> SeriesKey {
    let component = match call {
        Call::Unlinkat => Component::Kubelet,
        Call::Unlink => Component::Workload,
        _ => Component::Other,
    };
    let (pod, volume, container) = (pod.into(), volume.into(), String::new());
    SeriesKey { span: Span::Call(call), outcome, pod, volume, container, component }
}

/// A series of (nanoseconds, calls).
pub(super) fn series(values: &[(u64, u64)]) -> Series {
    let mut series = Series::default();
    for (ns, calls) in values {
        series.add(bucket_of(*ns), CallTotals::of_equal(*calls, *ns));
    }
    series
}

/// An ordinary series, one with a hostile volume name, and one with an errno without a name.
pub(super) fn table() -> SeriesTable {
    SeriesTable::from([
        (
            key(Call::Unlinkat, Outcome(16), UID, "data"),
            series(&[(10_000, 100), (1_233_333_333, 3)]),
        ),
        (key(Call::Unlink, Outcome::OK, UID, "a,b\" ;c\u{1b}"), series(&[(300, 2)])),
        (key(Call::Umount2, Outcome(530), "", ""), series(&[(5_000_000_000_000, 1)])),
    ])
}
