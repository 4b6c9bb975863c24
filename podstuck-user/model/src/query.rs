//! What the engine asks about the node, and what it is answered. The answer comes back as an event.
//!
//! A question is a type, and a row of `questions!`. Paths are as the process sees them.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    client::Client,
    file_system::FileSystem,
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

/// A question, and the type of its answer.
pub trait Question: Into<Wants> + Send + 'static {
    /// What is found out.
    type Answer: Send + 'static;

    /// The question that was asked and what was found out, where it is this one, and an answer to it.
    fn answered<'a>(query: &'a Query, answer: &'a Answer) -> Option<(&'a Self, &'a Self::Answer)>;
}

/// Registers all questions: `KIND ANSWER(TYPE) of QUESTION(TYPE, the process whose view of the node it is about)`, with
/// several questions where their answers are one.
macro_rules! questions {
    ($d:tt $($kind:ident $answer:ident($found:ty) of $($question:ident($asked:ty, $pid:expr)),+;)*) => {
        /// What is wanted.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Wants {
            $($(
                #[allow(missing_docs, reason = "its type says it")]
                $question($asked),
            )+)*
        }

        /// What was found out.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Answer {
            $(
                #[allow(missing_docs, reason = "its type says it")]
                $answer($found),
            )*
        }

        impl Wants {
            /// What may keep its answer waiting.
            pub const fn kind(&self) -> Kind {
                match self {
                    $($(Self::$question(_))|+ => Kind::$kind,)*
                }
            }

            /// The process whose view of the node it is about.
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

        /// Answers a question, whichever it is: `answer!(wants, question => what is found out)`.
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
    Places FuseMounts(Vec<(MountPoint, i32)>)
        of FuseMounts(ReachFuseMounts, |it| Some(&mut it.pid));
    Places Directory(Contents)
        of Directory(ReadDirectory, |it| Some(&mut it.pid));
    Places Listener(Result<Listening, NoAnswer>)
        of Listener(FindListener, |_| None);
    Places Fanotify(Result<Fanotify, NoAnswer>)
        of Fanotify(FindFanotify, |it| Some(&mut it.pid));
    Places Clients(Result<Vec<Client>, NoAnswer>)
        of Clients(FindClients, |_| None);
    Places Waits(Result<Vec<Waiting>, NoAnswer>)
        of Waits(FollowWaits, |_| None);
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
    /// Whose mount namespace and root directory.
    pub pid: u32,
    /// Directory that holds the object.
    #[serde(with = "raw_path")]
    pub directory: PathBuf,
    /// Name of the object.
    #[serde(with = "raw_path")]
    pub name: OsString,
    /// Device and inode number that the directory must have; inode 0 when unknown.
    pub expected: (u32, u64),
}

/// The mounts of a namespace above, at and below a path, and one mount by its id; `None` when the namespace is gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadMounts {
    /// A process in the namespace, if it still lives.
    pub pid: u32,
    /// The namespace's inode number.
    pub namespace: u32,
    /// The path.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    /// `mnt_id` of a mount that is wanted wherever it is; 0 for none.
    pub mount_id: u32,
}

/// The mounts of a namespace on a file or directory, whichever way leads to it ([`Mounts::on_file`]); `None` when the
/// namespace is gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadMountsOn {
    /// A process in the namespace, if it still lives.
    pub pid: u32,
    /// The namespace's inode number.
    pub namespace: u32,
    /// The path, which may begin with symbolic links.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
}

/// The file system that a path lies on; `None` when the namespace is gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadFileSystem {
    /// A process in the namespace, if it still lives.
    pub pid: u32,
    /// The namespace's inode number.
    pub namespace: u32,
    /// The path.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
}

/// Whether the FUSE mounts at or below a path answer: each that was looked at, with the errno.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReachFuseMounts {
    /// A process that sees them.
    pub pid: u32,
    /// The path.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
}

/// A directory that is not empty: the mounts at it and below it, what is in it, and who uses something below it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadDirectory {
    /// Who tried to remove it.
    pub pid: u32,
    /// The process's mount namespace.
    pub namespace: u32,
    /// The directory.
    #[serde(with = "raw_path")]
    pub directory: PathBuf,
}

/// Whether anybody on the node listens at a loopback address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindListener {
    /// The address.
    pub address: String,
    /// The TCP port.
    pub port: u16,
}

/// Which processes must permit an access before the kernel goes on with it (fanotify(7), permission events).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindFanotify {
    /// Whose mount namespace and root directory.
    pub pid: u32,
    /// What is accessed.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
}

/// Who has a connection to a daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindClients {
    /// The daemon.
    pub pid: u32,
}

/// What the processes that must act for a pod wait for, and those at the other end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FollowWaits {
    /// Processes that look after its containers.
    pub shims: Vec<u32>,
    /// Processes that work for all pods: of their children count those whose command line has one of `names`.
    pub daemons: Vec<u32>,
    /// The pod's UID and the ids of its containers: a shim that is started for one of them is looked at, too.
    pub names: Vec<String>,
}

/// What in a tree has attributes that forbid its removal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindProtected {
    /// Whose mount namespace and root directory.
    pub pid: u32,
    /// The tree.
    #[serde(with = "raw_path")]
    pub directory: PathBuf,
}

/// How much is left in a tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CountRemaining {
    /// Whose mount namespace and root directory.
    pub pid: u32,
    /// The tree.
    #[serde(with = "raw_path")]
    pub directory: PathBuf,
}

/// What is known of a directory that is not empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contents {
    /// `None` when the namespace is gone.
    pub mounts: Option<Mounts>,
    /// What is in it.
    pub entries: Result<Entries, NoAnswer>,
    /// Who uses it, apart from the one who tried to remove it.
    pub users: Vec<User>,
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

/// The fanotify listeners that must permit accesses to a path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fanotify {
    /// Those that mark its mount or its file system, and those that mark a file or directory there: the latter are not
    /// `exact`.
    pub listeners: Vec<Holder>,
    /// Processes whose descriptors could not be read: there may be others.
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
