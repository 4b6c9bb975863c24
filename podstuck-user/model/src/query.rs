//! What the engine asks about the node, and what it is answered. The answer comes back as an event.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    client::Client,
    file_system::FileSystem,
    holder::{About, Snapshot},
    hung::MountPoint,
    mounts::Mounts,
    object::{Attributes, Entries, FileId, Protected, User},
    raw_path,
    remaining::Remaining,
    tracker_id::TrackerId,
};

/// A question of a tracker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Query {
    /// Who asks.
    pub tracker: TrackerId,
    /// Which of its objects it is about.
    pub target_id: u64,
    /// The path, where the tracker keeps several objects for a target.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    /// What is wanted.
    pub wants: Wants,
}

impl Query {
    /// Whether another one asks the same after a later failure: by another process perhaps, since each attempt may have
    /// one of its own. [`TrackerId::Refused`] follows the last object of a target, and has no use for an answer about
    /// another.
    pub fn is_renewed_by(&self, later: &Self) -> bool {
        let mut wants = self.wants.clone();
        if let (Some(pid), Some(later)) = (wants.pid_mut(), later.wants.clone().pid_mut()) {
            *pid = *later;
        }
        let object = |it: &Self| (it.tracker, it.target_id);
        let is_same = self.path == later.path && wants == later.wants;
        object(self) == object(later) && (is_same || self.tracker == TrackerId::Refused)
    }
}

impl Wants {
    /// The process whose view of the node it is about.
    fn pid_mut(&mut self) -> Option<&mut u32> {
        match self {
            Self::Mounts { pid, .. }
            | Self::MountsOn { pid, .. }
            | Self::FileSystem { pid, .. }
            | Self::FuseMounts { pid, .. }
            | Self::Attributes { pid, .. }
            | Self::Protected { pid, .. }
            | Self::Remaining { pid, .. }
            | Self::Directory { pid, .. }
            | Self::Holders(About::Mount { pid, .. }) => Some(pid),
            // Here it is what is asked about.
            Self::Clients { .. } | Self::Listener { .. } | Self::Holders(_) => None,
        }
    }
}

/// What is wanted. Paths are as the process sees them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wants {
    /// The mounts of a namespace at a path and below it, and one mount by its id.
    Mounts {
        /// A process in the namespace, if it still lives.
        pid: u32,
        /// The namespace's inode number.
        namespace: u32,
        /// The path.
        #[serde(with = "raw_path")]
        path: PathBuf,
        /// `mnt_id` of a mount that is wanted wherever it is; 0 for none.
        mount_id: u32,
    },
    /// The mounts of a namespace on a file or directory, whichever way leads to it ([`Mounts::on_file`]).
    MountsOn {
        /// A process in the namespace, if it still lives.
        pid: u32,
        /// The namespace's inode number.
        namespace: u32,
        /// The path, which may begin with symbolic links.
        #[serde(with = "raw_path")]
        path: PathBuf,
    },
    /// The file system that a path lies on.
    FileSystem {
        /// A process in the namespace, if it still lives.
        pid: u32,
        /// The namespace's inode number.
        namespace: u32,
        /// The path.
        #[serde(with = "raw_path")]
        path: PathBuf,
    },
    /// The FUSE mounts at or below a path, and whether they answer.
    FuseMounts {
        /// A process that sees them.
        pid: u32,
        /// The path.
        #[serde(with = "raw_path")]
        path: PathBuf,
    },
    /// Attributes of an object and of the directory that holds it.
    Attributes {
        /// Whose mount namespace and root directory.
        pid: u32,
        /// Directory that holds the object.
        #[serde(with = "raw_path")]
        directory: PathBuf,
        /// Name of the object.
        #[serde(with = "raw_path")]
        name: OsString,
        /// Device and inode number that the directory must have; inode 0 when unknown.
        expected: (u32, u64),
    },
    /// What in a tree has attributes that forbid its removal.
    Protected {
        /// Whose mount namespace and root directory.
        pid: u32,
        /// The tree.
        #[serde(with = "raw_path")]
        directory: PathBuf,
    },
    /// How much is left in a tree.
    Remaining {
        /// Whose mount namespace and root directory.
        pid: u32,
        /// The tree.
        #[serde(with = "raw_path")]
        directory: PathBuf,
    },
    /// A directory that is not empty: the mounts at it and below it, what is in it, and who uses
    /// something below it.
    Directory {
        /// Who tried to remove it.
        pid: u32,
        /// The process's mount namespace.
        namespace: u32,
        /// The directory.
        #[serde(with = "raw_path")]
        directory: PathBuf,
    },
    /// Who holds on to something.
    Holders(About),
    /// Whether anybody on the node listens at a loopback address.
    Listener {
        /// The address.
        address: String,
        /// The TCP port.
        port: u16,
    },
    /// Who has a connection to a daemon.
    Clients {
        /// The daemon.
        pid: u32,
    },
}

/// What was found out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Wants::Mounts`] and [`Wants::MountsOn`]; `None` when the namespace is gone.
    Mounts(Option<Mounts>),
    /// To [`Wants::FileSystem`]; `None` when the namespace is gone.
    FileSystem(Option<FileSystem>),
    /// To [`Wants::FuseMounts`]: each that was looked at, with the errno.
    FuseMounts(Vec<(MountPoint, i32)>),
    /// To [`Wants::Attributes`].
    Attributes(Result<ObjectAttributes, NoAnswer>),
    /// To [`Wants::Protected`].
    Protected(Result<Protected, NoAnswer>),
    /// To [`Wants::Remaining`].
    Remaining(Result<Remaining, NoAnswer>),
    /// To [`Wants::Directory`].
    Directory {
        /// `None` when the namespace is gone.
        mounts: Option<Mounts>,
        /// What is in it.
        entries: Result<Entries, NoAnswer>,
        /// Who uses it, apart from the one who tried to remove it.
        users: Vec<User>,
    },
    /// To [`Wants::Holders`].
    Holders(Result<Snapshot, NoAnswer>),
    /// To [`Wants::Listener`].
    Listener(Result<Listening, NoAnswer>),
    /// To [`Wants::Clients`].
    Clients(Result<Vec<Client>, NoAnswer>),
}

/// What keeps an object from being removed, by its inode and that of its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectAttributes {
    /// Of the object.
    pub object: Attributes,
    /// Of the directory.
    pub directory: Attributes,
    /// The directory is the very one that the call was about, by device and inode number.
    pub same_directory: bool,
    /// The directory has the sticky bit.
    pub sticky: bool,
    /// The object is an active swap file.
    pub swap: bool,
    /// Whether it is one could not be looked up.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub swap_unknown: bool,
    /// Which object and which directory; `None` where it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub files: Option<(FileId, FileId)>,
}

/// Whether anybody listens at an address, in the network namespaces that processes are in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Somebody does, in one of them.
    pub somebody: bool,
    /// Namespaces that were looked at.
    pub namespaces: u32,
    /// Processes whose namespace could not be told or read: there may be others.
    pub unread: u32,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoAnswer {
    /// The helper did not come back.
    #[error("no answer within {0:?}: the file system may be hung")]
    Deadline(Duration),
    /// No helper was sent, so that none hangs.
    #[error("not looked at, because {0}")]
    NotEntered(String),
    /// The helper could not be run, or spoke nonsense.
    #[error("the helper process failed: {0}")]
    Helper(String),
    /// The file system answered with an error.
    #[error("{0}")]
    Refused(String),
}
