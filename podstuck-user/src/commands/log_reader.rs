//! Reads the node's logs while the probes are loaded.

use std::{path::PathBuf, thread::JoinHandle};

use crate::{
    identity::{NameSource, PodNames, wanted::PodTraces},
    kernel::role::Role,
    model::said::Heard,
    state::logs::{self, Attempt, Logs},
};

/// On a thread of its own, until somebody wants what it has read.
pub(super) struct LogReader {
    reading: Option<JoinHandle<Logs>>,
    attempts: Vec<Attempt>,
    heard: Vec<Heard>,
}

impl LogReader {
    /// Begins.
    pub(super) fn start(host_root: PathBuf) -> Self {
        let read = std::thread::Builder::new().name("logs".into());
        let reading = read.spawn(move || {
            Role::ReadLogs.assume();
            logs::read(&host_root)
        });
        let reading =
            reading.inspect_err(|error| tracing::warn!("logs are not read: {error}")).ok();
        Self { reading, attempts: Vec::new(), heard: Vec::new() }
    }

    /// Waits for the logs, once, and has pods named that are still here.
    pub(super) fn name_pods(&mut self, places: &PodTraces<'_>, names: &mut PodNames) {
        let Some(logs) = self.reading.take().and_then(|reading| reading.join().ok()) else {
            return;
        };
        let Logs { pods, attempts, heard, places: read } = logs;
        let read: Vec<String> =
            read.into_iter().map(|place| place.read.unwrap_or_else(|why| why)).collect();
        read.iter().for_each(|place| tracing::info!("{place}"));
        let here = pods.into_iter().filter(|pod| places.may_have_directory(&pod.uid));
        names.looked_in(read);
        names.learn(NameSource::Log, here.map(|pod| (pod.namespace, pod.name, pod.uid)));
        (self.attempts, self.heard) = (attempts, heard);
    }

    /// What the logs tell of attempts, the oldest first, and from when on they were read.
    pub(super) fn told(self) -> (Vec<Attempt>, Vec<Heard>) {
        (self.attempts, self.heard)
    }
}
