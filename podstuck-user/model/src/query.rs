//! The engine's questions about the node, and their answers, which come back as events.
//!
//! A question is a type and a row of `questions!`. Paths are as the process in question sees them.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    client::Client,
    cluster::{KubeletsList, NotRead},
    file_system::{FileSystem, Subvolume},
    holder::{About, Holder, Snapshot},
    hung::MountPoint,
    mounts::Mounts,
    object::{Attributes, Entries, FileId, Protected, User},
    raw_path,
    remaining::Remaining,
    tracker_id::TrackerId,
    waiting::Waiting,
};

mod kind;

pub use kind::Kind;

/// A question of a tracker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Query {
    /// The tracker that asks.
    pub tracker: TrackerId,
    /// The target of its object.
    pub target_id: u64,
    /// The path, if the tracker follows several objects of a target.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    /// The question.
    pub wants: Wants,
}

impl Query {
    /// Whether a later query, asked after another failure, replaces this one: the question is the same, perhaps for
    /// another process, since each attempt may have its own. [`TrackerId::Refused`] follows only the last object of
    /// a target and has no use for an answer about an earlier one.
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

/// A question with its answer type.
pub trait Question: Into<Wants> + Send + 'static {
    /// The answer.
    type Answer: Send + 'static;

    /// The question and the answer, if both are of this type.
    fn answered<'a>(query: &'a Query, answer: &'a Answer) -> Option<(&'a Self, &'a Self::Answer)>;
}

/// Registers all questions: `KIND ANSWER(TYPE) of QUESTION(TYPE, the process whose view counts)`, with several
/// questions where they share an answer type.
macro_rules! questions {
    ($d:tt $($kind:ident $answer:ident($found:ty) of $($question:ident($asked:ty, $pid:expr)),+;)*) => {
        /// A question.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Wants {
            $($(
                #[allow(missing_docs, reason = "its type says it")]
                $question($asked),
            )+)*
        }

        /// An answer.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Answer {
            $(
                #[allow(missing_docs, reason = "its type says it")]
                $answer($found),
            )*
        }

        impl Wants {
            /// The kind, by what may delay the answer.
            pub const fn kind(&self) -> Kind {
                match self {
                    $($(Self::$question(_))|+ => Kind::$kind,)*
                }
            }

            /// The process whose view of the node counts.
            fn pid_mut(&mut self) -> Option<&mut u32> {
                match self {
                    $($(Self::$question(asked) => {
                        let pid: fn(&mut $asked) -> Option<&mut u32> = $pid;
                        pid(asked)
                    })+)*
                }
            }
        }

        $($(
            impl From<$asked> for Wants {
                fn from(asked: $asked) -> Self {
                    Self::$question(asked)
                }
            }

            impl Question for $asked {
                type Answer = $found;

                fn answered<'a>(query: &'a Query, answer: &'a Answer) -> Option<(&'a Self, &'a $found)> {
                    match (&query.wants, answer) {
                        (Wants::$question(asked), Answer::$answer(found)) => Some((asked, found)),
                        _ => None,
                    }
                }
            }
        )+)*

        /// Answers any question: `answer!(wants, question => answer)`.
        #[macro_export]
        macro_rules! answer {
            ($d wants:expr, $d asked:ident => $d found:expr) => {
                match $d wants {
                    $($($crate::query::Wants::$question($d asked) => {
                        $crate::query::Answer::$answer($d found)
                    })+)*
                }
            };
        }
    };
}

questions! { $
    Inode Attributes(Result<ObjectAttributes, NoAnswer>)
        of Attributes(ReadAttributes, |it| Some(&mut it.pid));
    Tables Mounts(Option<Mounts>)
        of Mounts(ReadMounts, |it| Some(&mut it.pid)), MountsOn(ReadMountsOn, |it| Some(&mut it.pid));
    Tables FileSystem(Option<FileSystem>)
        of FileSystem(ReadFileSystem, |it| Some(&mut it.pid));
    Inode Subvolume(Result<Option<Subvolume>, NoAnswer>)
        of Subvolume(ReadSubvolume, |it| Some(&mut it.pid));
    Places FuseMounts(Vec<(MountPoint, i32)>)
        of FuseMounts(ReachFuseMounts, |it| Some(&mut it.pid));
    Places Directory(Contents)
        of Directory(ReadDirectory, |it| Some(&mut it.pid));
    Places Listener(Result<Listening, NoAnswer>)
        of Listener(FindListener, |_| None);
    Places Fanotify(Result<Fanotify, NoAnswer>)
        of Fanotify(FindFanotify, |it| Some(&mut it.pid));
    Places SocketPath(Result<SocketPath, NoAnswer>)
        of SocketPath(FindSocketPath, |it| Some(&mut it.client));
    Places Clients(Result<Vec<Client>, NoAnswer>)
        of Clients(FindClients, |_| None);
    Places Waits(Result<Vec<Waiting>, NoAnswer>)
        of Waits(FollowWaits, |_| None);
    Kubelet KubeletsPods(Result<KubeletsList, NotRead>)
        of KubeletsPods(ReadKubeletsPods, |_| None);
    Trees Protected(Result<Protected, NoAnswer>)
        of Protected(FindProtected, |it| Some(&mut it.pid));
    Trees Remaining(Result<Remaining, NoAnswer>)
        of Remaining(CountRemaining, |it| Some(&mut it.pid));
    Holders Holders(Result<Snapshot, NoAnswer>)
        of Holders(About, |it| it.pid_mut());
}

/// Attributes of an object and of the directory that holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadAttributes {
    /// The process whose mount namespace and root directory count.
    pub pid: u32,
    /// Directory that holds the object.
    #[serde(with = "raw_path")]
    pub directory: PathBuf,
    /// Name of the object.
    #[serde(with = "raw_path")]
    pub name: OsString,
    /// Device and inode number that the directory must have; inode 0 if unknown.
    pub expected: (u32, u64),
}

/// The mounts of a namespace above, at and below a path, and one mount by its id; `None` if the namespace is gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadMounts {
    /// A process in the namespace; it may have ended.
    pub pid: u32,
    /// The namespace's inode number.
    pub namespace: u32,
    /// The path.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    /// `mnt_id` of a mount that is included wherever it is; 0 for none.
    pub mount_id: u32,
}

/// The mounts of a namespace on a file or directory, whatever path leads to it ([`Mounts::on_file`]); `None` if the
/// namespace is gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadMountsOn {
    /// A process in the namespace; it may have ended.
    pub pid: u32,
    /// The namespace's inode number.
    pub namespace: u32,
    /// The path, which may begin with symbolic links.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
}

/// The file system that contains a path; `None` if the namespace is gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadFileSystem {
    /// A process in the namespace; it may have ended.
    pub pid: u32,
    /// The namespace's inode number.
    pub namespace: u32,
    /// The path.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
}

/// The btrfs subvolume that contains a directory; `None` on another file system, or if no path from the directory
/// upwards leads to the subvolume's root.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadSubvolume {
    /// The process whose mount namespace and root directory count.
    pub pid: u32,
    /// The directory.
    #[serde(with = "raw_path")]
    pub directory: PathBuf,
}

/// Whether the FUSE mounts at or below a path respond: each checked mount with its errno.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReachFuseMounts {
    /// A process that sees them.
    pub pid: u32,
    /// The path.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
}

/// A directory that is not empty: the mounts at and below it, its entries, and the processes that use objects below
/// it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadDirectory {
    /// The process that tried to remove it.
    pub pid: u32,
    /// The process's mount namespace.
    pub namespace: u32,
    /// The directory.
    #[serde(with = "raw_path")]
    pub directory: PathBuf,
}

/// Whether a process on the node listens on a loopback address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindListener {
    /// The address.
    pub address: String,
    /// The TCP port.
    pub port: u16,
}

/// What the path names now to which a process bound a local socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindSocketPath {
    /// The process in whose root directory the path counts.
    pub client: u32,
    /// The process that listens on the socket.
    pub owner: u32,
    /// The path.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
}

/// A connection by path reaches the socket only through the file that `bind` made (unix(7); `unix_find_bsd` in
/// net/unix/af_unix.c compares inodes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketPath {
    /// That file.
    Own,
    /// Another file.
    Other,
    /// Nothing.
    Missing,
}

/// The processes that must permit an access before the kernel continues it (fanotify(7), permission events).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindFanotify {
    /// The process whose mount namespace and root directory count.
    pub pid: u32,
    /// The path that is accessed.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
}

/// The clients of a daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindClients {
    /// The daemon.
    pub pid: u32,
}

/// The waits of the processes that must act for a pod, and of the processes at the other end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FollowWaits {
    /// The shims of its containers.
    pub shims: Vec<u32>,
    /// Daemons that serve all pods: only their children whose command line contains one of `names` count.
    pub daemons: Vec<u32>,
    /// Processes of its containers, without the sandbox's own.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub tasks: Vec<u32>,
    /// The pod's UID and its containers' ids. A shim started for one of them is inspected, too.
    pub names: Vec<String>,
}

/// What kubelet's own list has of pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadKubeletsPods {
    /// The kubelet.
    pub kubelet: u32,
    /// UIDs of the pods.
    pub pods: Vec<String>,
}

/// The objects of a tree with attributes that forbid removal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindProtected {
    /// The process whose mount namespace and root directory count.
    pub pid: u32,
    /// The tree.
    #[serde(with = "raw_path")]
    pub directory: PathBuf,
}

/// The number of entries left in a tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CountRemaining {
    /// The process whose mount namespace and root directory count.
    pub pid: u32,
    /// The tree.
    #[serde(with = "raw_path")]
    pub directory: PathBuf,
}

/// A directory that is not empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contents {
    /// `None` if the namespace is gone.
    pub mounts: Option<Mounts>,
    /// Its entries.
    pub entries: Result<Entries, NoAnswer>,
    /// The processes that use it, except the one that tried to remove it.
    pub users: Vec<User>,
}

/// The attributes that prevent the removal of an object: its own and its directory's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectAttributes {
    /// Of the object.
    pub object: Attributes,
    /// Of the directory.
    pub directory: Attributes,
    /// Whether the directory is the one of the call, by device and inode number.
    pub same_directory: bool,
    /// Whether the directory has the sticky bit.
    pub sticky: bool,
    /// Whether the object is an active swap file.
    pub swap: bool,
    /// Whether the list of swap files could not be read.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub swap_unknown: bool,
    /// The object and the directory; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub files: Option<(FileId, FileId)>,
}

/// Whether a process listens on an address, in the network namespaces of all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// A process listens in one of them.
    pub somebody: bool,
    /// Number of namespaces inspected.
    pub namespaces: u32,
    /// Number of processes whose namespace could not be identified or read, so that the answer may be incomplete.
    pub unread: u32,
}

/// The fanotify groups that must permit accesses to a path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fanotify {
    /// Groups that mark its mount or file system, and groups that mark a file or directory there; the latter are not
    /// `exact`.
    pub listeners: Vec<Holder>,
    /// Number of processes whose descriptors could not be read, so that the answer may be incomplete.
    pub unread: u32,
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoAnswer {
    /// The helper process did not finish in time.
    #[error("no answer within {0:?}: the file system may be hung")]
    Deadline(Duration),
    /// No helper process was started, because it could hang.
    #[error("not examined, because {0}")]
    NotEntered(String),
    /// The helper process could not run, or its output was invalid.
    #[error("the helper process failed: {0}")]
    Helper(String),
    /// The file system returned an error.
    #[error("{0}")]
    Refused(String),
}
