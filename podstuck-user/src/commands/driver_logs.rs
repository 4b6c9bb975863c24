//! Reads the logs of CSI drivers, once the node was looked at: only then is it known who drives a volume.

use std::{collections::BTreeSet, path::PathBuf, thread::Builder};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::{
    kernel::role::Role,
    model::{
        node::{NodeSample, VolumeData, VolumeState},
        said::Said,
    },
    state::logs::{self, DriverLog, VolumeNames},
};

/// Logs that are read in one run: a pod has few volumes, and a driver is restarted now and then.
const LOGS: usize = 32;

/// What was asked, and what has come.
pub(super) struct DriverLogs {
    host_root: PathBuf,
    log_dirs: Vec<PathBuf>,
    /// By volume and process.
    asked: BTreeSet<(u64, u32, Option<u64>)>,
    open: usize,
    sender: UnboundedSender<Vec<Said>>,
    arrived: UnboundedReceiver<Vec<Said>>,
}

impl DriverLogs {
    /// Has asked nothing yet; `log_dirs` is where pods' logs are.
    pub(super) fn new(host_root: PathBuf, log_dirs: Vec<PathBuf>) -> Self {
        let (sender, arrived) = unbounded_channel();
        Self { host_root, log_dirs, asked: BTreeSet::new(), open: 0, sender, arrived }
    }

    /// Reads what is not read yet of the volumes of the pods in question.
    pub(super) fn ask(&mut self, sample: &NodeSample, is_wanted: impl Fn(&str) -> bool) {
        for pod in sample.pods.iter().filter(|pod| is_wanted(&pod.uid)) {
            for volume in &pod.volumes {
                let Some(log) = self.log(&pod.uid, volume) else { continue };
                let started = volume.driver().and_then(|process| process.ticks);
                let key = (volume.target_id, log.pid, started);
                let is_new = self.asked.len() < LOGS && self.asked.insert(key);
                if is_new {
                    self.read(log);
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

    fn read(&mut self, log: DriverLog) {
        let sender = self.sender.clone();
        let read = move || {
            Role::Look.assume();
            let (said, read) = logs::read_driver(log);
            match read {
                Ok(places) => places.iter().for_each(|place| tracing::info!("{place}")),
                Err(why) => tracing::info!("{why}"),
            }
            // Nobody listens any more where the run has ended.
            let _ = sender.send(said);
        };
        match Builder::new().name("driver log".into()).spawn(read) {
            Ok(_) => self.open += 1,
            Err(error) => tracing::warn!("a driver's log is not read: {error}"),
        }
    }

    /// How many are being read.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Waits for one. Safe to cancel.
    pub(super) async fn next(&mut self) -> Vec<Said> {
        match self.arrived.recv().await {
            Some(said) => {
                self.open = self.open.saturating_sub(1);
                said
            }
            // The sender is ours, too.
            None => std::future::pending().await,
        }
    }
}
