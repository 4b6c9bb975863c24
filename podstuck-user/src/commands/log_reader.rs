//! Reads the node's logs while the probes are loaded, and follows them during the run.

use std::{
    path::PathBuf,
    thread::{self, Builder, JoinHandle},
    time::Duration,
};

use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::{
    identity::{NameSource, PodNames, wanted::PodTraces},
    kernel::role::Role,
    model::said::Heard,
    state::logs::{Attempt, Follower, Logs},
};

/// How often what is new is read.
const EVERY: Duration = Duration::from_secs(2);
/// Reads that nobody has taken yet: more are not begun.
const WAITING: usize = 4;

/// What the logs say of attempts, the oldest first, from when on they were read, and who goes on to read them.
pub(super) type Told = (Vec<Attempt>, Vec<Heard>, Option<Follower>);

/// On a thread of its own, until somebody wants what it has read.
pub(super) struct LogReader {
    reading: Option<JoinHandle<(Logs, Follower)>>,
    told: Told,
}

impl LogReader {
    /// Begins.
    pub(super) fn start(host_root: PathBuf) -> Self {
        let reading = Builder::new().name("logs".into()).spawn(move || {
            Role::ReadLogs.assume();
            let mut follower = Follower::new(&host_root);
            (follower.read_all(), follower)
        });
        let reading =
            reading.inspect_err(|error| tracing::warn!("logs are not read: {error}")).ok();
        Self { reading, told: Told::default() }
    }

    /// Waits for the logs, once, and has pods named that are still here.
    pub(super) fn name_pods(&mut self, places: &PodTraces<'_>, names: &mut PodNames) {
        let Some((logs, follower)) = self.reading.take().and_then(|it| it.join().ok()) else {
            return;
        };
        let Logs { pods, attempts, heard, places: read } = logs;
        let read: Vec<String> =
            read.into_iter().map(|place| place.read.unwrap_or_else(|why| why)).collect();
        read.iter().for_each(|place| tracing::info!("{place}"));
        let here = pods.into_iter().filter(|pod| places.may_have_directory(&pod.uid));
        names.looked_in(read);
        names.learn(NameSource::Log, here.map(|pod| (pod.namespace, pod.name, pod.uid)));
        self.told = (attempts, heard, Some(follower));
    }

    /// What was read.
    pub(super) fn told(self) -> Told {
        self.told
    }
}

/// What the logs have new, during a run.
pub(super) struct LogNews(Receiver<Logs>);

impl LogNews {
    /// Begins. The thread ends when nobody listens any more.
    pub(super) fn start(follower: Option<Follower>) -> Self {
        let (sender, news) = channel(WAITING);
        let started = follower.map(|follower| {
            let follow = move || {
                Role::Look.assume();
                follow(follower, &sender);
            };
            Builder::new().name("logs".into()).spawn(follow)
        });
        if let Some(Err(error)) = started {
            tracing::warn!("logs are not followed: {error}");
        }
        Self(news)
    }

    /// Waits for something new. Safe to cancel.
    pub(super) async fn next(&mut self) -> Logs {
        match self.0.recv().await {
            Some(logs) => logs,
            // Nobody follows.
            None => std::future::pending().await,
        }
    }
}

fn follow(mut follower: Follower, news: &Sender<Logs>) {
    while !news.is_closed() {
        thread::sleep(EVERY);
        let logs = follower.read();
        let not_read = logs.places.iter().filter_map(|place| place.read.as_ref().err());
        not_read.for_each(|why| tracing::info!("{why}"));
        if !logs.is_empty() && news.blocking_send(logs).is_err() {
            return;
        }
    }
}
