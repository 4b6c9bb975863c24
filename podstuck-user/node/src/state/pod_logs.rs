//! What is in the directories of pods' logs, which name pods: a thread waits for it, and the caller
//! does not wait long for the thread.

use std::{
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread::Builder,
    time::Duration,
};

use super::listing::list;
use crate::identity::Listed;
use podstuck_confine::role::Role;
use podstuck_model::degraded::Feed;

/// Lists the directories on request.
#[derive(Default)]
pub struct PodLogs {
    under_way: Option<Receiver<Listed>>,
    /// Whether the last read was late: the next one is not waited for.
    was_late: bool,
}

impl PodLogs {
    /// Asks, unless a question is under way, and waits so long for the answer. One that comes later is the next
    /// question's.
    pub fn read(&mut self, directories: &[PathBuf], wait: Duration) -> Vec<String> {
        let Some(answer) = self.under_way.take().or_else(|| ask(directories)) else {
            return Vec::new();
        };
        match answer.recv_timeout(if self.was_late { Duration::ZERO } else { wait }) {
            Ok(Listed { names, is_all, .. }) => {
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
    let directories = directories.to_vec();
    let (sender, answer) = channel();
    let ask = move || {
        Role::Look.assume();
        // The receiver is gone when the run is over.
        let _ = sender.send(list(&directories, Feed::Logs));
    };
    Builder::new().name("callers".into()).spawn(ask).ok()?;
    Some(answer)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;

    use super::*;

    const WAIT: Duration = Duration::from_millis(20);

    fn asked() -> (PodLogs, Sender<Listed>) {
        let (sender, answer) = channel();
        (PodLogs { under_way: Some(answer), was_late: false }, sender)
    }

    #[test]
    fn what_comes_late_is_the_next_questions_and_is_not_waited_for_again() {
        let (mut logs, answer) = asked();
        assert_eq!(logs.read(&[], WAIT), Vec::<String>::new());
        assert!(logs.was_late && logs.under_way.is_some());
        answer.send(Listed { names: vec!["a".into()], ..Listed::default() }).unwrap();
        assert_eq!(logs.read(&[], Duration::ZERO), ["a"]);
        assert!(logs.was_late && logs.under_way.is_none(), "one of them did not answer");
        let (second, answer) = asked();
        logs.under_way = second.under_way;
        answer.send(Listed { is_all: true, ..Listed::default() }).unwrap();
        logs.read(&[], Duration::ZERO);
        assert!(!logs.was_late);
    }
}
