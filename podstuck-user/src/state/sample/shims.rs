//! The runtime's process that looks after a pod's containers.

use std::{collections::BTreeSet, fs, path::PathBuf};

use procfs::process::Process;

use crate::{
    identity::{cgroup::group_of, living::Living},
    model::{
        identity::Component,
        node::{Shim, Task},
        path::safe,
    },
    silent,
};

/// Names of the programs, as far as the kernel keeps a name (15 bytes): containerd's shims, and the monitor of
/// CRI-O and Podman.
const NAMES: [&str; 2] = ["containerd-shim", "conmon"];
/// The parts of such a process. A container may have one of that name.
const PARTS: [Component; 2] = [Component::ContainerdShim, Component::CriO];
/// Processes whose parents are looked at.
const LOOKED_AT: usize = 8;

/// Those of the containers in a control group.
pub(super) fn of(tasks: &[Task]) -> Vec<Shim> {
    let pids = tasks.iter().take(LOOKED_AT).map(|task| task.pid);
    let parents: BTreeSet<i32> = pids.filter_map(parent).collect();
    parents.into_iter().filter_map(look).collect()
}

fn parent(pid: u32) -> Option<i32> {
    Some(Process::new(pid.cast_signed()).ok()?.stat().ok()?.ppid)
}

fn look(pid: i32) -> Option<Shim> {
    let process = Process::new(pid).ok()?;
    let place = PathBuf::from(format!("/proc/{pid}"));
    let stat = silent::read(&place, |_| process.stat().ok())?;
    if !NAMES.iter().any(|name| stat.comm.starts_with(name)) {
        return None;
    }
    let living = Living::look(&place)?;
    if living.started != stat.starttime || !PARTS.contains(&living.component()) {
        return None;
    }
    let channel = || silent::read(&place, |place| fs::read(place.join("wchan")).ok());
    let waits = (stat.state == 'D').then(channel).flatten();
    Some(Shim {
        pid: pid.cast_unsigned(),
        comm: safe(stat.comm.as_bytes()).into_owned(),
        state: stat.state,
        started: stat.starttime,
        group: group_of(&place),
        wait_channel: waits.map(|name| safe(&name).into_owned()),
    })
}
