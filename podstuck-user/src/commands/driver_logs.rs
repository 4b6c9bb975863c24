//! Reads the logs of CSI drivers, once the node was looked at: only then is it known who drives a volume.

use std::{collections::BTreeMap, path::PathBuf, thread::Builder, time::Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::{
    back_off::BackOff,
    kernel::role::Role,
    model::{
        csi::VolumeData,
        node::{NodeSample, VolumeState},
        said::Said,
    },
    state::logs::{self, DriverLog, VolumeNames},
};

/// Logs that are read in one run: a pod has few volumes, and a driver is restarted now and then.
const LOGS: usize = 32;

/// Whose log it is, as to one volume: volume, process and its start.
type Key = (u64, u32, Option<u64>);

/// A log that was asked for.
#[derive(Default)]
struct Reading {
    back_off: BackOff,
    /// It is being read, or was read to its end.
    is_done: bool,
    /// What was read before somebody had no answer any more.
    said: Vec<Said>,
}

/// What a log says, and whether that is all.
type Read = (Key, Vec<Said>, bool);

/// What was asked, and what has come.
pub(super) struct DriverLogs {
    host_root: PathBuf,
    log_dirs: Vec<PathBuf>,
    asked: BTreeMap<Key, Reading>,
    open: usize,
    sender: UnboundedSender<Read>,
    arrived: UnboundedReceiver<Read>,
}

impl DriverLogs {
    /// Has asked nothing yet; `log_dirs` is where pods' logs are.
    pub(super) fn new(host_root: PathBuf, log_dirs: Vec<PathBuf>) -> Self {
        let (sender, arrived) = unbounded_channel();
        Self { host_root, log_dirs, asked: BTreeMap::new(), open: 0, sender, arrived }
    }

    /// Reads what is not read yet of the volumes of the pods in question. Where that fails, it is read again later.
    pub(super) fn ask(&mut self, sample: &NodeSample, is_wanted: impl Fn(&str) -> bool) {
        for pod in sample.pods.iter().filter(|pod| is_wanted(&pod.uid)) {
            for volume in &pod.volumes {
                let Some(log) = self.log(&pod.uid, volume) else { continue };
                let started = volume.driver().and_then(|process| process.ticks);
                let key = (volume.target_id, log.pid, started);
                if self.asked.len() >= LOGS && !self.asked.contains_key(&key) {
                    continue;
                }
                let reading = self.asked.entry(key).or_default();
                if !reading.is_done && reading.back_off.is_due(Instant::now()) {
                    reading.is_done = true;
                    self.read(key, log);
                }
            }
        }
    }

    fn log(&self, uid: &str, volume: &VolumeState) -> Option<DriverLog> {
        let csi = volume.csi.as_ref()?;
        let VolumeData::Known { driver, handle, .. } = &csi.data else { return None };
        let found = csi.driver.as_ref()?;
        let pid = found.process.as_ref().map(|process| process.pid).or(found.registrar)?;
        let name = volume.path.file_name()?.to_str()?.to_owned();
        let directory = volume.path.to_str()?.to_owned();
        Some(DriverLog {
            host_root: self.host_root.clone(),
            log_dirs: self.log_dirs.clone(),
            pid,
            uid: uid.to_owned(),
            volume: format!("kubernetes.io/csi/{driver}^{handle}"),
            names: VolumeNames { directory, handle: handle.clone(), name },
        })
    }

    fn read(&mut self, key: Key, log: DriverLog) {
        let sender = self.sender.clone();
        let read = move || {
            Role::Look.assume();
            let (said, read) = logs::read_driver(log);
            match &read {
                Ok(places) => places.iter().for_each(|place| tracing::info!("{place}")),
                Err(why) => tracing::info!("{why}"),
            }
            // Nobody listens any more where the run has ended.
            let _ = sender.send((key, said, read.is_ok()));
        };
        match Builder::new().name("driver log".into()).spawn(read) {
            Ok(_) => self.open += 1,
            Err(error) => {
                tracing::warn!("a driver's log is not read yet: {error}");
                self.take((key, Vec::new(), false));
            }
        }
    }

    /// How many are being read.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Waits for one. Safe to cancel.
    pub(super) async fn next(&mut self) -> Vec<Said> {
        match self.arrived.recv().await {
            Some(read) => {
                self.open = self.open.saturating_sub(1);
                self.take(read)
            }
            // The sender is ours, too.
            None => std::future::pending().await,
        }
    }

    /// What was not read in an attempt before.
    fn take(&mut self, (key, mut said, is_all): Read) -> Vec<Said> {
        let Some(reading) = self.asked.get_mut(&key) else { return said };
        reading.is_done = is_all;
        said.retain(|said| !reading.said.contains(said));
        if !is_all {
            reading.said.extend_from_slice(&said);
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::model::identity::Component;

    #[test]
    fn what_was_read_before_somebody_had_no_answer_is_told_once() {
        let mut logs = DriverLogs::new("/".into(), Vec::new());
        let key = (1, 2, Some(3));
        logs.asked.insert(key, Reading { is_done: true, ..Reading::default() });
        let said = |text| Said::new(Component::CsiDriver, "log", "u", Timestamp::UNIX_EPOCH, text);
        assert_eq!(logs.take((key, vec![said("a")], false)), [said("a")]);
        assert!(!logs.asked[&key].is_done, "it is read again");
        assert_eq!(logs.take((key, vec![said("a"), said("b")], true)), [said("b")]);
        assert!(logs.asked[&key].is_done);
    }
}
