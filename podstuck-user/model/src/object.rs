//! What a look at an object or a directory says.

use std::{ffi::OsString, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{path::JsonPath, raw_path};

/// Flags of an inode that make its removal fail with EPERM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// `chattr +i`
    pub immutable: bool,
    /// `chattr +a`
    pub append_only: bool,
    /// Whether this file system reports both.
    pub known: bool,
}

/// Names a file or directory for as long as it exists, as `stat` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileId {
    /// `st_dev`
    pub device: u64,
    /// `st_ino`
    pub inode: u64,
}

/// Something in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    #[serde(with = "raw_path")]
    pub name: OsString,
    /// A directory.
    pub is_directory: bool,
    /// Time since its inode last changed, which is at least that since it was made.
    pub age: Duration,
}

/// What is in a directory, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entries {
    /// Some of them.
    pub listed: Vec<Entry>,
    /// How many there are; at most 100,000 are looked at.
    pub count: u64,
    /// The directory; `None` where it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub directory: Option<FileId>,
}

/// What in a tree cannot be removed by anybody, by the attributes of its inodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protected {
    /// The first few, and the attributes of each.
    pub objects: Vec<(JsonPath, Attributes)>,
    /// Which objects those are; none where they are not known.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub files: Vec<FileId>,
    /// How many objects were looked at.
    pub looked: u64,
    /// Whether those are all.
    pub complete: bool,
}

/// A process that uses something below a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Process id.
    pub pid: u32,
    /// When it was started, in ticks since boot: with its id, this names it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started: Option<u64>,
    /// Its name. Safe to show.
    pub comm: String,
    /// What it has there, as in `its working directory`.
    pub how: String,
    /// It has something open there to write to.
    pub writes: bool,
}
