//! Looks at objects that may lie on a dead file system: in a helper process, with a deadline.
//!
//! `stat` on a hung NFS or FUSE mount never returns, and a thread in it cannot be killed. A process
//! can at least be left behind: the tool goes on, and says what it does not know.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::{io::AsyncReadExt, io::AsyncWriteExt, process::Command, time::timeout};

use super::{attributes, entries, left_behind::LeftBehind, peek, pod_dirs, remaining, rooms};

pub use super::{
    attributes::Attributes,
    entries::{Entries, Entry},
    pod_dirs::RootOnDisk,
    remaining::Remaining,
    rooms::{Place, Room},
};

/// How long an answer may take. Local file systems answer in milliseconds.
pub(super) const DEADLINE: Duration = Duration::from_secs(2);

/// Helpers that hang, of all who ask.
static LEFT_BEHIND: LeftBehind = LeftBehind::new();

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
    /// What is in a directory.
    Entries {
        /// Whose mount namespace and root directory.
        pid: u32,
        /// The directory.
        directory: OsString,
    },
    /// The pods' directories below kubelet's roots.
    Pods {
        /// Each root as this process sees it; without one, as we do.
        roots: Vec<(Option<u32>, OsString)>,
    },
    /// How full the file systems are that paths lie on.
    Rooms {
        /// The paths.
        places: Vec<Place>,
    },
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
        /// The object is an active swap file.
        swap: bool,
    },
    /// To [`Question::Peek`].
    Peek(peek::Answer),
    /// To [`Question::Remaining`].
    Remaining(Remaining),
    /// To [`Question::Entries`].
    Entries(Entries),
    /// To [`Question::Pods`]: one for each root, `None` where there are no pods.
    Pods(Vec<Option<RootOnDisk>>),
    /// To [`Question::Rooms`]: one for each path, `None` where there is nothing.
    Rooms(Vec<Option<Room>>),
}

/// Asks the helper and waits, at most for the deadline. The helper is this program again. While too
/// many earlier ones hang, the answer is that.
pub async fn ask(question: &Question) -> Result<Answer, LookError> {
    if LEFT_BEHIND.is_full() {
        return Err(LookError::Deadline(DEADLINE));
    }
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
        // Not waited for: it may be in an uninterruptible wait.
        Err(_) => {
            LEFT_BEHIND.leave(child);
            return Err(LookError::Deadline(DEADLINE));
        }
    };
    understand(&answer)
}

/// What the helper said.
pub(super) fn understand(text: &[u8]) -> Result<Answer, LookError> {
    match serde_json::from_slice::<Result<Answer, String>>(text) {
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
        Question::Attributes { pid, .. }
        | Question::Remaining { pid, .. }
        | Question::Entries { pid, .. }
            if has_root(*pid) =>
        {
            let answer = look(question);
            // It ended while it was looked through: a directory may just have seemed empty.
            if has_root(*pid) { answer } else { look(question) }
        }
        _ => look(question),
    }
}

fn look(question: &Question) -> Result<Answer> {
    match question {
        Question::Attributes { pid, directory, name, expected } => {
            attributes::read(*pid, &seen_by(*pid, directory), name, *expected)
        }
        Question::Remaining { pid, directory } => {
            remaining::remaining(&seen_by(*pid, directory)).map(Answer::Remaining)
        }
        Question::Entries { pid, directory } => {
            entries::entries(&seen_by(*pid, directory)).map(Answer::Entries)
        }
        Question::Pods { roots } => {
            let read = |(pid, root): &(Option<u32>, OsString)| {
                let root = pid.map_or_else(|| root.into(), |pid| seen_by(pid, root));
                pod_dirs::read_root(&root)
            };
            Ok(Answer::Pods(roots.iter().map(read).collect()))
        }
        Question::Rooms { places } => {
            let look = |(pid, path): &Place| {
                rooms::room(&pid.map_or_else(|| path.into(), |pid| seen_by(pid, path)))
            };
            Ok(Answer::Rooms(places.iter().map(look).collect()))
        }
        Question::Peek(question) => Ok(Answer::Peek(peek::answer(question)?)),
    }
}

/// The path of a directory of another process, or our own if that process is gone.
pub(super) fn seen_by(pid: u32, path: &OsStr) -> PathBuf {
    let path = Path::new(path);
    let relative = path.strip_prefix("/").unwrap_or(path);
    if has_root(pid) { root_of(pid).join(relative) } else { path.into() }
}

/// Followed, since that of a process which has ended and was not waited for is a link to nothing. One
/// that must not be followed is there.
fn has_root(pid: u32) -> bool {
    !fs::metadata(root_of(pid)).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn root_of(pid: u32) -> PathBuf {
    format!("/proc/{pid}/root").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_process_that_was_not_waited_for_is_no_way_to_look() {
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let wait = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let id = rustix::process::Pid::from_child(&ended);
        rustix::process::waitid(rustix::process::WaitId::Pid(id), wait).unwrap();
        assert_eq!(seen_by(ended.id(), OsStr::new("/tmp")), Path::new("/tmp"));
        ended.wait().unwrap();
        assert_eq!(seen_by(ended.id(), OsStr::new("/tmp")), Path::new("/tmp"));
    }
}
