//! Looks at volumes that fail, as a log tells of them: what the volume is on is asked while they are fresh.

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
/// kubelet tries again within two minutes. What was not said for longer was cured, or is tried no more.
pub(crate) const FRESH: Duration = backoff::CAP.saturating_mul(3);
/// Between two questions about one volume.
const AGAIN: Duration = Duration::from_secs(30);

/// A look that failed, said for the first and the last time.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) look: NamedLook,
    pub(crate) logged: Repeated,
    asked: Option<Monotonic>,
}

/// By pod and volume, as their names are in the log.
#[derive(Debug)]
pub(crate) struct ToldLooks(Bounded<(String, String), Told>);

impl Default for ToldLooks {
    fn default() -> Self {
        Self(Bounded::new(REMEMBERED))
    }
}

/// A volume that a fresh look failed at, and that its pod still has.
pub(crate) struct Failing<'s> {
    pub(crate) volume: &'s VolumeState,
    /// What was looked at.
    pub(crate) path: PathBuf,
    /// Process and mount namespace to ask in, if it is time.
    pub(crate) ask_in: Option<(u32, u32)>,
}

impl ToldLooks {
    pub(crate) fn listen(&mut self, context: &Context<'_>, said: &Said, look: &NamedLook) {
        let at = context.when(said.at);
        let new = || Told { look: look.clone(), logged: Repeated::begin(said, at), asked: None };
        let told = self.0.or_insert_with((said.uid.clone(), said.volume.clone()), new);
        if told.logged.note(said, at) {
            told.look.clone_from(look);
        }
    }

    /// Those that can be asked about, of volumes that this holds for. Whoever is to be asked counts as asked.
    pub(crate) fn failing<'s>(
        &mut self,
        context: &Context<'_>,
        sample: &'s NodeSample,
        concerns: fn(&VolumeState) -> bool,
    ) -> Vec<Failing<'s>> {
        let mut failing = Vec::new();
        for ((uid, _), told) in self.0.iter_mut() {
            let is_fresh = context.now.since(told.logged.last) <= FRESH;
            let Some(pod) = sample.pod(uid).filter(|_| is_fresh) else { continue };
            let path = &told.look.path;
            // A subPath of it is mounted elsewhere.
            let is_its = |volume: &&VolumeState| {
                let mut mounts = volume.mounts.iter();
                path.starts_with(&volume.path) || mounts.any(|it| path.starts_with(&it.point))
            };
            let volume = pod.volumes.iter().find(is_its);
            let Some(volume) = volume.filter(|it| concerns(it)) else { continue };
            let is_due = told.asked.is_none_or(|asked| sample.at.since(asked) >= AGAIN);
            let ask_in = pod.seen_by.filter(|_| is_due);
            if ask_in.is_some() {
                told.asked = Some(sample.at);
            }
            failing.push(Failing { volume, path: told.look.path.clone(), ask_in });
        }
        failing
    }

    /// Asks what those of these volumes lie on whose turn it is. `found` keeps the targets of those that fail still, and
    /// the rest is over.
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

    /// What was said of this path.
    pub(crate) fn of(&self, path: &Path) -> Option<&Told> {
        self.0.iter().find(|(_, told)| told.look.path == path).map(|(_, told)| told)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped()
    }
}
