//! Who keeps a mount, a file or a device from being let go.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    identity::{Component, Pod},
    mounts::Device,
    object::FileId,
    path::JsonPath,
    time::Monotonic,
};

/// How something is held.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// An open file or directory.
    Fd,
    /// The working directory of a process.
    Cwd,
    /// The root directory of a process.
    Root,
    /// The program that a process runs.
    Exe,
    /// A file that is mapped into a process's memory.
    Map,
    /// An active swap file.
    Swap,
    /// The file behind a loop device.
    Loop,
    /// An export of the kernel's NFS server.
    NfsExport,
    /// A layer of an overlay.
    OverlayLayer,
    /// A mount that is mounted on it.
    NestedMount,
    /// Another mount of the same file system.
    Mount,
    /// A fanotify group that must permit each access (fanotify(7), permission events).
    Fanotify,
}

impl How {
    /// In a sentence, after the name of a process or of the kernel's part.
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::Fd => "has it open",
            Self::Cwd => "has its working directory there",
            Self::Root => "has its root directory there",
            Self::Exe => "runs a program from there",
            Self::Map => "has a file of it mapped",
            Self::Swap => "swaps to a file on it",
            Self::Loop => "reads a loop device from a file on it",
            Self::NfsExport => "exports it by NFS",
            Self::OverlayLayer => "uses it as the layer of an overlay",
            Self::NestedMount => "is mounted on it",
            Self::Mount => "shows the same file system",
            Self::Fanotify => "must permit each access to it",
        }
    }
}

/// Which mount is held, seen from the one that was asked about.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Through {
    /// That mount itself.
    Itself,
    /// A copy of it that receives its unmount: `umount2` fails as long as such a copy is used
    /// (`propagate_mount_busy` in fs/pnode.c).
    PropagatedCopy,
    /// Another mount of the same file system: keeps its superblock, and with it a device, alive, and
    /// does not make the unmount fail.
    OtherMount,
    /// A mount that is in no namespace any more, as after `umount -l`.
    Detached,
}

/// The mount that is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldMount {
    /// `mnt_id`
    pub id: u32,
    /// Inode number of its mount namespace; `None` for a detached one.
    pub namespace: Option<u32>,
    /// Where it is, as the processes there see it; empty for a detached one.
    #[serde(flatten)]
    pub point: JsonPath,
}

/// Somebody who holds on to what was asked about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Holder {
    /// How it holds.
    pub how: How,
    /// What it holds, as the kernel writes it for us.
    pub object: JsonPath,
    /// Which file or directory that is, where it was looked up by its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileId>,
    /// For a mount on it, that mount's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nested: Option<u32>,
    /// How many such objects this process holds there; `object` is one of them.
    pub count: u32,
    /// Which mount, seen from the one asked about.
    pub through: Through,
    /// The mount.
    pub mount: HeldMount,
    /// Whether this makes `umount2` of the mount asked about fail with EBUSY; `None` where no
    /// mount was asked about, or where that cannot be told.
    pub explains_ebusy: Option<bool>,
    /// The mount was told by its id, and not by the text of a path.
    pub exact: bool,
    /// The process; for a mount, one that sees it; `None` for the kernel.
    pub pid: Option<u32>,
    /// When that process was started, in ticks since boot: with its id, this names it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started: Option<u64>,
    /// Its name.
    pub comm: Option<String>,
    /// The part that it plays on the node.
    pub component: Option<Component>,
    /// Its control group.
    pub cgroup: Option<String>,
    /// Whether another process of its service, or a login, has started it, or was there before it: a restart of the
    /// service need not end it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_child: bool,
    /// The container that it runs in.
    pub container: Option<String>,
    /// The pod that it runs in.
    pub pod: Option<Pod>,
    /// Where this was read.
    pub source: String,
}

/// What was asked about, as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subject {
    /// The path asked about; where a device was, its number.
    #[serde(flatten)]
    pub path: JsonPath,
    /// `mount`, `file` or `device`, in a few words.
    pub what: String,
    /// Device of the superblock, as in `8:1`.
    pub device: String,
    /// The mount, if it was one that was asked about.
    pub mount_id: Option<u32>,
    /// The namespace that it was found in.
    pub namespace: Option<u32>,
}

impl Holder {
    /// `backup (pid 42)`, or what of the kernel it is. Safe to show.
    pub fn who(&self) -> String {
        match (self.pid, &self.comm) {
            (Some(pid), Some(comm)) => format!("{comm} (pid {pid})"),
            (Some(pid), None) => format!("pid {pid}"),
            (None, _) => "the kernel".into(),
        }
    }
}

/// What a search for holders was about and how far it looked; the last line of its output.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Search {
    /// What was asked about.
    #[serde(flatten)]
    pub subject: Subject,
    /// How many holders were found.
    pub holders: usize,
    /// How many of them make an unmount fail with EBUSY.
    pub explain_ebusy: usize,
    /// Processes looked at.
    pub processes: usize,
    /// Mount namespaces looked at.
    pub namespaces: usize,
    /// Mounts looked at.
    pub mounts: usize,
    /// What could not be looked at.
    pub unseen: Vec<String>,
}

/// What is asked about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum About {
    /// A mount point as a process sees it.
    Mount {
        /// A process that saw it there, if it still lives.
        pid: u32,
        /// Inode number of its mount namespace.
        namespace: u32,
        /// The mount point.
        path: JsonPath,
    },
    /// A mount point in our namespace or any other, else a file or directory of ours.
    Path(JsonPath),
    /// Everything on the superblock of a device.
    Device(Device),
}

impl About {
    /// The process whose view of the node it is about.
    pub(crate) fn pid_mut(&mut self) -> Option<&mut u32> {
        match self {
            Self::Mount { pid, .. } => Some(pid),
            _ => None,
        }
    }
}

/// Who holds on, at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When it was begun.
    pub at: Monotonic,
    /// What was asked about; or why there is no such thing.
    pub subject: Result<Subject, String>,
    /// Who holds it; those first that explain an EBUSY.
    pub holders: Vec<Holder>,
    /// What could not be looked at, in sentences.
    pub unseen: Vec<String>,
    /// Processes, mount namespaces and mounts that were looked at.
    pub looked_at: (usize, usize, usize),
}

impl Snapshot {
    /// Those that make an unmount fail.
    pub fn culprits(&self) -> impl Iterator<Item = &Holder> {
        self.holders.iter().filter(|holder| holder.explains_ebusy == Some(true))
    }
}
