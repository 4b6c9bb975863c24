//! Shell commands on a FUSE connection (Documentation/filesystems/fuse.rst). A mount's connection is named by the minor
//! number of its device.

use crate::command::View;

const CONTROL: &str = "/sys/fs/fuse/connections";

/// Mounts the control file system, if systemd has not done so at boot.
pub(crate) fn control() -> String {
    format!("{{ mountpoint -q {CONTROL} || mount -t fusectl fusectl {CONTROL}; }}")
}

/// Aborts a connection: every request fails.
pub(crate) fn abort(number: u32) -> String {
    format!("echo 1 > {CONTROL}/{number}/abort")
}

/// Checks that a mount belongs to this connection.
pub(crate) fn is_its(view: View, mount: u32, number: u32) -> String {
    format!("cut -d\" \" -f1,3 {} | grep -qx \"{mount} 0:{number}\"", view.table())
}

/// Checks that requests wait for an answer.
pub(crate) fn waits(number: u32) -> String {
    format!("[ \"$(cat {CONTROL}/{number}/waiting)\" -gt 0 ]")
}
