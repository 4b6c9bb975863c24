//! What a process may do, as far as the kernel shows it without a lock of the process.

use std::{fs, path::Path};

/// Its bit in the sets of `/proc/PID/status` (include/uapi/linux/capability.h).
const CAP_SYS_ADMIN: u32 = 21;

/// Whether a process may be the node's root: effective user 0 with `CAP_SYS_ADMIN`, in a user namespace that has
/// all of the node's user ids, as only root can make one.
pub(crate) fn may_be_root(process: &Path) -> bool {
    is_maybe_root(process).unwrap_or(false)
}

/// The same; `None` when that could not be read.
pub(crate) fn is_maybe_root(process: &Path) -> Option<bool> {
    if !is_privileged(&fs::read(process.join("status")).ok()?) {
        return Some(false);
    }
    let ids = |directory: &Path| fs::read(directory.join("uid_map")).ok();
    Some(ids(process)? == ids(Path::new("/proc/self"))?)
}

/// By the text of `/proc/PID/status`.
pub(crate) fn is_privileged(status: &[u8]) -> bool {
    let field = |name: &[u8]| {
        let mut lines = status.split(|byte| *byte == b'\n');
        let value = lines.find_map(|line| line.strip_prefix(name))?;
        std::str::from_utf8(value).ok()
    };
    // Real, effective, saved, of the file system.
    let effective_user = field(b"Uid:").and_then(|ids| ids.split_ascii_whitespace().nth(1));
    let capabilities = field(b"CapEff:").and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    effective_user == Some("0") && capabilities.is_some_and(|set| set & 1 << CAP_SYS_ADMIN != 0)
}
