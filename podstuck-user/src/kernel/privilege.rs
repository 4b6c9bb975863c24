//! What the tool may do: checked before anything is loaded, and given up afterwards.

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

/// Loading and attaching programs.
const TO_LOAD: [Capability; 2] = [Capability::CAP_BPF, Capability::CAP_PERFMON];
/// Reading maps (below 5.19), `/proc` of other users, and directories of other users.
const TO_WATCH: [Capability; 3] =
    [Capability::CAP_BPF, Capability::CAP_SYS_PTRACE, Capability::CAP_DAC_READ_SEARCH];

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

/// Keeps what watching needs and gives up the rest, for this thread and all it starts. Called
/// before the runtime starts its threads.
pub fn reduce() -> Result<()> {
    keep(&TO_WATCH)
}

/// The same for the thread that reads kernel stacks: the kernel shows them to whoever has
/// `CAP_SYS_ADMIN` when the file is opened (`proc_pid_stack` in fs/proc/base.c).
pub fn reduce_but_stacks() -> Result<()> {
    keep(&[TO_WATCH.as_slice(), &[Capability::CAP_SYS_ADMIN]].concat())
}

fn keep(wanted: &[Capability]) -> Result<()> {
    let held = caps::read(None, CapSet::Permitted)?;
    let keep: CapsHashSet = wanted.iter().copied().filter(|c| held.contains(c)).collect();
    // The bounding set too, or a helper program run as root would get everything back.
    for other in caps::all().difference(&keep) {
        // Fails for those that this kernel does not know, and without CAP_SETPCAP, which then is
        // not there to be abused either.
        let _ = caps::drop(None, CapSet::Bounding, *other);
    }
    caps::set(None, CapSet::Effective, &keep)?;
    caps::set(None, CapSet::Permitted, &keep)?;
    Ok(())
}
