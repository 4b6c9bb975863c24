//! The mounts of a node that this machine may lack.

use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use procfs::process::Process;

/// What systemd sets up on any node and this machine may lack: a shared root directory, without which no container sees
/// the node's mounts come and go, and tracefs, by which probes are attached. It gets back what it had.
pub(crate) struct AsBySystemd {
    root_was_private: bool,
    has_tracefs: bool,
}

const TRACEFS: &str = "/sys/kernel/tracing";

impl AsBySystemd {
    /// Sets up what is missing.
    pub(crate) fn new() -> Self {
        let none = None::<&str>;
        let mounts = Process::myself().unwrap().mountinfo().unwrap().0;
        let on = |point: &str| mounts.iter().find(|it| it.mount_point == Path::new(point));
        let root_was_private = on("/").unwrap().opt_fields.is_empty();
        if root_was_private {
            propagate(MsFlags::MS_SHARED).unwrap();
        }
        let has_tracefs = on(TRACEFS).is_some();
        if !has_tracefs {
            mount(Some("tracefs"), TRACEFS, Some("tracefs"), MsFlags::empty(), none).unwrap();
        }
        Self { root_was_private, has_tracefs }
    }
}

impl Drop for AsBySystemd {
    fn drop(&mut self) {
        if !self.has_tracefs {
            let _ = umount2(TRACEFS, MntFlags::MNT_DETACH);
        }
        if self.root_was_private {
            let _ = propagate(MsFlags::MS_PRIVATE);
        }
    }
}

fn propagate(how: MsFlags) -> nix::Result<()> {
    let none = None::<&str>;
    mount(none, "/", none, how, none)
}
