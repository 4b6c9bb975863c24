//! Looks at volumes that fail, as a log tells of them: what the volume is on is asked while they are fresh.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    backoff,
    bounded::Bounded,
    model::{
        node::{NodeSample, VolumeState},
        said::{NamedLook, Said},
        time::Monotonic,
    },
    tracker::Context,
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
    pub(crate) said: Said,
    pub(crate) first: Monotonic,
    pub(crate) last: Monotonic,
    pub(crate) lines: u64,
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
        let new = || Told {
            look: look.clone(),
            said: said.clone(),
            first: at,
            last: at,
            lines: 0,
            asked: None,
        };
        let told = self.0.or_insert_with((said.uid.clone(), said.volume.clone()), new);
        told.first = told.first.min(at);
        told.lines += said.times;
        if at >= told.last {
            told.last = at;
            told.look.clone_from(look);
            told.said = said.clone();
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
            let is_fresh = context.now.since(told.last) <= FRESH;
            let Some(pod) = sample.pod(uid).filter(|_| is_fresh) else { continue };
            let volume = pod.volumes.iter().find(|it| told.look.path.starts_with(&it.path));
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

    /// What was said of this path.
    pub(crate) fn of(&self, path: &Path) -> Option<&Told> {
        self.0.iter().find(|(_, told)| told.look.path == path).map(|(_, told)| told)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped()
    }
}
