//! Follows the logs of CSI drivers, after the first scan of the node: only then is the driver of a volume known. Also reads,
//! once, what other containers log about one pod.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    thread::Builder,
    time::{Duration, Instant},
};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::model::{
    csi::VolumeData,
    identity::Pod,
    node::{NodeSample, PodState, VolumeState},
    said::Said,
};
use podstuck_confine::{back_off::BackOff, role::Role};
use podstuck_node::state::logs::{self, DriverLog, DriverRead, Marks, VolumeNames};

/// Limit of volumes whose drivers' logs are followed.
const LOGS: usize = 32;
/// Limit of helpers that read them at a time.
const AT_ONCE: usize = 2;
/// Interval between reads of a log.
const EVERY: Duration = Duration::from_secs(5);
/// A volume of a pod that is not in question is normally unmounted within this time.
const UNMOUNTED: Duration = Duration::from_secs(4);

/// The read position of a log, for one volume.
#[derive(Default)]
struct Reading {
    /// When the volume was first seen.
    since: Option<Instant>,
    /// Process id of the driver, or of its registrar, and the driver's start time in ticks.
    whose: Option<(u32, Option<u64>)>,
    /// Whether a read is in progress.
    is_open: bool,
    /// When it is read again; `None` before it was read to its end.
    next: Option<Instant>,
    back_off: BackOff,
    /// The positions up to which it was read.
    marks: Marks,
    /// Lines read by an earlier, incomplete read.
    said: Vec<Said>,
}

/// Target of the volume, lines of its log, whether that is all, and the positions up to which it was read.
type Read = (u64, Vec<Said>, bool, Marks);

/// The reads in progress, and their results.
pub(super) struct DriverLogs {
    host_root: PathBuf,
    log_dirs: Vec<PathBuf>,
    /// By target.
    asked: BTreeMap<u64, Reading>,
    open: usize,
    sender: UnboundedSender<Read>,
    arrived: UnboundedReceiver<Read>,
}

impl DriverLogs {
    /// No log is read yet; `log_dirs` are the directories of pods' logs.
    pub(crate) fn new(host_root: PathBuf, log_dirs: Vec<PathBuf>) -> Self {
        let (sender, arrived) = unbounded_channel();
        Self { host_root, log_dirs, asked: BTreeMap::new(), open: 0, sender, arrived }
    }

    /// Reads new lines about the volumes of the pods in question, and of other wanted pods whose containers have
    /// ended a while ago. A failed read is repeated later.
    pub(crate) fn ask(
        &mut self,
        sample: &NodeSample,
        is_wanted: impl Fn(&str) -> bool,
        is_asked: impl Fn(&str) -> bool,
    ) {
        let now = Instant::now();
        let ended = |pod: &PodState| pod.started && pod.populated == Some(false);
        let pods = sample.pods.iter().filter(|pod| is_wanted(&pod.uid));
        let mut there = BTreeSet::new();
        for pod in pods {
            let is_asked = is_asked(&pod.uid);
            if !is_asked && !ended(pod) {
                continue;
            }
            for volume in &pod.volumes {
                let Some(log) = self.log(&pod.uid, volume) else { continue };
                let target = volume.target_id;
                if self.asked.len() >= LOGS && !self.asked.contains_key(&target) {
                    continue;
                }
                there.insert(target);
                let reading = self.asked.entry(target).or_default();
                let started = volume.driver().and_then(|process| process.ticks);
                if reading.whose.replace((log.pid, started)) != Some((log.pid, started)) {
                    (reading.next, reading.back_off) = (None, BackOff::default());
                }
                let since = *reading.since.get_or_insert(now);
                let lasts = is_asked || now.duration_since(since) >= UNMOUNTED;
                let is_due = lasts && reading.next.is_none_or(|next| now >= next);
                let is_free = !reading.is_open && self.open < AT_ONCE;
                if is_due && is_free && reading.back_off.is_due(now) {
                    reading.is_open = true;
                    let marks = reading.marks.clone();
                    self.read(target, log, marks);
                }
            }
        }
        self.asked.retain(|target, reading| reading.is_open || there.contains(target));
    }

    fn log(&self, uid: &str, volume: &VolumeState) -> Option<DriverLog> {
        let csi = volume.csi.as_ref()?;
        let VolumeData::Known { handle, .. } = &csi.data else { return None };
        let found = csi.driver.as_ref()?;
        let pid = found.process.as_ref().map(|process| process.pid).or(found.registrar)?;
        let name = volume.path.file_name()?.to_str()?.to_owned();
        let directory = volume.path.to_str()?.to_owned();
        Some(DriverLog {
            host_root: self.host_root.clone(),
            log_dirs: self.log_dirs.clone(),
            pid,
            uid: uid.to_owned(),
            volume: csi.data.unique_name(uid, &name)?,
            names: VolumeNames { directory, handle: handle.clone(), name },
        })
    }

    /// Reads once what the containers of the node log about a pod, one of which may be the controller of its finalizer.
    pub(crate) fn ask_of(&mut self, pod: &Pod) {
        /// The target of no volume.
        const NONE: u64 = u64::MAX;
        let (sender, log_dirs, pod) = (self.sender.clone(), self.log_dirs.clone(), pod.clone());
        let read = move || {
            Role::Look.assume();
            let said = logs::read_containers(&log_dirs, &pod);
            // No receiver is left when the run has ended.
            let _ = sender.send((NONE, said, true, Marks::new()));
        };
        match Builder::new().name("containers' logs".into()).spawn(read) {
            Ok(_) => self.open += 1,
            Err(error) => tracing::warn!("the containers' logs are not read: {error}"),
        }
    }

    fn read(&mut self, target: u64, log: DriverLog, mut marks: Marks) {
        let sender = self.sender.clone();
        let before = marks.clone();
        let read = move || {
            Role::Look.assume();
            let DriverRead { said, read, .. } = logs::read_driver(log, &mut marks);
            match &read {
                Ok(places) => places.iter().for_each(|place| tracing::debug!("{place}")),
                Err(why) => tracing::info!("{why}"),
            }
            // No receiver is left when the run has ended.
            let _ = sender.send((target, said, read.is_ok(), marks));
        };
        match Builder::new().name("driver log".into()).spawn(read) {
            Ok(_) => self.open += 1,
            Err(error) => {
                tracing::warn!("a driver's log is not read yet: {error}");
                self.take((target, Vec::new(), false, before));
            }
        }
    }

    /// Number of reads in progress.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Waits for a read. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Vec<Said> {
        match self.arrived.recv().await {
            Some(read) => {
                self.open = self.open.saturating_sub(1);
                self.take(read)
            }
            // This struct holds a sender, too.
            None => std::future::pending().await,
        }
    }

    /// The lines that an earlier read did not return.
    fn take(&mut self, (target, mut said, is_all, marks): Read) -> Vec<Said> {
        let Some(reading) = self.asked.get_mut(&target) else { return said };
        reading.is_open = false;
        reading.marks = marks;
        said.retain(|said| !reading.said.contains(said));
        reading.back_off.came_to(is_all);
        if is_all {
            reading.next = Some(Instant::now() + EVERY);
            reading.said.clear();
        } else {
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
    fn lines_of_an_incomplete_read_are_returned_once() {
        let mut logs = DriverLogs::new("/".into(), Vec::new());
        logs.asked.insert(1, Reading { is_open: true, ..Reading::default() });
        let said = |text| Said::new(Component::CsiDriver, "log", "u", Timestamp::UNIX_EPOCH, text);
        assert_eq!(logs.take((1, vec![said("a")], false, Marks::new())), [said("a")]);
        assert!(logs.asked[&1].next.is_none(), "it is read again soon");
        let both = vec![said("a"), said("b")];
        assert_eq!(logs.take((1, both, true, Marks::new())), [said("b")]);
        assert!(logs.asked[&1].next.is_some() && !logs.asked[&1].is_open);
        // A repeated message since then is a line of its own.
        assert_eq!(logs.take((1, vec![said("a")], true, Marks::new())), [said("a")]);
    }
}
