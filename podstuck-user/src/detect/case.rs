//! What detectors and the rest say to each other: a case, the facts for it, the verdict.

use std::{path::PathBuf, time::Duration};

use super::draft::{Draft, Family};
use crate::{
    model::{hung::MountPoint, time::Monotonic},
    state::{
        file_system::FileSystem,
        holders::{About, Snapshot},
        look::{Answer, LookError, Question},
        mounts::Mounts,
        users::User,
    },
};

/// Facts that a case needs before anything is said.
#[derive(Clone, Debug)]
pub enum Needs {
    /// The mounts that a process sees.
    Mounts {
        /// A process in the namespace, if it still lives.
        pid: u32,
        /// The namespace's inode number.
        namespace: u32,
    },
    /// The file system of a mount.
    FileSystem {
        /// A process in the namespace, if it still lives.
        pid: u32,
        /// The namespace's inode number.
        namespace: u32,
        /// `mnt_id`
        mount_id: u32,
    },
    /// The FUSE mounts at or below a path, and whether they answer.
    FuseMounts {
        /// A process that sees them.
        pid: u32,
        /// The path.
        path: PathBuf,
    },
    /// A look at an object.
    Look(Question),
    /// A directory that is not empty: the mounts that a process sees, what is in the directory, and
    /// who uses something below it.
    Directory {
        /// Who tried to remove it.
        pid: u32,
        /// The process's mount namespace.
        namespace: u32,
        /// The directory, as the process sees it.
        directory: PathBuf,
    },
    /// Who holds on to something.
    Holders(About),
}

/// A case that waits for facts.
#[derive(Clone, Debug)]
pub struct Case {
    /// Who opened it.
    pub family: Family,
    /// What it is about: together with the family this names the case.
    pub target_id: u64,
    /// The object, where the family keeps several for a target.
    pub path: PathBuf,
    /// The facts wanted.
    pub needs: Needs,
}

/// Facts, or why there are none.
#[derive(Debug)]
pub enum Facts {
    /// To [`Needs::Mounts`]; `None` when the namespace is gone.
    Mounts(Option<Mounts>),
    /// To [`Needs::FileSystem`]; `None` when the namespace or the mount is gone.
    FileSystem(Option<FileSystem>),
    /// To [`Needs::FuseMounts`]: each that was looked at, with the errno.
    FuseMounts(Vec<(MountPoint, i32)>),
    /// To [`Needs::Look`].
    Looked(Result<Answer, LookError>),
    /// To [`Needs::Directory`].
    Directory {
        /// `None` when the namespace is gone.
        mounts: Option<Mounts>,
        /// What is in it.
        entries: Result<Answer, LookError>,
        /// Who uses it, apart from the one who tried to remove it.
        users: Vec<User>,
    },
    /// To [`Needs::Holders`].
    Holders(Result<Snapshot, LookError>),
}

/// Something to tell about a finding.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It exists, and this is what is known now.
    Found(Box<Draft>),
    /// How often it happened in the end, for a finding that is about to be cleared.
    Counted {
        /// Which detector.
        family: Family,
        /// The target.
        target_id: u64,
        /// How often.
        count: u64,
    },
    /// The object was removed, or everything of the target.
    Cleared {
        /// The target.
        target_id: u64,
        /// The object; `None` when the whole target is gone.
        path: Option<PathBuf>,
        /// When.
        at: Monotonic,
    },
    /// A state that was told does not hold any more.
    Over {
        /// Which detector.
        family: Family,
        /// The target.
        target_id: u64,
        /// When.
        at: Monotonic,
    },
}

/// How long to wait before something is called a fault.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// A call that has not returned.
    pub hung: Duration,
    /// A mount that nobody tries to unmount.
    pub untried: Duration,
}

impl Default for Patience {
    /// Two seconds, and two of kubelet's longest back-offs (`maxDurationBeforeRetry` of
    /// pkg/util/goroutinemap/exponentialbackoff: 2 min 2 s).
    fn default() -> Self {
        Self { hung: Duration::from_secs(2), untried: Duration::from_secs(244) }
    }
}
