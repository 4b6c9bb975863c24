//! Attaching to a tracepoint needs its number, which only tracefs shows, and tracefs may not be mounted. The node's
//! mounts must not be changed.

use std::{path::Path, thread};

use anyhow::{Context, Result, anyhow};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

const TRACEFS: &str = "/sys/kernel/tracing";

fn mounted() -> bool {
    [TRACEFS, "/sys/kernel/debug/tracing"].iter().any(|dir| Path::new(dir).join("events").is_dir())
}

/// Runs `work` where tracefs is visible. Where it is not mounted, that is a thread with a mount namespace of its own,
/// which ends with the thread: a copy of the node's mounts that lived longer would keep volumes busy.
pub fn with<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    if mounted() {
        return work();
    }
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            mount_privately()?;
            work()
        });
        thread
            .join()
            .unwrap_or_else(|_| Err(anyhow!("the thread that attaches the probes has ended")))
    })
}

fn mount_privately() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).with_context(|| {
        format!(
            "tracefs is not mounted, and mounting it temporarily needs CAP_SYS_ADMIN: run as root, or \
             `mount -t tracefs tracefs {TRACEFS}` first"
        )
    })?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .context("making the mounts of the attaching thread private")?;
    mount(Some("tracefs"), TRACEFS, Some("tracefs"), MsFlags::empty(), none)
        .with_context(|| format!("mounting tracefs on {TRACEFS} for the attaching thread"))
}
