//! Which pods' directories are read again in a sample. In a run that lasts for days, those of pods that run take turns:
//! kubelet changes them when a pod begins, and when its processes have ended.

use std::{cell::RefCell, collections::HashMap};

use jiff::{SignedDuration, Timestamp};

use super::hierarchies::Hierarchies;
use crate::state::pod_dirs::PodOnDisk;

/// Samples among which the directory of a pod that runs is read once.
const AGAIN: usize = 8;
/// A pod whose directories have changed for the last time this long ago has been set up.
const SET_UP: SignedDuration = SignedDuration::from_mins(1);

/// What one sample knows of pods' processes.
pub(super) struct Turns<'a> {
    turn: Option<usize>,
    cgroups: &'a Hierarchies,
    populated: RefCell<HashMap<String, Option<bool>>>,
}

impl<'a> Turns<'a> {
    /// With the number of the sample, if pods that run take turns.
    pub(super) fn new(turn: Option<usize>, cgroups: &'a Hierarchies) -> Self {
        Self { turn, cgroups, populated: RefCell::default() }
    }

    /// Whether what was read of a pod's directories need not be read again in this sample.
    pub(super) fn is_known(&self, pod: &PodOnDisk) -> bool {
        let Some(turn) = self.turn else { return false };
        let number: usize = pod.uid.bytes().map(usize::from).sum();
        let is_set_up = |at: Timestamp| Timestamp::now().duration_since(at) >= SET_UP;
        !turn.wrapping_add(number).is_multiple_of(AGAIN)
            && pod.times.changed.is_some_and(is_set_up)
            && self.populated(&pod.uid) == Some(true)
    }

    /// As [`Hierarchies::populated`], looked up once. It is looked up before a directory is left as it was: one whose
    /// processes have just ended is read.
    pub(super) fn populated(&self, uid: &str) -> Option<bool> {
        let known = self.populated.borrow().get(uid).copied();
        known.unwrap_or_else(|| {
            let populated = self.cgroups.populated(uid);
            self.populated.borrow_mut().insert(uid.into(), populated);
            populated
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{
        pod_dirs::Times, sample::roots_on_disk::tests::on_disk_pod, scratch::write,
    };

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    #[test]
    fn only_a_pod_that_is_set_up_and_runs_waits_for_its_turn() {
        let cgroups = tempfile::tempdir().unwrap();
        let procs = cgroups.path().join(format!("pids/kubepods/pod{UID}/cgroup.procs"));
        write(cgroups.path().join("pids/cgroup.procs"), "");
        write(procs.clone(), "7\n");
        let hierarchies = Hierarchies::of(cgroups.path());
        let ago = |seconds| Some(Timestamp::now() - SignedDuration::from_secs(seconds));
        let changed = |changed| PodOnDisk {
            times: Times { changed, ..Times::default() },
            ..on_disk_pod(UID)
        };
        let waits = |pod: &PodOnDisk| {
            let turn = |turn: &usize| Turns::new(Some(*turn), &hierarchies).is_known(pod);
            (0..AGAIN).filter(turn).count()
        };
        assert_eq!(waits(&changed(ago(61))), AGAIN - 1);
        assert!(!Turns::new(None, &hierarchies).is_known(&changed(ago(61))));
        for pod in [changed(ago(59)), changed(None), on_disk_pod("another")] {
            assert_eq!(waits(&pod), 0);
        }
        write(procs, "");
        assert_eq!(waits(&changed(ago(61))), 0, "its processes have ended");
    }
}
