//! Who keeps a mount, a file or a device busy: a snapshot over all processes and mount namespaces.
//!
//! What is held is matched by the id of the mount and the device of the superblock, never by the
//! text of a path, so that it works after `umount -l` and in whatever namespace.
//!
//! The snapshot is taken in a helper process (`serve`), because part of it may wait for a dead file
//! system. If it hangs, it is left behind and another one goes on behind that step.
//!
//! Not seen: descriptors of threads that do not share their process's, files in flight through a
//! socket or registered with io_uring, and the directories of Unix sockets that are bound there.

mod descriptors;
mod kernel_users;
mod mappings;
mod people;
mod pinned;
mod process;
mod relation;
mod serve;
mod subject;

use std::{io, process::Stdio, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{ChildStdout, Command},
    time::timeout,
};

use super::{look::LookError, mounts::Device};
use crate::model::{
    holder::{Holder, How, Subject},
    path::JsonPath,
    time::Monotonic,
};
pub use serve::serve;
use serve::{Line, Step};

/// How long one step may take. Most take microseconds; all that are answered from memory take a
/// fraction of a second together, on a node with thousands of processes.
const PATIENCE: Duration = Duration::from_secs(2);
/// Steps that may hang before the rest is left alone.
const HANGS: usize = 3;

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

/// What the helper is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Question {
    about: About,
    /// Where helpers before it have hung.
    hung: Vec<Step>,
    /// Every step before this one is taken, and each from here on is to be told.
    from: Option<Step>,
}

/// Who holds on, at one moment.
#[derive(Clone, Debug)]
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

/// Takes a snapshot. Whatever hangs, it ends after a few seconds.
///
/// # Errors
/// Fails when the helper cannot be run, or when it hangs at the very object asked about.
pub async fn snapshot(about: &About) -> Result<Snapshot, LookError> {
    let mut taken = Snapshot {
        at: Monotonic::now(),
        subject: Err("nothing was said about it".into()),
        holders: Vec::new(),
        unseen: Vec::new(),
        looked_at: (0, 0, 0),
    };
    let mut question = Question { about: about.clone(), hung: Vec::new(), from: None };
    while let Some(hung) = run_helper(&question, &mut taken).await? {
        if question.from.is_none() {
            question.from = Some(hung);
            if hung.is_one_of_many() {
                // It, or one of those after it.
                continue;
            }
        }
        match hung {
            Step::Subject => return Err(LookError::Deadline(PATIENCE)),
            step => taken.unseen.push(step.unseen()),
        }
        question.hung.push(hung);
        if question.hung.len() > HANGS {
            taken.unseen.push("everything after that: too much does not answer".into());
            break;
        }
    }
    taken.arrange();
    Ok(taken)
}

/// Runs one helper; the step that it hangs at.
async fn run_helper(question: &Question, taken: &mut Snapshot) -> Result<Option<Step>, LookError> {
    let failed = |error: io::Error| LookError::Helper(error.to_string());
    let mut child = Command::new("/proc/self/exe")
        .arg("look-for-holders")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // Does not wait for it: it may be in an uninterruptible wait.
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut text = serde_json::to_vec(question).map_err(|e| LookError::Helper(e.to_string()))?;
    text.push(b'\n');
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(&text).await.map_err(failed)?;
    }
    let Some(stdout) = child.stdout.take() else {
        return Err(LookError::Helper("it has no output".into()));
    };
    let mut lines = BufReader::new(stdout).lines();
    let mut at = Step::Subject;
    let hung = loop {
        match timeout(PATIENCE, next(&mut lines)).await {
            Err(_) => break Some(at),
            Ok(Err(error)) => return Err(error),
            Ok(Ok(Line::At(step))) => at = step,
            Ok(Ok(Line::Subject(subject))) => taken.subject = Ok(subject),
            Ok(Ok(Line::Holder(holder))) => taken.holders.push(*holder),
            Ok(Ok(Line::Unknown(why))) => {
                taken.subject = Err(why);
                break None;
            }
            Ok(Ok(Line::Done { processes, namespaces, mounts, unread })) => {
                taken.looked_at = (processes, namespaces, mounts);
                if unread > 0 {
                    taken.unseen.push(format!(
                        "{unread} mount namespaces without a process: entering them takes \
                         CAP_SYS_ADMIN, which watching has given up"
                    ));
                }
                break None;
            }
        }
    };
    if hung.is_none() {
        // So that its CPU time counts as ours.
        let _ = timeout(PATIENCE, child.wait()).await;
    }
    Ok(hung)
}

async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> Result<Line, LookError> {
    let line = lines.next_line().await.map_err(|e| LookError::Helper(e.to_string()))?;
    let line = line.ok_or_else(|| LookError::Helper("it ended without an answer".into()))?;
    serde_json::from_str(&line).map_err(|e| LookError::Helper(e.to_string()))
}

impl Step {
    fn unseen(self) -> String {
        let what = match self {
            Self::Pinned => "mount namespaces without a process".into(),
            Self::Subject => "the object itself".into(),
            Self::Links(pid) => {
                format!("working directory, root and program of pid {pid}, but for their text")
            }
            Self::Detached(mount) => format!("mount {mount}, which is in no namespace"),
            Self::Maps(pid) => format!("mapped files of pid {pid}"),
            Self::Kernel => "swap files, loop devices, exports and overlays".into(),
        };
        format!("{what}: no answer within {PATIENCE:?}")
    }
}

impl Snapshot {
    /// Each holder once, those first that explain an EBUSY. A program is mapped, too: the mapping of
    /// nothing else is left out.
    fn arrange(&mut self) {
        let programs: Vec<(Option<u32>, u32)> = self.of(How::Exe).collect();
        self.holders.retain(|holder| {
            let program = programs.contains(&(holder.pid, holder.mount.id));
            !(holder.how == How::Map && holder.count == 1 && program)
        });
        self.holders.sort_by_key(|holder| {
            let weight = match holder.explains_ebusy {
                Some(true) => 0,
                None => 1,
                Some(false) => 2,
            };
            (weight, holder.through, holder.pid, holder.how)
        });
        self.holders.dedup_by_key(|h| (h.how, h.pid, h.mount.id, h.object.clone()));
    }

    fn of(&self, how: How) -> impl Iterator<Item = (Option<u32>, u32)> {
        self.holders.iter().filter(move |h| h.how == how).map(|h| (h.pid, h.mount.id))
    }

    /// Those that make an unmount fail.
    pub fn culprits(&self) -> impl Iterator<Item = &Holder> {
        self.holders.iter().filter(|holder| holder.explains_ebusy == Some(true))
    }
}
