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
use crate::lab::build;

/// Where it sees the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// In the mount namespace of kubelet's part.
    Same,
    /// In one of its own that receives kubelet's mounts and unmounts, as a container does that has
    /// the node's directories with `mountPropagation: HostToContainer`.
    Slave,
    /// In one of its own that receives nothing, and at another path: removing the directory on which
    /// a volume was mounted detaches all copies of that mount, but not this one.
    Private,
}

/// Starts it, with the volume as its working directory or, in a private view, mounted at `elsewhere`.
pub(super) fn stage(volume: &Path, view: View, elsewhere: &Path) -> Result<Staged> {
    if view == View::Slave {
        // Nothing of it gets out: kubelet's part has a private namespace.
        set_propagation(MsFlags::MS_SHARED).context("cannot share the mounts with an agent")?;
    }
    let mut command = Command::new("sleep");
    command.arg("1000000").stdin(Stdio::null()).stdout(Stdio::null());
    if view == View::Private {
        build::make(elsewhere)?;
        command.current_dir("/");
    } else {
        command.current_dir(volume);
    }
    let (volume, elsewhere) = (volume.to_owned(), elsewhere.to_owned());
    // SAFETY: only system calls between fork and exec. `nix` allocates for paths longer than 1,024
    // bytes only, and a lab's are shorter.
    unsafe { command.pre_exec(move || enter(view, &volume, &elsewhere)) };
    let child = command.spawn().context("cannot start a process in the volume")?;
    Ok(Box::new(Holder(child)))
}

fn enter(view: View, volume: &Path, elsewhere: &Path) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let propagation = match view {
        View::Same => return Ok(()),
        View::Slave => MsFlags::MS_SLAVE,
        View::Private => MsFlags::MS_PRIVATE,
    };
    // The working directory moves along into the new namespace's copy of its mount.
    unshare(CloneFlags::CLONE_NEWNS)?;
    set_propagation(propagation)?;
    if view == View::Private {
        mount(Some(volume), elsewhere, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    }
    Ok(())
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
