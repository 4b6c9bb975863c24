//! Failed stat requests on volumes, from logs. While they are fresh, the volume's file system is asked for.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    backoff,
    bounded::Bounded,
    causes::shared::repeated::Repeated,
    model::{
        node::{NodeSample, VolumeState},
        said::{NamedLook, Said},
        time::Monotonic,
    },
    query::{Query, ReadFileSystem},
    tracker::{Context, Steps, TrackerId},
    verdict::Verdict,
};

/// Volumes remembered.
const REMEMBERED: usize = 1024;
/// How long a line counts. kubelet retries within two minutes; after a longer silence the error is over.
pub(crate) const FRESH: Duration = backoff::CAP.saturating_mul(3);
/// Interval between two queries about one volume.
const AGAIN: Duration = Duration::from_secs(30);

/// A stat request that fails repeatedly, and its log lines.
#[derive(Debug)]
pub(crate) struct FailedStat {
    pub(crate) look: NamedLook,
    pub(crate) logged: Repeated,
    asked: Option<Monotonic>,
}

/// Failed stat requests, by the pod's UID and the volume's name as in the log.
#[derive(Debug, Default)]
pub(crate) struct StatErrors(Bounded<(String, String), FailedStat, REMEMBERED>);

/// A volume with a fresh failure that its pod still has.
pub(crate) struct Failing<'s> {
    pub(crate) volume: &'s VolumeState,
    /// The path of the stat request.
    pub(crate) path: PathBuf,
    /// Process and mount namespace to query in, if a query is due.
    pub(crate) ask_in: Option<(u32, u32)>,
}

impl StatErrors {
    pub(crate) fn listen(&mut self, context: &Context<'_>, said: &Said, look: &NamedLook) {
        let at = context.when(said.at);
        let new =
            || FailedStat { look: look.clone(), logged: Repeated::begin(said, at), asked: None };
        let failed = self.0.or_insert_with((said.uid.clone(), said.volume.clone()), new);
        if failed.logged.note(context, said) {
            failed.look.clone_from(look);
        }
    }

    /// Failing volumes for which `concerns` holds. A volume with `ask_in` set counts as asked.
    pub(crate) fn failing<'s>(
        &mut self,
        context: &Context<'_>,
        sample: &'s NodeSample,
        concerns: fn(&VolumeState) -> bool,
    ) -> Vec<Failing<'s>> {
        let mut failing = Vec::new();
        for ((uid, _), failed) in self.0.iter_mut() {
            let is_fresh = context.now.since(failed.logged.last) <= FRESH;
            let Some(pod) = sample.pod(uid).filter(|_| is_fresh) else { continue };
            let path = &failed.look.path;
            // A subPath is mounted outside the volume's directory.
            let is_its = |volume: &&VolumeState| {
                let mut mounts = volume.mounts.iter();
                path.starts_with(&volume.path) || mounts.any(|it| path.starts_with(&it.point))
            };
            let volume = pod.volumes.iter().find(is_its);
            let Some(volume) = volume.filter(|it| concerns(it)) else { continue };
            let is_due = failed.asked.is_none_or(|asked| sample.at.since(asked) >= AGAIN);
            let ask_in = pod.seen_by.filter(|_| is_due);
            if ask_in.is_some() {
                failed.asked = Some(sample.at);
            }
            failing.push(Failing { volume, path: failed.look.path.clone(), ask_in });
        }
        failing
    }

    /// Queries the file systems of the failing volumes that are due. `found` keeps the targets that still fail; the
    /// others are reported as over.
    pub(crate) fn ask(
        &mut self,
        tracker: TrackerId,
        (context, sample): (&Context<'_>, &NodeSample),
        found: &mut BTreeSet<u64>,
        steps: &mut Steps,
    ) {
        let mut before = std::mem::take(found);
        for failing in self.failing(context, sample, |volume| !volume.mounts.is_empty()) {
            let target_id = failing.volume.target_id;
            if before.remove(&target_id) {
                found.insert(target_id);
            }
            let Some((pid, namespace)) = failing.ask_in else { continue };
            let wants = ReadFileSystem { pid, namespace, path: failing.path.clone() }.into();
            steps.ask([Query { tracker, target_id, path: failing.path, wants }]);
        }
        let over = |target_id| Verdict::Over { tracker, target_id, at: sample.at };
        steps.say(before.into_iter().map(over));
    }

    /// The failed stat request on this path.
    pub(crate) fn of(&self, path: &Path) -> Option<&FailedStat> {
        self.0.iter().find(|(_, failed)| failed.look.path == path).map(|(_, failed)| failed)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped()
    }
}
