//! Threads of a process that sleep in the kernel where no signal wakes them, each with the file that its call is on.

use std::path::{Path, PathBuf};

use podstuck_confine::{proc, silent};
use podstuck_model::{
    mounts::Mounts,
    path::safe,
    waiting::{CalledFile, On},
};

use crate::state::{
    blocked::Blocked,
    sample::{DUMPS, WORKER},
};

/// Threads of a process that are looked at.
const THREADS: usize = 256;

/// Those of a process; `blocked` has the calls that its threads are in.
pub(super) fn sleeps(pid: u32, blocked: &[(u32, Blocked)]) -> Vec<On> {
    let asleep = |tid: &u32| proc::stat(pid, *tid).is_some_and(|(state, _)| state == 'D');
    let asleep: Vec<u32> = proc::threads(pid).take(THREADS).filter(asleep).collect();
    let table = if asleep.is_empty() { None } else { proc::mounts(pid) };
    let found = asleep.into_iter().filter_map(|tid| {
        let place = PathBuf::from(format!("/proc/{pid}/task/{tid}"));
        let text = |name| silent::read(&place, |place| proc::utf8(&place.join(name)));
        let channel = text("wchan").filter(|name| !name.is_empty() && name != "0");
        let status = text("status")?;
        let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let call = blocked.iter().find(|(of, _)| *of == tid);
        let descriptor = call.and_then(|(_, call)| call.descriptor());
        Some(On::Kernel {
            tid,
            is_worker: proc::comm(&place).starts_with(WORKER.as_bytes()),
            channel: channel.map(|name| safe(name.as_bytes()).into_owned()),
            file: descriptor.and_then(|it| called(&place, it, table.as_ref()?)),
            sleeps: sleeps?.trim().parse().ok()?,
        })
    });
    let found: Vec<On> = found.collect();
    // A core dump waits for the threads that sleep elsewhere.
    let waits_for_dump = |on: &On| matches!(on, On::Kernel { channel: Some(channel), .. } if DUMPS.contains(&channel.as_str()));
    match found.iter().any(waits_for_dump) && !found.iter().all(waits_for_dump) {
        true => found.into_iter().filter(|on| !waits_for_dump(on)).collect(),
        false => found,
    }
}

/// The file of a descriptor. Its link and `mnt_id` are answered from memory.
fn called(place: &Path, descriptor: u64, table: &Mounts) -> Option<CalledFile> {
    let path = super::link(place, descriptor).filter(|path| path.is_absolute())?;
    let info = place.join(format!("fdinfo/{descriptor}"));
    let info = silent::read(place, |_| proc::utf8(&info))?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()?;
    let mount = table.by_id(id)?;
    Some(CalledFile { path, fs_type: mount.fs_type.clone(), source: mount.source.clone() })
}
