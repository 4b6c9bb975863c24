//! Removal attempts: their times, their results, and when the next one is expected.

use std::collections::{BTreeMap, VecDeque};

use podstuck_common::record::reason;
use podstuck_engine::backoff;

use crate::present::text::nouns;
use podstuck_model::{
    call::Call,
    errno::Errno,
    finding::Finding,
    identity::{Pod, Target},
    operation::Operation,
    path::{safe, safe_path},
    said::Said,
    time::{Clock, Monotonic},
};

/// Limit of objects whose attempts are followed.
const OBJECTS: usize = 256;
/// Limit of attempts shown of each.
const MARKS: usize = 64;

/// The object of attempts: pod and volume, or else the path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Object {
    uid: String,
    volume: String,
}

impl Object {
    fn of_target(target: &Target) -> Self {
        let uid = target.pod.as_ref().map(|pod| pod.uid.clone()).unwrap_or_default();
        let volume = match &target.volume {
            Some(volume) => volume.name.clone(),
            None if uid.is_empty() => safe_path(&target.root).into_owned(),
            None => String::new(),
        };
        Self { uid, volume }
    }

    fn is_of(&self, finding: &Finding) -> bool {
        let uid = finding.pod.as_ref().map_or("", |pod| &pod.uid);
        match &finding.volume {
            Some(volume) => self.uid == uid && self.volume == volume.name,
            None => !uid.is_empty() && self.uid == uid,
        }
    }
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) at: Monotonic,
    /// `None` when it succeeded.
    pub(super) error: Option<String>,
}

/// Why the next attempt is expected at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Basis {
    /// kubelet's log says so.
    Log,
    /// The intervals so far match kubelet's back-off.
    BackOff,
}

/// The attempts on one object.
#[derive(Clone, Debug, Default)]
pub(super) struct Track {
    /// Its name, escaped.
    pub(super) label: String,
    pub(super) marks: VecDeque<Mark>,
    /// Number of attempts.
    pub(super) count: u64,
    gaps: backoff::Attempts,
    begun: Monotonic,
    retry: Option<Monotonic>,
}

impl Track {
    fn note(&mut self, at: Monotonic, error: Option<String>, is_end: bool) {
        let latest = self.marks.back().map_or(Monotonic(0), |mark| mark.at);
        let is_new = if at < latest {
            // A log is read after the fact: the intervals are those of observed attempts.
            !self.marks.iter().any(|mark| mark.at.since(at).max(at.since(mark.at)).as_secs() < 1)
        } else {
            self.gaps.note(at)
        };
        if !is_new {
            // An attempt makes several calls: one failing call fails the attempt, unless all is well after it.
            if at >= latest
                && let Some(last) = self.marks.back_mut()
                && (error.is_some() || is_end)
            {
                last.error = error;
            }
            return;
        }
        self.count += 1;
        self.begun = self.begun.max(at);
        let place = self.marks.partition_point(|mark| mark.at <= at);
        self.marks.insert(place, Mark { at, error });
        if self.marks.len() > MARKS {
            self.marks.pop_front();
        }
    }

    /// When it is tried next, and why that is believed; `None` when it is not known.
    pub(super) fn next(&self) -> Option<(Monotonic, Basis)> {
        if let Some(retry) = self.retry.filter(|retry| *retry > self.begun) {
            return Some((retry, Basis::Log));
        }
        if self.marks.back().is_some_and(|mark| mark.error.is_none()) {
            return None;
        }
        let gap = u64::try_from(self.gaps.next_gap()?.as_nanos()).ok()?;
        Some((Monotonic(self.begun.0.saturating_add(gap)), Basis::BackOff))
    }
}

/// The attempts on all objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempts {
    tracks: BTreeMap<Object, Track>,
}

impl Attempts {
    /// Takes a call that was reported individually.
    pub(super) fn note(&mut self, op: &Operation) {
        let harmless = [Errno::EISDIR, Errno::ENOENT].iter().any(|errno| op.outcome.is(*errno));
        // The end of an unmount loop, and calls of processes other than the node's own.
        if harmless || op.outcome.is(Errno::EINVAL) || op.actor.is_stranger_to(&op.target) {
            return;
        }
        let object = Object::of_target(&op.target);
        let error = op.outcome.errno().map(|_| op.outcome.name());
        // Only successes that end a series of failures matter.
        let is_end = op.has(reason::ROOT_GONE | reason::RECOVERED) || op.call == Call::Umount2;
        if error.is_none() && !(is_end && self.tracks.contains_key(&object)) {
            return;
        }
        let label = || match (&op.target.pod, &op.target.volume) {
            (Some(pod), Some(volume)) => named(pod, &volume.name),
            (Some(pod), None) => nouns::pod_short(pod),
            (None, Some(volume)) => safe(volume.name.as_bytes()).into_owned(),
            (None, None) => safe_path(&op.target.root).into_owned(),
        };
        self.track(object, label, op.end).note(op.end, error, is_end);
    }

    /// Takes kubelet's log entry about its attempt.
    pub(super) fn said(&mut self, said: &Said, clock: Clock) {
        let Some(retry) = said.retry.filter(|_| said.is_kubelets_of_a_volume()) else { return };
        let volume = said.volume.rsplit(['^', '/']).next().unwrap_or(&said.volume);
        let known =
            self.tracks.keys().find(|object| object.uid == said.uid && object.volume == volume);
        let object = known
            .cloned()
            .unwrap_or_else(|| Object { uid: said.uid.clone(), volume: volume.into() });
        let at = clock.when(said.at);
        let label = || {
            let pod = Pod { uid: said.uid.clone(), namespace: None, name: None };
            named(&pod, volume)
        };
        let track = self.track(object, label, at);
        track.note(at, Some("failed, by kubelet's log".into()), false);
        track.retry = track.retry.max(Some(clock.when(retry)));
    }

    fn track(
        &mut self,
        object: Object,
        label: impl FnOnce() -> String,
        at: Monotonic,
    ) -> &mut Track {
        if !self.tracks.contains_key(&object) && self.tracks.len() >= OBJECTS {
            let oldest = self.tracks.iter().min_by_key(|(_, track)| track.begun);
            if let Some(oldest) = oldest.map(|(object, _)| object.clone()) {
                self.tracks.remove(&oldest);
            }
        }
        self.tracks.entry(object).or_insert_with(|| Track {
            label: label(),
            begun: at,
            ..Track::default()
        })
    }

    /// All objects, those of this finding first, then by their last attempt.
    pub(super) fn ranked(&self, finding: Option<&Finding>) -> Vec<&Track> {
        // Go's removal tries to remove a directory before its content.
        let failed = |track: &Track| track.marks.iter().any(|mark| mark.error.is_some());
        let mut all: Vec<_> = self.tracks.iter().filter(|(_, track)| failed(track)).collect();
        let mine = |object: &Object| finding.is_some_and(|finding| object.is_of(finding));
        all.sort_by_key(|(object, track)| (!mine(object), std::cmp::Reverse(track.begun)));
        all.into_iter().map(|(_, track)| track).collect()
    }
}

fn named(pod: &Pod, volume: &str) -> String {
    format!("{}, volume {}", nouns::pod_short(pod), safe(volume.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn second(at: f64) -> Monotonic {
        Monotonic((at * 1e9) as u64)
    }

    fn track(times: &[f64]) -> Track {
        let mut track = Track::default();
        times.iter().for_each(|at| track.note(second(*at), Some("EBUSY".into()), false));
        track
    }

    #[test]
    fn the_next_attempt_follows_kubelets_back_off() {
        let track = track(&[100.0, 100.05, 100.5, 101.5, 103.5]);
        assert_eq!(track.count, 4, "one attempt makes several calls");
        let (next, basis) = track.next().unwrap();
        assert_eq!(basis, Basis::BackOff);
        let gap = next.since(second(103.5));
        assert!(gap > Duration::from_secs(3) && gap < Duration::from_secs(5), "{gap:?}");
    }

    #[test]
    fn no_rhythm_and_no_log_is_no_prediction() {
        assert_eq!(track(&[1.0, 9.0, 12.0]).next(), None);
        let mut track = track(&[1.0, 9.0, 12.0]);
        track.retry = Some(second(20.0));
        assert_eq!(track.next(), Some((second(20.0), Basis::Log)));
        track.note(second(21.0), Some("EBUSY".into()), false);
        assert_eq!(track.next(), None, "that attempt was made");
    }

    #[test]
    fn no_attempt_is_expected_after_a_success() {
        let mut track = track(&[100.0, 100.5, 101.5, 103.5]);
        track.note(second(107.5), None, true);
        assert_eq!(track.next(), None);
    }

    #[test]
    fn a_late_log_entry_is_put_in_its_place_once() {
        let mut track = track(&[100.0, 200.0]);
        track.note(second(150.0), Some("log".into()), false);
        track.note(second(150.2), Some("log".into()), false);
        let times: Vec<_> = track.marks.iter().map(|mark| mark.at).collect();
        assert_eq!(times, [100.0, 150.0, 200.0].map(second));
    }
}
