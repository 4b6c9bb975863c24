//! What is in the directories of pods' logs, which name pods. They lie below `/var/log`, whose disk may hang like any
//! other: a helper reads them, a thread waits for it, and whoever asks waits for neither for long.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread::Builder,
    time::Duration,
};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::helper::{Budget, Question, Teller, ask_in_parts};
use crate::kernel::role::Role;

/// Names of what is in these directories, one part for each.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ListLogs {
    directories: Vec<OsString>,
}

impl Question for ListLogs {
    const BUDGET: Budget = Budget::Names;
    type Step = OsString;
    type Part = Vec<String>;
    type Answer = ();

    fn answer(self, tell: &mut Teller<OsString, Vec<String>>) -> Result<()> {
        for directory in &self.directories {
            tell.at(directory)?;
            tell.part(&list(Path::new(directory)))?;
        }
        Ok(())
    }
}

/// Those that can be a pod's.
fn list(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// All that was found, and whether each directory has answered.
struct Listed {
    names: Vec<String>,
    is_all: bool,
}

/// Whoever asks for them.
#[derive(Default)]
pub(crate) struct PodLogs {
    under_way: Option<Receiver<Listed>>,
    /// Nobody waits for what did not answer the last time.
    was_late: bool,
}

impl PodLogs {
    /// Asks, unless a question is under way, and waits so long for the answer. One that comes later is the next
    /// question's.
    pub(crate) fn read(&mut self, directories: &[PathBuf], wait: Duration) -> Vec<String> {
        let Some(answer) = self.under_way.take().or_else(|| ask(directories)) else {
            return Vec::new();
        };
        match answer.recv_timeout(if self.was_late { Duration::ZERO } else { wait }) {
            Ok(Listed { names, is_all }) => {
                self.was_late = !is_all;
                names
            }
            Err(RecvTimeoutError::Timeout) => {
                (self.was_late, self.under_way) = (true, Some(answer));
                Vec::new()
            }
            Err(RecvTimeoutError::Disconnected) => Vec::new(),
        }
    }
}

/// `None` when no thread can be had.
fn ask(directories: &[PathBuf]) -> Option<Receiver<Listed>> {
    let directories = directories.iter().map(|path| path.clone().into()).collect();
    let (sender, answer) = channel();
    let ask = move || {
        Role::Look.assume();
        // Nobody listens any more when the run has ended.
        let _ = sender.send(list_all(directories));
    };
    Builder::new().name("callers".into()).spawn(ask).ok()?;
    Some(answer)
}

/// What one directory does not answer is not waited for by the others.
fn list_all(mut directories: Vec<OsString>) -> Listed {
    let mut listed = Listed { names: Vec::new(), is_all: true };
    while !directories.is_empty() {
        let mut answered = 0;
        let question = ListLogs { directories: directories.clone() };
        let asked = ask_in_parts(question, |part: Vec<String>| {
            listed.names.extend(part);
            answered += 1;
        });
        if asked.is_ok() {
            break;
        }
        listed.is_all = false;
        directories.drain(..=answered.min(directories.len() - 1));
    }
    listed
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;

    use super::*;

    const WAIT: Duration = Duration::from_millis(20);

    #[test]
    fn entries_are_listed_and_where_there_is_no_directory_there_are_none() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("shop_cart_x")).unwrap();
        assert_eq!(list(dir.path()), ["shop_cart_x"]);
        assert_eq!(list(&dir.path().join("none")), Vec::<String>::new());
    }

    /// A question that is under way.
    fn asked() -> (PodLogs, Sender<Listed>) {
        let (sender, answer) = channel();
        (PodLogs { under_way: Some(answer), was_late: false }, sender)
    }

    #[test]
    fn what_comes_late_is_the_next_questions_and_is_not_waited_for_again() {
        let (mut logs, answer) = asked();
        assert_eq!(logs.read(&[], WAIT), Vec::<String>::new());
        assert!(logs.was_late && logs.under_way.is_some());
        answer.send(Listed { names: vec!["a".into()], is_all: false }).unwrap();
        assert_eq!(logs.read(&[], Duration::ZERO), ["a"]);
        assert!(logs.was_late && logs.under_way.is_none(), "one of them did not answer");
        let (second, answer) = asked();
        logs.under_way = second.under_way;
        answer.send(Listed { names: Vec::new(), is_all: true }).unwrap();
        logs.read(&[], Duration::ZERO);
        assert!(!logs.was_late);
    }
}
