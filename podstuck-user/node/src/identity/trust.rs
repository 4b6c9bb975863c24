//! The trust in a process that appears to be a kubelet or a runtime by its name, and in the paths of its directories,
//! configuration, log and credentials by its command line.
//!
//! Any process can have any name. Only a process with root's ids, that had them when the program was executed, is
//! trusted: root has started it. That does not make it a part of the node, since `sudo` in a user's session starts any
//! program. So there are two grades, and the lower one yields to the higher one.

use std::{collections::BTreeMap, fs, path::Path};

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};
use serde::{Deserialize, Serialize};

use super::{
    cgroup::{group_of, pod_of_cgroup},
    living::is_root,
};
use podstuck_confine::{credentials::may_be_root, silent};
use podstuck_model::path::safe;

/// The grade of trust. `Service` is the higher one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Belief {
    /// An administrator has started it: a lab, or a kubelet in a container beside the node's own. Its root and its logs are
    /// read. It yields to a service where both describe the same object, and its credentials are not used.
    Administrator,
    /// It is a part of the node.
    Service,
}

impl Belief {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Service => "a service of the node",
            Self::Administrator => "started by an administrator",
        }
    }
}

/// The trust in a process, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The grade.
    pub belief: Belief,
    /// The reason for this grade.
    pub why: String,
    /// Device and inode number of its root directory, if that is not the node's.
    elsewhere: Option<Directory>,
}

type Directory = (u32, u32, u64);

/// No user is logged in (`AUDIT_UID_UNSET` in include/linux/audit.h).
const NO_USER: &str = "4294967295";

impl Standing {
    /// Rates a process, given its directory in the node's `/proc`.
    ///
    /// # Errors
    /// Returns why the process is not trusted.
    pub(crate) fn of(proc: &Path, process: &Path) -> Result<Self, String> {
        let group = group_of(process).ok_or("it has ended")?;
        if let Some((uid, _)) = pod_of_cgroup(&group) {
            return Err(format!("it is in the control group of pod {uid}"));
        }
        if !is_root(process) {
            return Err(why_not_root(process).into());
        }
        let of = |belief, why| Self { belief, why, elsewhere: None };
        if let Some(why) = session_of(process).or_else(|| why_not_roots_program(process)) {
            return Ok(of(Belief::Administrator, why));
        }
        // The root of process 1 may not be readable, even by root; this tool's own root may be a container's.
        let node = root_of(&proc.join("1")).or_else(|| directory(&proc.parent()?.join(".")));
        Ok(match root_of(process) {
            Some(own) if Some(own) == node => {
                of(Belief::Service, format!("started by root, outside login sessions ({group})"))
            }
            Some(own) => Self {
                elsewhere: Some(own),
                ..of(Belief::Administrator, "its root directory is not the node's".into())
            },
            None => of(Belief::Administrator, "its root directory is not known".into()),
        })
    }
}

/// Raises a kubelet with another root directory if there is no other: several distributions run theirs in one. Daemons
/// with the same root directory are of one node, such as a supervisor and the kubelet that it starts.
pub(crate) fn raise_the_only_one<'a>(
    of_a_kind: impl Iterator<Item = &'a u32>,
    standings: &mut BTreeMap<u32, Standing>,
) {
    let pids: Vec<u32> = of_a_kind.copied().collect();
    let mut places = pids.iter().filter_map(|pid| standings.get(pid));
    let Some(only) = places.find_map(|it| it.elsewhere) else { return };
    let is_other = |it: &Standing| {
        it.belief == Belief::Service || it.elsewhere.is_some_and(|place| place != only)
    };
    if pids.iter().filter_map(|pid| standings.get(pid)).any(is_other) {
        return;
    }
    for pid in pids {
        if let Some(it) = standings.get_mut(&pid).filter(|it| it.elsewhere.is_some()) {
            it.belief = Belief::Service;
            it.why = "the only one, with its own root directory".into();
        }
    }
}

fn why_not_root(process: &Path) -> &'static str {
    if may_be_root(process) {
        // The ids at its execution differ, or its user namespace does.
        "another user started it (set-user-ID), or it is in another user namespace"
    } else {
        "not all of its user and group ids are 0, or it lacks CAP_SYS_ADMIN"
    }
}

/// The login session that a process was started in. systemd puts processes of users below `user.slice`; the kernel
/// keeps the login user where auditing is enabled, also without systemd.
fn session_of(process: &Path) -> Option<String> {
    // All hierarchies: the one with systemd's groups depends on the node.
    let groups = fs::read(process.join("cgroup")).unwrap_or_default();
    let groups = groups.split(|byte| *byte == b'\n');
    let mut paths = groups.filter_map(|line| line.splitn(3, |byte| *byte == b':').nth(2));
    if let Some(path) = paths.find(|path| is_session(path)) {
        return Some(format!("it runs in a login session ({})", safe(path)));
    }
    let user = fs::read_to_string(process.join("loginuid")).unwrap_or_default();
    let user = user.trim();
    let is_set = !user.is_empty() && user != NO_USER;
    is_set.then(|| format!("user {} has started it from a login session", safe(user.as_bytes())))
}

fn is_session(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|name| {
        name == b"user.slice"
            || (name.starts_with(b"user-") && name.ends_with(b".slice"))
            || (name.starts_with(b"session-") && name.ends_with(b".scope"))
    })
}

/// Why its program may have been written by another user than root; `None` if only root can write it.
fn why_not_roots_program(process: &Path) -> Option<String> {
    let wanted = StatxFlags::MODE | StatxFlags::UID;
    let Some(file) = silent::read(process, |process| known_of(&process.join("exe"), wanted)) else {
        return Some("its program is not known".into());
    };
    let (owner, mode) = (file.stx_uid, file.stx_mode.into());
    (!is_roots_alone(owner, mode)).then(|| {
        format!("its program is not root's alone (owner {owner}, mode {:o})", mode & 0o7777)
    })
}

/// The attributes of a file that the kernel has in memory; the file system, which may not answer, is not accessed.
fn known_of(path: &Path, wanted: StatxFlags) -> Option<Statx> {
    statx(CWD, path, AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT, wanted).ok()
}

/// Whether root owns a file or a directory and only root may write it. The group bits are also the mask of an access
/// control list.
pub(crate) fn is_roots_alone(owner: u32, mode: u32) -> bool {
    owner == 0 && mode & 0o022 == 0
}

fn root_of(process: &Path) -> Option<Directory> {
    silent::read(process, |process| directory(&process.join("root/.")))
}

fn directory(path: &Path) -> Option<Directory> {
    let it = known_of(path, StatxFlags::empty())?;
    Some((it.stx_dev_major, it.stx_dev_minor, it.stx_ino))
}

#[cfg(test)]
#[path = "trust_tests.rs"]
mod tests;
