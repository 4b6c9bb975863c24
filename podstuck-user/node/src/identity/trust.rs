//! How far a process is believed in what it says of itself: by its name, that it is a kubelet or a runtime, and by its
//! command line, where its directories, its configuration, its log and its credentials are.
//!
//! Anybody may have any name. Who has root's ids, and had them when the program was executed, is believed at all: root
//! has started it. Whether root means it as a part of the node is another question: `sudo` in somebody's session starts
//! what he likes. So there are two grades, and the lower one yields to the higher one.

use std::{collections::BTreeMap, fs, path::Path};

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};
use serde::{Deserialize, Serialize};

use super::{
    cgroup::{group_of, pod_of_cgroup},
    living::is_root,
};
use podstuck_confine::{credentials::may_be_root, silent};
use podstuck_model::path::safe;

/// How far. The higher grade is the greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Belief {
    /// An administrator has started it: a lab, a kubelet in a container beside the node's own. Its root and its logs are
    /// looked at. It yields to a service wherever both speak of the same, and its credentials are not used.
    Administrator,
    /// It is a part of the node.
    Service,
}

impl Belief {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Service => "a service of the node",
            Self::Administrator => "an administrator's",
        }
    }
}

/// How far a process is believed, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// How far.
    pub belief: Belief,
    /// And why no further.
    pub why: String,
    /// Its root directory by device and inode number, where that is not the node's.
    elsewhere: Option<Directory>,
}

type Directory = (u32, u32, u64);

/// No user is logged in (`AUDIT_UID_UNSET` in include/linux/audit.h).
const NOBODY: &str = "4294967295";

impl Standing {
    /// That of a process, given its directory in the node's `/proc`.
    ///
    /// # Errors
    /// Says why nothing is believed of it.
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
        // The first process may not be shown, even to root; what this tool has as its own may be a container's.
        let node = root_of(&proc.join("1")).or_else(|| directory(&proc.parent()?.join(".")));
        Ok(match root_of(process) {
            Some(own) if Some(own) == node => {
                of(Belief::Service, format!("started by root, outside login sessions ({group})"))
            }
            Some(own) => Self {
                elsewhere: Some(own),
                ..of(Belief::Administrator, "its root directory is another than the node's".into())
            },
            None => of(Belief::Administrator, "its root directory is not known".into()),
        })
    }
}

/// A kubelet in another root directory is the node's where there is no other: so several distributions run theirs. Those
/// of one root directory are of one node, as a supervisor and the kubelet that it starts are.
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
            it.why = "the only one, in a root directory of its own".into();
        }
    }
}

fn why_not_root(process: &Path) -> &'static str {
    if may_be_root(process) {
        // Those of its program, or its user namespace.
        "another user has started it (set-user-ID), or it is in another user namespace"
    } else {
        "not all of its user and group ids are 0, or it lacks CAP_SYS_ADMIN"
    }
}

/// The login session that a process was started in. systemd keeps what a user has started below `user.slice`; the kernel
/// keeps who has logged in, where there is auditing, also where there is no systemd.
fn session_of(process: &Path) -> Option<String> {
    // All hierarchies: which of them has systemd's groups depends on the node.
    let groups = fs::read(process.join("cgroup")).unwrap_or_default();
    let groups = groups.split(|byte| *byte == b'\n');
    let mut paths = groups.filter_map(|line| line.splitn(3, |byte| *byte == b':').nth(2));
    if let Some(path) = paths.find(|path| is_session(path)) {
        return Some(format!("it runs in a login session ({})", safe(path)));
    }
    let user = fs::read_to_string(process.join("loginuid")).unwrap_or_default();
    let user = user.trim();
    let is_set = !user.is_empty() && user != NOBODY;
    is_set.then(|| format!("user {} has started it from a login session", safe(user.as_bytes())))
}

fn is_session(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|name| {
        name == b"user.slice"
            || (name.starts_with(b"user-") && name.ends_with(b".slice"))
            || (name.starts_with(b"session-") && name.ends_with(b".scope"))
    })
}

/// Whether somebody else than root could have written the program that it runs.
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

/// What the kernel has in memory of a file; its file system, which may not answer, is not asked.
fn known_of(path: &Path, wanted: StatxFlags) -> Option<Statx> {
    statx(CWD, path, AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT, wanted).ok()
}

/// Whether a file, or a directory, is root's and nobody else may write it. The bits of the group are also those of all
/// whom an access control list names.
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
