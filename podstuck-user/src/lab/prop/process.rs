//! A process that is not the pod's and holds on to its volume.

use std::{
    io,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::Staged;

/// Where it sees the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// In the mount namespace of kubelet's part.
    Same,
    /// In one of its own that receives kubelet's mounts and unmounts, as a container does that has
    /// the node's directories with `mountPropagation: HostToContainer`.
    Slave,
    /// In one of its own that receives nothing.
    Private,
}

/// Starts it with this working directory.
pub(super) fn stage(directory: &Path, view: View) -> Result<Staged> {
    if view == View::Slave {
        // Nothing of it gets out: kubelet's part has a private namespace.
        set_propagation(MsFlags::MS_SHARED).context("cannot share the mounts with an agent")?;
    }
    let mut command = Command::new("sleep");
    command.arg("1000000").current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: only system calls between fork and exec, and no allocation: the paths fit the stack.
    unsafe { command.pre_exec(move || Ok(enter(view)?)) };
    let child = command.spawn().context("cannot start a process in the volume")?;
    Ok(Box::new(Holder(child)))
}

fn enter(view: View) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let propagation = match view {
        View::Same => return Ok(()),
        View::Slave => MsFlags::MS_SLAVE,
        View::Private => MsFlags::MS_PRIVATE,
    };
    // The working directory moves along into the new namespace's copy of its mount.
    unshare(CloneFlags::CLONE_NEWNS)?;
    Ok(set_propagation(propagation)?)
}

fn set_propagation(propagation: MsFlags) -> nix::Result<()> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | propagation, none)
}

/// Ends it when dropped.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
