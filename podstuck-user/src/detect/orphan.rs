//! The directory of a pod that the API server no longer knows. kubelet tries every two seconds to
//! remove it (`cleanupOrphanedPodDirs`), and by `rmdir` alone, so that no data are lost: a file in
//! a volume, such as `vol_data.json`, is enough to fail for ever. No pod waits for it.

use std::{collections::HashMap, path::PathBuf, time::Duration};

use super::{
    Verdict,
    backoff::Attempts,
    command::View,
    draft::{Draft, Family, PROBE, times},
};
use crate::model::{
    call::Call,
    finding::Severity,
    identity::Component,
    operation::Operation,
    path::{safe_path, shell_word},
    time::Monotonic,
};

/// Pods followed.
const PODS: usize = 1024;
/// Attempts before anything is said. A pod that is deleted in good health sees one.
const ATTEMPTS_NEEDED: u64 = 3;
/// kubelet's housekeeping comes every two seconds; a pause this long is none of it.
const TOO_LONG: Duration = Duration::from_secs(10);

struct Housekeeping {
    attempts: Attempts,
    first: Monotonic,
    last: Monotonic,
    target_id: u64,
    /// What was in the way at last.
    obstacle: Option<(PathBuf, String)>,
    told: bool,
}

/// Pods on which kubelet's housekeeping works, by UID.
#[derive(Default)]
pub(super) struct Orphans {
    pods: HashMap<String, Housekeeping>,
}

impl Orphans {
    pub(super) fn observe(&mut self, op: &Operation) -> Option<Verdict> {
        let uid = &op.target.pod.as_ref()?.uid;
        if op.actor.component != Component::Kubelet {
            return None;
        }
        let volumes = volumes_of(op, uid)?;
        if op.call != Call::UnlinkatDir {
            // Files are removed and mounts unmounted for pods that are still known.
            if op.path.starts_with(&volumes) {
                self.pods.remove(uid);
            }
            return None;
        }
        if op.path == volumes && op.outcome.errno().is_some() {
            return self.attempt(uid.clone(), op);
        }
        // What fails after the attempt on the whole is what is in the way; the last is the deepest.
        if let Some(pod) = self.pods.get_mut(uid)
            && op.path.starts_with(&volumes)
            && op.outcome.errno().is_some()
        {
            pod.obstacle = Some((op.path.clone(), op.outcome.name()));
        }
        None
    }

    fn attempt(&mut self, uid: String, op: &Operation) -> Option<Verdict> {
        if self.pods.len() >= PODS && !self.pods.contains_key(&uid) {
            return None;
        }
        let pod = self.pods.entry(uid).or_insert_with(|| Housekeeping {
            attempts: Attempts::default(),
            first: op.end,
            last: op.end,
            target_id: op.target_id,
            obstacle: None,
            told: false,
        });
        if op.end.since(pod.last) > TOO_LONG {
            pod.attempts = Attempts::default();
            pod.first = op.end;
        }
        pod.attempts.note(op.end);
        pod.last = op.end;
        if pod.attempts.count() < ATTEMPTS_NEEDED {
            return None;
        }
        pod.told = true;
        Some(Verdict::Found(Box::new(draft(pod, op))))
    }

    /// Whether housekeeping has lately been at this pod.
    pub(super) fn is_at(&self, uid: &str, now: Monotonic) -> bool {
        self.pods.get(uid).is_some_and(|pod| now.since(pod.last) <= TOO_LONG)
    }

    /// Whether a pod's directory was told to be an orphan.
    pub(super) fn is_orphan(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|pod| pod.told)
    }

    /// What is over because housekeeping has stopped: the directory is gone.
    pub(super) fn over(&mut self, now: Monotonic) -> Vec<Verdict> {
        let over: Vec<String> = self
            .pods
            .iter()
            .filter(|(_, pod)| now.since(pod.last) > TOO_LONG)
            .map(|(uid, _)| uid.clone())
            .collect();
        let pods = over.iter().filter_map(|uid| self.pods.remove(uid));
        pods.filter(|pod| pod.told)
            .map(|pod| Verdict::Over { family: Family::Untried, target_id: pod.target_id, at: now })
            .collect()
    }
}

/// `<kubelet root>/pods/<uid>/volumes`
fn volumes_of(op: &Operation, uid: &str) -> Option<PathBuf> {
    let pod = op.path.ancestors().find(|path| path.ends_with(uid))?;
    Some(pod.join("volumes"))
}

fn draft(pod: &Housekeeping, op: &Operation) -> Draft {
    let mut draft = Draft::about(Family::Untried, "orphaned-pod-dir", op);
    draft.severity = Severity::Info;
    draft.confidence = 0.9;
    draft.blocks_deletion = Some(false);
    draft.count = pod.attempts.count();
    draft.first = pod.first;
    draft.fact(
        format!(
            "kubelet tried {} in {:.0} s to remove the pod's volumes by rmdir alone, and unmounted \
             nothing",
            times(draft.count),
            op.end.since(pod.first).as_secs_f64()
        ),
        PROBE,
    );
    if let Some((path, errno)) = &pod.obstacle {
        draft.fact(format!("{} is in the way: rmdir fails with {errno}", safe_path(path)), PROBE);
    }
    draft.explanation = "The API server does not know this pod any more, so it is not Terminating: \
        what is left is its directory, which kubelet cannot remove because something lies in it. It \
        costs a line in kubelet's log every two seconds, and it holds no other pod up."
        .into();
    let directory = op.path.parent().unwrap_or(&op.path);
    draft.remedy(
        format!("grep -F -- {} {}", shell_word(directory), View::of(op).table()),
        "none: lists what is still mounted below; unmount that first",
    );
    draft.remedy(
        View::of(op).on_object("find", directory) + " -xdev -type f",
        "none: lists the files in the way. Move what you need, and only then remove them: `rm -rf` \
         through a mount that is still there deletes the data behind it",
    );
    draft.ruled_out.push(
        "vol-data-missing-or-corrupt: kubelet removes nothing of a pod whose volume it cannot read"
            .into(),
    );
    draft
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nix::errno::Errno;

    use super::{super::sample::failed, *};
    use crate::model::identity::Pod;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    fn op(call: Call, errno: Errno, below: &str, second: f64) -> Operation {
        let mut op = failed(call, errno, "x", second);
        op.path = format!("/k/pods/{UID}/{below}").into();
        let pod = Pod { uid: UID.into(), namespace: None, name: None };
        Arc::make_mut(&mut op.target).pod = Some(pod);
        op
    }

    fn attempt(orphans: &mut Orphans, second: f64) -> Option<Box<Draft>> {
        let whole = op(Call::UnlinkatDir, Errno::ENOTEMPTY, "volumes", second);
        let found = orphans.observe(&whole);
        let file = "volumes/kubernetes.io~csi/pv/vol_data.json";
        orphans.observe(&op(Call::UnlinkatDir, Errno::ENOTDIR, file, second));
        match found {
            Some(Verdict::Found(draft)) => Some(draft),
            _ => None,
        }
    }

    #[test]
    fn housekeeping_that_comes_again_and_again_is_an_orphans() {
        let mut orphans = Orphans::default();
        assert!(attempt(&mut orphans, 2.0).is_none());
        assert!(attempt(&mut orphans, 4.0).is_none());
        let draft = attempt(&mut orphans, 6.0).unwrap();
        assert_eq!((draft.id, draft.blocks_deletion), ("orphaned-pod-dir", Some(false)));
        assert!(draft.evidence.iter().any(|e| e.fact.contains("vol_data.json is in the way")));
        assert!(orphans.is_orphan(UID) && orphans.is_at(UID, Monotonic(7_000_000_000)));
        assert!(orphans.over(Monotonic(8_000_000_000)).is_empty());
        assert_eq!(orphans.over(Monotonic(30_000_000_000)).len(), 1);
    }

    #[test]
    fn a_pod_that_is_deleted_in_good_health_sees_it_once() {
        let mut orphans = Orphans::default();
        for pod in 0..20 {
            let second = f64::from(pod);
            // A static pod keeps its UID.
            orphans.observe(&op(Call::Umount2, Errno::EINVAL, "volumes/p/v", second));
            assert!(attempt(&mut orphans, second + 0.1).is_none());
        }
    }
}
