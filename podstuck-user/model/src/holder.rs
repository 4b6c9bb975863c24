//! The holders of a mount, a file or a device: what keeps it busy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    chain::Who,
    identity::{Component, Pod},
    mounts::Device,
    object::FileId,
    path::{JsonPath, safe, safe_path},
    time::Monotonic,
};

/// The way in which a holder keeps it busy.
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
    /// A mount on top of it.
    NestedMount,
    /// Another mount of the same file system.
    Mount,
    /// A fanotify group with permission events, which must permit each access (fanotify(7)).
    Fanotify,
}

impl How {
    /// The phrase after the name of a process or of a kernel object.
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

/// The mount that is held, relative to the mount in question.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Through {
    /// The mount itself.
    Itself,
    /// A copy that receives its unmount: `umount2` fails while such a copy is in use (`propagate_mount_busy` in
    /// fs/pnode.c).
    PropagatedCopy,
    /// Another mount of the same file system: it keeps the superblock, and with it the device, alive, and does not
    /// make the unmount fail.
    OtherMount,
    /// A mount that belongs to no namespace any more, as after `umount -l`.
    Detached,
}

/// The mount that is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldMount {
    /// `mnt_id`
    pub id: u32,
    /// Inode number of its mount namespace; `None` for a detached one.
    pub namespace: Option<u32>,
    /// The mount point, as processes of that namespace see it; empty for a detached mount.
    #[serde(flatten)]
    pub point: JsonPath,
    /// The file system of a detached mount, which no mount table names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detached: Option<Detached>,
}

/// What is known about a detached mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Detached {
    /// As the kernel reports it for a descriptor on the mount (statmount(2), since Linux 7.0).
    Known(MountedFrom),
    /// The reason why it is unknown.
    Error(String),
}

/// What a mount shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MountedFrom {
    /// The type of the file system, such as `ext4`.
    pub fs_type: String,
    /// The source that was mounted, such as `/dev/sdb1`.
    pub source: String,
    /// The directory of the file system that is the root of the mount.
    pub root: JsonPath,
}

impl Detached {
    /// The file system, such as `/dev/sdb1 of type ext4`, or why it is unknown. Safe to show.
    pub fn describe(&self) -> String {
        match self {
            Self::Known(MountedFrom { fs_type, source, root }) => {
                let [fs_type, source] = [fs_type, source].map(|it| safe(it.as_bytes()));
                if root.0.as_os_str() == "/" {
                    format!("{source} of type {fs_type}")
                } else {
                    format!("directory {} of {source} ({fs_type})", safe_path(&root.0))
                }
            }
            Self::Error(why) => format!("unknown file system: {}", safe(why.as_bytes())),
        }
    }
}

/// A process, kernel object or mount that keeps the subject busy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Holder {
    /// The way in which it does.
    pub how: How,
    /// The object that it uses, as the kernel reports it.
    pub object: JsonPath,
    /// Device and inode of that object, if it was looked up by path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileId>,
    /// The id of a nested mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nested: Option<u32>,
    /// Number of such objects that this process uses there; `object` is one of them.
    pub count: u32,
    /// The mount, relative to the mount in question.
    pub through: Through,
    /// The mount.
    pub mount: HeldMount,
    /// Whether this makes `umount2` of the mount in question fail with EBUSY; `None` if the subject is no mount, or
    /// if it is unknown.
    pub explains_ebusy: Option<bool>,
    /// The mount was identified by its id, not by the text of a path.
    pub exact: bool,
    /// The process; for a mount, a process that sees it; `None` for a kernel object.
    pub pid: Option<u32>,
    /// Its start in ticks since boot: with the pid, it identifies the process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started: Option<u64>,
    /// Its name.
    pub comm: Option<String>,
    /// Its component on the node.
    pub component: Option<Component>,
    /// Its control group.
    pub cgroup: Option<String>,
    /// Whether another process of its service, or a login, started it or is older: a restart of the service need not
    /// end it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_child: bool,
    /// The container that it runs in.
    pub container: Option<String>,
    /// The pod that it runs in.
    pub pod: Option<Pod>,
    /// The source.
    pub source: String,
}

/// The subject of a search, as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subject {
    /// The path in question; the number of a device.
    #[serde(flatten)]
    pub path: JsonPath,
    /// `mount`, `file` or `device`, in a few words.
    pub what: String,
    /// Device of the superblock, as in `8:1`.
    pub device: String,
    /// The mount id, if the subject is a mount.
    pub mount_id: Option<u32>,
    /// The namespace in which it was found.
    pub namespace: Option<u32>,
}

impl Holder {
    /// The process, such as `backup (pid 42)`, or the kernel object. Safe to show.
    pub fn who(&self) -> Who {
        match self.pid {
            Some(pid) => Who::process(self.comm.as_deref().unwrap_or_default(), pid),
            None => Who::object("the kernel"),
        }
    }
}

/// The subject and scope of a search for holders; the last line of its output.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Search {
    /// The subject.
    #[serde(flatten)]
    pub subject: Subject,
    /// Number of holders found.
    pub holders: usize,
    /// Number of holders that make an unmount fail with EBUSY.
    pub explain_ebusy: usize,
    /// Processes inspected.
    pub processes: usize,
    /// Mount namespaces inspected.
    pub namespaces: usize,
    /// Mounts inspected.
    pub mounts: usize,
    /// What could not be inspected.
    pub unseen: Vec<String>,
}

/// The subject of a search for holders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum About {
    /// A mount point as a process sees it.
    Mount {
        /// A process that saw the mount there; it may have ended.
        pid: u32,
        /// Inode number of its mount namespace.
        namespace: u32,
        /// The mount point.
        path: JsonPath,
    },
    /// A mount point in podstuck's namespace or any other, else a file or directory in podstuck's namespace.
    Path(JsonPath),
    /// Everything on the superblock of a device.
    Device(Device),
}

impl About {
    /// The process whose mount namespace is meant.
    pub(crate) fn pid_mut(&mut self) -> Option<&mut u32> {
        match self {
            Self::Mount { pid, .. } => Some(pid),
            _ => None,
        }
    }
}

/// The holders at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The start of the search.
    pub at: Monotonic,
    /// The subject; or why it does not exist.
    pub subject: Result<Subject, String>,
    /// The holders; those that explain an EBUSY first.
    pub holders: Vec<Holder>,
    /// What could not be inspected, in sentences.
    pub unseen: Vec<String>,
    /// Number of processes, mount namespaces and mounts inspected.
    pub looked_at: (usize, usize, usize),
}

impl Snapshot {
    /// The holders that make an unmount fail.
    pub fn culprits(&self) -> impl Iterator<Item = &Holder> {
        self.holders.iter().filter(|holder| holder.explains_ebusy == Some(true))
    }
}
