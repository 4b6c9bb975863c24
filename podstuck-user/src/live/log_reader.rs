//! Reads the node's logs while the probes are loaded, and follows them during the run.

use std::{
    io,
    path::PathBuf,
    sync::mpsc::{Receiver as Reading, RecvTimeoutError, channel as reading},
    thread::{self, Builder, JoinHandle},
    time::{Duration, Instant},
};

use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::model::{
    degraded::{Degraded, Feed},
    said::Heard,
};
use podstuck_confine::role::Role;
use podstuck_node::{
    identity::{NameSource, PodNames, wanted::PodTraces},
    state::logs::{Attempt, Follower, Logs},
};

/// Limit of reads that are not taken yet: no more are begun.
const WAITING: usize = 4;

/// Attempts in the logs, the oldest first; since when the logs were read; and the reader that continues.
pub(super) type LogHistory = (Vec<Attempt>, Vec<Heard>, Option<Following>);

/// The reader that continues.
pub(super) enum Following {
    /// The existing lines have been read.
    Read(Box<Follower>),
    /// The first read is still in progress: its lines arrive during the run.
    Reads(Reading<(Logs, Follower)>),
}

/// The first read of the logs, on a thread of its own, until its result is needed.
pub(super) struct LogReader {
    reading: Option<Reading<(Logs, Follower)>>,
    begun: Instant,
    history: LogHistory,
}

impl LogReader {
    /// Starts the thread.
    pub(crate) fn start(host_root: PathBuf) -> Self {
        let (sender, receiver) = reading();
        let started = Builder::new().name("logs".into()).spawn(move || {
            Role::ReadLogs.assume();
            let mut follower = Follower::new(&host_root);
            // No receiver is left when the run cannot begin.
            let _ = sender.send((follower.read_all(), follower));
        });
        if let Err(error) = started {
            tracing::warn!("logs are not read: {error}");
        }
        Self { reading: Some(receiver), begun: Instant::now(), history: LogHistory::default() }
    }

    /// Waits for the logs, once, until `limit` after the start, and takes the names of pods that are still here.
    pub(crate) fn name_pods(
        &mut self,
        places: &PodTraces<'_>,
        names: &mut PodNames,
        limit: Duration,
    ) {
        let Some(reading) = self.reading.take() else { return };
        let (logs, follower) =
            match reading.recv_timeout(limit.saturating_sub(self.begun.elapsed())) {
                Ok(read) => read,
                Err(RecvTimeoutError::Timeout) => {
                    self.reading = Some(reading);
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
        let Logs { pods, attempts, heard, places: read } = logs;
        let read: Vec<String> =
            read.into_iter().map(|place| place.read.unwrap_or_else(|why| why)).collect();
        read.iter().for_each(|place| tracing::info!("{place}"));
        let here = pods.into_iter().filter(|pod| places.may_have_directory(&pod.uid));
        names.looked_in(read);
        names.learn(NameSource::Log, here.map(|pod| (pod.namespace, pod.name, pod.uid)));
        self.history = (attempts, heard, Some(Following::Read(Box::new(follower))));
    }

    /// The lines read so far, and the read in progress.
    pub(crate) fn into_history(self) -> LogHistory {
        let (attempts, heard, following) = self.history;
        (attempts, heard, following.or(self.reading.map(Following::Reads)))
    }
}

/// New lines of the logs, during a run.
pub(super) struct LogNews {
    news: Receiver<Logs>,
    /// Whether the lines from before the run are still missing.
    is_reading: bool,
    /// The thread that follows the logs, if there are any.
    thread: Option<io::Result<JoinHandle<()>>>,
}

impl LogNews {
    /// Starts the thread, which reads at this interval and ends when the receiver is dropped.
    pub(crate) fn start(following: Option<Following>, every: Duration) -> Self {
        let (sender, news) = channel(WAITING);
        let is_reading = matches!(following, Some(Following::Reads(_)));
        let thread = following.map(|following| {
            let follow = move || {
                Role::Look.assume();
                match following {
                    Following::Read(follower) => follow(*follower, &sender, every),
                    Following::Reads(reading) => {
                        if let Ok((logs, follower)) = reading.recv()
                            && sender.blocking_send(logs).is_ok()
                        {
                            follow(follower, &sender, every);
                        }
                    }
                }
            };
            Builder::new().name("logs".into()).spawn(follow)
        });
        if let Some(Err(error)) = &thread {
            tracing::warn!("logs are not followed: {error}");
        }
        Self { news, is_reading, thread }
    }

    /// Whether the thread that follows them could not begin, or has ended before the run.
    pub(super) fn has_ended(&self) -> bool {
        let is_gone = |thread: &io::Result<JoinHandle<()>>| match thread {
            Ok(thread) => thread.is_finished(),
            Err(_) => true,
        };
        self.thread.as_ref().is_some_and(is_gone)
    }

    /// The degradation while the lines from before the run are not read.
    pub(super) fn degraded(&self) -> Option<Degraded> {
        let what =
            "the node's logs are still being read: attempts before the start are not known yet";
        let passing = Degraded { is_passing: true, ..Degraded::new(what, &[Feed::Logs]) };
        self.is_reading.then_some(passing)
    }

    /// Waits for new lines. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Logs {
        match self.news.recv().await {
            Some(logs) => {
                self.is_reading = false;
                logs
            }
            // No thread follows the logs.
            None => std::future::pending().await,
        }
    }
}

fn follow(mut follower: Follower, news: &Sender<Logs>, every: Duration) {
    while !news.is_closed() {
        thread::sleep(every);
        let logs = follower.read();
        let not_read = logs.places.iter().filter_map(|place| place.read.as_ref().err());
        not_read.for_each(|why| tracing::info!("{why}"));
        if !logs.is_empty() && news.blocking_send(logs).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::live::setup::pod_names;
    use podstuck_node::identity::Listed;

    #[tokio::test]
    async fn logs_that_take_long_keep_no_run_from_beginning_and_come_later() {
        let (sender, receiver) = reading();
        let (begun, history) = (Instant::now(), LogHistory::default());
        let mut reader = LogReader { reading: Some(receiver), begun, history };
        let directories = Listed { is_all: true, ..Listed::default() };
        let places = PodTraces { host_root: Path::new("/"), kubelet_roots: &[], directories };
        // Nothing was sent: the call returns because of its limit.
        reader.name_pods(&places, &mut pod_names(Vec::new()), Duration::ZERO);
        let (attempts, _, following) = reader.into_history();
        assert!(attempts.is_empty());
        let mut news = LogNews::start(following, Duration::from_secs(2));
        assert!(news.degraded().is_some());
        let nowhere = tempfile::tempdir().unwrap();
        sender.send((Logs::default(), Follower::new(nowhere.path()))).unwrap();
        assert!(news.next().await.is_empty());
        assert!(news.degraded().is_none() && !news.has_ended());
    }

    #[test]
    fn an_ended_follower_is_detected() {
        let (sender, receiver) = reading();
        let news = LogNews::start(Some(Following::Reads(receiver)), Duration::from_secs(2));
        assert!(!news.has_ended());
        // The first read never arrives.
        drop(sender);
        while !news.has_ended() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
