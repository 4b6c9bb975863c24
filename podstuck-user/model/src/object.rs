//! The results of checks of objects and directories.

use std::{ffi::OsString, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{path::JsonPath, raw_path};

/// Inode flags that make a removal fail with EPERM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// `chattr +i`
    pub immutable: bool,
    /// `chattr +a`
    pub append_only: bool,
    /// Whether this file system reports both flags.
    pub known: bool,
}

/// Identifies a file or directory while it exists, as `stat` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileId {
    /// `st_dev`
    pub device: u64,
    /// `st_ino`
    pub inode: u64,
}

/// A directory entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    #[serde(with = "raw_path")]
    pub name: OsString,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Time since its inode last changed, a lower bound of its age.
    pub age: Duration,
}

/// The entries of a directory, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entries {
    /// A part of the entries.
    pub listed: Vec<Entry>,
    /// Number of entries; at most 100,000 are counted.
    pub count: u64,
    /// The directory; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub directory: Option<FileId>,
}

/// The objects of a tree whose inode flags forbid removal by any process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protected {
    /// The first few, with their flags.
    pub objects: Vec<(JsonPath, Attributes)>,
    /// Their device and inode; empty if unknown.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub files: Vec<FileId>,
    /// Number of objects inspected.
    pub looked: u64,
    /// Whether the whole tree was inspected.
    pub complete: bool,
}

/// A process that uses an object below a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Process id.
    pub pid: u32,
    /// Its start in ticks since boot: with the pid, it identifies the process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started: Option<u64>,
    /// Its name. Safe to show.
    pub comm: String,
    /// The kind of use, such as `its working directory`.
    pub how: String,
    /// Whether it has an object there open for writing.
    pub writes: bool,
}
