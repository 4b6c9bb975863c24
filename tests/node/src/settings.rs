//! Settings of the kernel that kubelet changes: saved before and restored after.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result};

use crate::place::Place;

/// kubelet's `setupKernelTunables` (pkg/kubelet/cm/container_manager_linux.go).
const CHANGED: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// Notes them.
pub(crate) fn save(place: &Place) -> Result<()> {
    let read = |name: &'static str| Some((name, fs::read_to_string(path(name)).ok()?));
    let all: BTreeMap<&str, String> = CHANGED.into_iter().filter_map(read).collect();
    place.note("settings", &all)
}

/// Writes back those that have changed.
pub(crate) fn restore(place: &Place) -> Result<()> {
    let all: BTreeMap<String, String> = place.noted("settings")?.unwrap_or_default();
    for (name, value) in &all {
        if fs::read_to_string(path(name)).is_ok_and(|now| now != *value) {
            fs::write(path(name), value).with_context(|| format!("restoring {name}"))?;
        }
    }
    Ok(())
}

fn path(name: &str) -> String {
    format!("/proc/sys/{name}")
}
