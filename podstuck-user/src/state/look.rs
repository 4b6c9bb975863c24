//! Looks at objects that may lie on a dead file system: in a helper process, with a deadline.
//!
//! `stat` on a hung NFS or FUSE mount never returns, and a thread in it cannot be killed. A process
//! can at least be left behind: the tool goes on, and says what it does not know.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{self, Read, Write},
    os::{fd::AsFd, linux::fs::MetadataExt},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use super::peek;
use anyhow::{Context, Result};
use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags, openat, statx};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::{io::AsyncReadExt, io::AsyncWriteExt, process::Command, time::timeout};

/// How long an answer may take. Local file systems answer in milliseconds.
const DEADLINE: Duration = Duration::from_secs(2);
/// How long the helper may count directory entries.
const COUNTING: Duration = Duration::from_millis(700);

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum LookError {
    /// The helper did not come back.
    #[error("no answer within {0:?}: the file system may be hung")]
    Deadline(Duration),
    /// The helper could not be run, or spoke nonsense.
    #[error("the helper process failed: {0}")]
    Helper(String),
    /// The file system answered with an error.
    #[error("{0}")]
    Refused(String),
}

/// What the helper shall look at. Paths are as the process `pid` sees them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Question {
    /// Attributes of an object and of the directory that holds it.
    Attributes {
        /// Whose mount namespace and root directory.
        pid: u32,
        /// Directory that holds the object.
        directory: OsString,
        /// Name of the object.
        name: OsString,
        /// Device and inode number that the directory must have; inode 0 when unknown.
        expected: (u32, u64),
    },
    /// A look into memory, or at whether there is an answer at all.
    Peek(peek::Question),
    /// How much is left in a tree.
    Remaining {
        /// Whose mount namespace and root directory.
        pid: u32,
        /// The tree.
        directory: OsString,
    },
}

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

/// What is left in a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remaining {
    /// Entries seen in the time allowed.
    pub seen: u64,
    /// Whether that was all of them.
    pub complete: bool,
    /// Link count of the directory: 1 on ext4 once it held more than 64,998 subdirectories.
    pub nlink: u64,
    /// Size of the directory itself in bytes.
    pub size: u64,
    /// Inodes in use on the whole file system, 0 when it does not say.
    pub inodes_used: u64,
    /// Type of the file system is ext2, ext3 or ext4.
    pub is_ext: bool,
}

/// What the helper found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Question::Attributes`].
    Attributes {
        /// Of the object.
        object: Attributes,
        /// Of the directory.
        directory: Attributes,
        /// The directory is the very one that the call was about, by device and inode number.
        same_directory: bool,
        /// The directory has the sticky bit.
        sticky: bool,
    },
    /// To [`Question::Peek`].
    Peek(peek::Answer),
    /// To [`Question::Remaining`].
    Remaining(Remaining),
}

/// Asks the helper and waits, at most for the deadline. The helper is this program again.
pub async fn ask(question: &Question) -> Result<Answer, LookError> {
    let helper = |e: io::Error| LookError::Helper(e.to_string());
    let mut child = Command::new("/proc/self/exe")
        .arg("look")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(helper)?;
    let text = serde_json::to_vec(question).map_err(|e| LookError::Helper(e.to_string()))?;
    let mut answer = Vec::new();
    let exchange = async {
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(&text).await?;
        }
        match child.stdout.take() {
            Some(mut stdout) => stdout.read_to_end(&mut answer).await,
            None => Ok(0),
        }
    };
    match timeout(DEADLINE, exchange).await {
        Ok(result) => result.map_err(helper)?,
        // Dropping the child sends SIGKILL and does not wait: it may be in an uninterruptible wait.
        Err(_) => return Err(LookError::Deadline(DEADLINE)),
    };
    match serde_json::from_slice::<Result<Answer, String>>(&answer) {
        Ok(answer) => answer.map_err(LookError::Refused),
        Err(error) => Err(LookError::Helper(error.to_string())),
    }
}

/// The helper's side: one question from standard input, one answer to standard output.
pub fn serve() -> Result<()> {
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text).context("reading the question")?;
    let question: Question = serde_json::from_slice(&text).context("understanding the question")?;
    let answer = answer(&question).map_err(|e| format!("{e:#}"));
    let mut out = io::stdout();
    out.write_all(&serde_json::to_vec(&answer)?)?;
    Ok(out.flush()?)
}

fn answer(question: &Question) -> Result<Answer> {
    match question {
        Question::Attributes { pid, directory, name, expected } => {
            attributes(&seen_by(*pid, directory), name, *expected)
        }
        Question::Peek(question) => Ok(Answer::Peek(peek::answer(question)?)),
        Question::Remaining { pid, directory } => remaining(&seen_by(*pid, directory)),
    }
}

/// The path of a directory of another process, or our own if that process is gone.
fn seen_by(pid: u32, path: &OsStr) -> PathBuf {
    let path = Path::new(path);
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let relative = path.strip_prefix("/").unwrap_or(path);
    if fs::symlink_metadata(&root).is_ok() { root.join(relative) } else { path.into() }
}

fn attributes(directory: &Path, name: &OsStr, expected: (u32, u64)) -> Result<Answer> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = rustix::fs::open(directory, flags, Mode::empty())
        .with_context(|| format!("opening {}", directory.display()))?;
    let wanted = StatxFlags::BASIC_STATS;
    let own = statx(&open, "", AtFlags::EMPTY_PATH, wanted).context("reading the directory")?;
    let object = statx(&open, name, AtFlags::SYMLINK_NOFOLLOW, wanted)
        .with_context(|| format!("reading {} in {}", name.display(), directory.display()))?;
    let device = kernel_dev(own.stx_dev_major, own.stx_dev_minor);
    Ok(Answer::Attributes {
        object: attribute_bits(&object),
        directory: attribute_bits(&own),
        same_directory: expected == (device, own.stx_ino),
        sticky: own.stx_mode & 0o1000 != 0,
    })
}

/// `super_block.s_dev`: 12 bits of major number above 20 bits of minor (include/linux/kdev_t.h).
fn kernel_dev(major: u32, minor: u32) -> u32 {
    major << 20 | minor
}

fn attribute_bits(stat: &rustix::fs::Statx) -> Attributes {
    let wanted = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    Attributes {
        immutable: stat.stx_attributes.contains(StatxAttributes::IMMUTABLE),
        append_only: stat.stx_attributes.contains(StatxAttributes::APPEND),
        known: stat.stx_attributes_mask.contains(wanted),
    }
}

fn remaining(directory: &Path) -> Result<Answer> {
    const EXT_MAGIC: i64 = 0xef53;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = openat(rustix::fs::CWD, directory, flags, Mode::empty())
        .with_context(|| format!("opening {}", directory.display()))?;
    let metadata = fs::File::from(open.try_clone()?).metadata()?;
    let stat = rustix::fs::fstatfs(open.as_fd())?;
    let (seen, complete) = count_entries(directory, metadata.st_dev(), Instant::now() + COUNTING);
    Ok(Answer::Remaining(Remaining {
        seen,
        complete,
        nlink: metadata.st_nlink(),
        size: metadata.st_size(),
        inodes_used: stat.f_files.saturating_sub(stat.f_ffree),
        is_ext: stat.f_type == EXT_MAGIC,
    }))
}

/// Entries of a tree on one device, until the deadline.
fn count_entries(top: &Path, device: u64, deadline: Instant) -> (u64, bool) {
    let mut seen = 0;
    let mut todo = vec![top.to_path_buf()];
    while let Some(directory) = todo.pop() {
        let same = fs::symlink_metadata(&directory).is_ok_and(|m| m.st_dev() == device);
        // What vanishes meanwhile is being deleted: that is the point.
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        if !same {
            continue;
        }
        for entry in entries.flatten() {
            seen += 1;
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                todo.push(entry.path());
            }
            if seen % 256 == 0 && Instant::now() > deadline {
                return (seen, false);
            }
        }
    }
    (seen, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_file_has_no_attributes() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "").unwrap();
        let meta = fs::metadata(dir.path()).unwrap();
        let (major, minor) = (rustix::fs::major(meta.st_dev()), rustix::fs::minor(meta.st_dev()));
        let expected = (kernel_dev(major, minor), meta.st_ino());
        let question = Question::Attributes {
            pid: std::process::id(),
            directory: dir.path().into(),
            name: "f".into(),
            expected,
        };
        let Answer::Attributes { object, same_directory, .. } = answer(&question).unwrap() else {
            panic!("an answer to another question");
        };
        assert!(!object.immutable && !object.append_only && same_directory);
    }

    #[test]
    fn all_entries_of_a_small_tree_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        for i in 0..10 {
            fs::create_dir(dir.path().join(i.to_string())).unwrap();
            fs::write(dir.path().join(i.to_string()).join("f"), "").unwrap();
        }
        let question =
            Question::Remaining { pid: std::process::id(), directory: dir.path().into() };
        let Answer::Remaining(Remaining { seen, complete, .. }) = answer(&question).unwrap() else {
            panic!("an answer to another question");
        };
        assert_eq!((seen, complete), (20, true));
    }

    #[test]
    fn what_is_gone_is_an_error_with_its_name() {
        let question =
            Question::Remaining { pid: std::process::id(), directory: "/nonexistent".into() };
        assert!(format!("{:#}", answer(&question).unwrap_err()).contains("/nonexistent"));
    }
}
