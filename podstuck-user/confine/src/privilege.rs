//! The privileges of the tool, checked before anything is loaded.

use std::cell::Cell;

use anyhow::Result;
use caps::{CapSet, Capability, CapsHashSet};
use thiserror::Error;

/// A privilege that is missing, and the way to get it.
#[derive(Debug, Error)]
#[error(
    "missing capability {0}: run podstuck as root on the node, or in a privileged pod \
     (`kubectl debug node/NODE -it --profile=sysadmin --image=busybox`)"
)]
pub struct Missing(String);

/// For loading and attaching programs.
const TO_LOAD: [Capability; 2] = [Capability::CAP_BPF, Capability::CAP_PERFMON];

/// Whether programs can be loaded. `CAP_SYS_ADMIN` includes the newer two.
pub fn check() -> Result<(), Missing> {
    let has = |c: Capability| caps::has_cap(None, CapSet::Effective, c).unwrap_or(false);
    if has(Capability::CAP_SYS_ADMIN) {
        return Ok(());
    }
    match TO_LOAD.into_iter().find(|c| !has(*c)) {
        Some(missing) => Err(Missing(missing.to_string())),
        None => Ok(()),
    }
}

/// For reading other users' processes and files.
const TO_LOOK: [Capability; 2] = [Capability::CAP_SYS_PTRACE, Capability::CAP_DAC_READ_SEARCH];

/// Whether the whole node can be scanned.
///
/// # Errors
/// Fails with the missing capability.
pub fn can_look() -> Result<(), Missing> {
    let has = |c: Capability| caps::has_cap(None, CapSet::Effective, c).unwrap_or(false);
    let passes = |c: Capability| match c {
        // It includes the other.
        Capability::CAP_DAC_READ_SEARCH => has(c) || has(Capability::CAP_DAC_OVERRIDE),
        _ => has(c),
    };
    match TO_LOOK.into_iter().find(|c| !passes(*c)) {
        Some(missing) => Err(Missing(missing.to_string())),
        None => Ok(()),
    }
}

/// Ensures that no program that this process executes gains privileges, by set-user-ID, file capabilities, or a
/// security module. Call it before there are threads.
pub fn gain_nothing() {
    if let Err(error) = rustix::thread::set_no_new_privs(true) {
        tracing::info!("no_new_privs: {error}");
    }
}

thread_local! {
    /// Whether this thread, or the one that it was forked from, has dropped what it does not hold from its bounding set.
    static IS_BOUND: Cell<bool> = const { Cell::new(false) };
}

/// Keeps those of the wanted capabilities that are held, and drops the rest, for this thread and all it starts.
pub(crate) fn keep(wanted: &[Capability]) -> Result<()> {
    let held = caps::read(None, CapSet::Permitted)?;
    if IS_BOUND.get() && held.iter().all(|capability| wanted.contains(capability)) {
        return Ok(());
    }
    let keep: CapsHashSet = wanted.iter().copied().filter(|c| held.contains(c)).collect();
    // The bounding set too, or a helper program run as root would get everything back.
    for other in caps::all().difference(&keep) {
        // Fails for capabilities that this kernel does not know, and without CAP_SETPCAP, which then cannot be abused
        // either.
        let _ = caps::drop(None, CapSet::Bounding, *other);
    }
    caps::set(None, CapSet::Effective, &keep)?;
    caps::set(None, CapSet::Permitted, &keep)?;
    IS_BOUND.set(true);
    Ok(())
}
