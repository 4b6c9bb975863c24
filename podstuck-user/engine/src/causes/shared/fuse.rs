//! Commands on a FUSE connection (Documentation/filesystems/fuse.rst). A mount's connection has its device's minor number
//! for a name.

use crate::command::View;

const CONTROL: &str = "/sys/fs/fuse/connections";

/// Has the control file system mounted, which systemd does at boot.
pub(crate) fn control() -> String {
    format!("{{ mountpoint -q {CONTROL} || mount -t fusectl fusectl {CONTROL}; }}")
}

/// Ends a connection: every request fails.
pub(crate) fn abort(number: u32) -> String {
    format!("echo 1 > {CONTROL}/{number}/abort")
}

/// Checks that a mount is one of this connection.
pub(crate) fn is_its(view: View, mount: u32, number: u32) -> String {
    format!("cut -d\" \" -f1,3 {} | grep -qx \"{mount} 0:{number}\"", view.table())
}

/// Checks that requests wait for an answer.
pub(crate) fn waits(number: u32) -> String {
    format!("[ \"$(cat {CONTROL}/{number}/waiting)\" -gt 0 ]")
}
