//! FUSE mounts whose server is gone. Every look at one fails with ENOTCONN, and removals show it
//! seldom: Go looks before it deletes, gives up there, and what the probes see is that the directory
//! above is not empty, or that the mount point is busy.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use nix::errno::Errno;

use crate::{
    bounded::Bounded,
    causes::dead_fuse,
    causes::shared::clean_up::is_clean_up,
    event::{Event, What},
    model::{call::Call, hung::MountPoint, operation::Operation, time::Monotonic},
    query::{Answer, Query, Wants},
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

use super::from_log::ToldDead;

/// Between two looks at the mounts of one object.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Objects remembered, and targets.
const REMEMBERED: usize = 1024;

/// A mount, and the errno of a look at it.
type Looked = (MountPoint, i32);

/// An object whose removal failed as it does above a dead mount.
#[derive(Debug)]
pub(crate) struct Suspect {
    /// The last call that failed.
    pub(crate) op: Operation,
    /// How often.
    pub(crate) failures: u64,
    /// Since when.
    pub(crate) first: Monotonic,
    looked: Option<Monotonic>,
}

/// What was found for a target.
#[derive(Debug)]
struct Found {
    point: PathBuf,
    /// The object whose failures are counted.
    object: PathBuf,
}

/// Removals that may meet a dead mount.
pub(crate) struct DeadMounts {
    suspects: Bounded<(u64, PathBuf), Suspect>,
    /// Dead mounts, by target.
    found: Bounded<u64, Found>,
    told: ToldDead,
}

impl Default for DeadMounts {
    fn default() -> Self {
        Self {
            suspects: Bounded::new(REMEMBERED),
            found: Bounded::new(REMEMBERED),
            told: ToldDead::default(),
        }
    }
}

impl DeadMounts {
    fn observe(&mut self, op: &Operation) -> Option<Query> {
        let removes = op.call == Call::UnlinkatDir || op.call == Call::Rmdir;
        let refused = op.outcome.is(Errno::ENOTCONN) || (removes && op.outcome.is(Errno::EBUSY));
        let stays = removes && op.outcome.is(Errno::ENOTEMPTY);
        if !(refused || stays) || !is_clean_up(op) {
            return None;
        }
        let begin = || Suspect { op: op.clone(), failures: 0, first: op.end, looked: None };
        let suspect = self.suspects.or_insert_with((op.target_id, op.path.clone()), begin);
        suspect.failures += 1;
        suspect.op = op.clone();
        // Every removal of a tree first tries whether it is empty: that is no failure yet.
        let too_early = !refused && suspect.failures < 2;
        if too_early || suspect.looked.is_some_and(|then| op.end.since(then) < LOOK_EVERY) {
            return None;
        }
        suspect.looked = Some(op.end);
        let (target_id, path) = (op.target_id, op.path.clone());
        let wants = Wants::FuseMounts { pid: op.actor.pid, path: path.clone() };
        Some(Query { tracker: self.id(), target_id, path, wants })
    }

    /// Decides by the answers of the mounts.
    fn conclude(
        &mut self,
        context: &Context<'_>,
        query: &Query,
        looked: &[Looked],
    ) -> Option<Draft> {
        let dead = |(_, errno): &&Looked| *errno == Errno::ENOTCONN as i32;
        let (mount, _) = looked.iter().find(dead)?;
        let Some(suspect) = self.suspects.get(&(query.target_id, query.path.clone())) else {
            return self.told.conclude(context, query, mount);
        };
        let begin = || Found { point: mount.point.clone(), object: query.path.clone() };
        let found = self.found.or_insert_with(query.target_id, begin);
        // The directories above fail, too, because of this.
        (found.object == query.path).then(|| dead_fuse::verdict::draft(context, suspect, mount))
    }
}

impl Tracker for DeadMounts {
    fn id(&self) -> TrackerId {
        TrackerId::DeadMount
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Operation(op) | What::Told(op)
                if !context.is_explained(self.id(), &Subject::of(op)) =>
            {
                steps.ask(self.observe(op));
            }
            What::Said(said) => self.told.listen(context, said),
            What::Sample(sample) => {
                let (queries, over) = self.told.sampled(context, sample);
                steps.ask(queries);
                steps.say(over);
            }
            What::Answer { query, answer } => {
                if let Answer::FuseMounts(looked) = &**answer {
                    steps.found(self.conclude(context, query, looked));
                }
            }
            _ => {}
        }
    }

    /// A failure on a path, when the dead mount is there or below.
    fn explains(&self, subject: &Subject<'_>, _: Claim) -> bool {
        let found = self.found.get(&subject.target_id);
        found.is_some_and(|found| found.point.starts_with(subject.path))
            || self.told.explains(subject.target_id, subject.path)
    }

    fn forget(&mut self, target_id: u64, path: Option<&Path>, now: Monotonic, steps: &mut Steps) {
        let concerns = |of: &Path| path.is_none_or(|path| of.starts_with(path));
        self.suspects.retain(|(id, of), _| *id != target_id || !concerns(of));
        if self.found.get(&target_id).is_some_and(|found| concerns(&found.point))
            && let Some(found) = self.found.remove(&target_id)
        {
            let path = Some(found.point);
            steps.say([Verdict::Cleared { target_id, path, at: now }]);
        }
    }

    fn dropped(&self) -> u64 {
        self.suspects.dropped() + self.found.dropped() + self.told.dropped()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;

    use super::*;
    use crate::{
        model::{
            call::Outcome,
            evidence::Certainty,
            identity::{Component, Target},
            mounted::Mounted,
            node::{NodeSample, PodState, VolumeState},
            said::{NamedLook, Said},
        },
        testing::{Alone, VOLUME, failed, mounted, pod_state},
    };

    fn mount(errno: Errno) -> Answer {
        let point = Path::new(VOLUME).join("m");
        let mount = MountPoint { point, fs_type: "fuse.s3".into(), ..MountPoint::default() };
        Answer::FuseMounts(vec![(mount, errno as i32)])
    }

    fn explains(dead: &DeadMounts, target_id: u64, path: &Path) -> bool {
        let subject = Subject { target_id, path, pod: "", at: Monotonic(0) };
        dead.explains(&subject, Claim::Finding)
    }

    fn forget(dead: &mut DeadMounts, path: &Path) -> Vec<Verdict> {
        let mut steps = Steps::default();
        dead.forget(7, Some(path), Monotonic(0), &mut steps);
        steps.verdicts
    }

    #[test]
    fn a_directory_that_stays_is_looked_at_only_the_second_time() {
        let mut dead = Alone::<DeadMounts>::new();
        let failed = |errno, second| failed(Call::UnlinkatDir, errno, "", second);
        assert!(dead.ask(&failed(Errno::ENOTEMPTY, 1.0)).is_empty(), "every removal does that");
        let query = dead.ask(&failed(Errno::ENOTEMPTY, 1.1)).pop().unwrap();
        assert!(dead.ask(&failed(Errno::ENOTEMPTY, 1.2)).is_empty(), "too soon");
        assert!(dead.answer(&query, mount(Errno::EACCES)).is_none());
        let draft = dead.answer(&query, mount(Errno::ENOTCONN)).unwrap();
        assert_eq!((draft.id(), draft.path), ("fuse-daemon-dead", Path::new(VOLUME).join("m")));
        assert!(explains(&dead.tracker, 7, Path::new(VOLUME)));
        assert!(!explains(&dead.tracker, 8, Path::new("/")));
    }

    fn sample(second: u64, is_mounted: bool) -> What {
        let mount = Mounted { is_fuse: true, ..mounted(&Path::new(VOLUME).join("m"), 12) };
        let volume = VolumeState {
            target_id: 7,
            target: Arc::new(Target::unknown()),
            path: VOLUME.into(),
            file: None,
            csi: None,
            mounts: is_mounted.then_some(mount).into_iter().collect(),
        };
        let pod = PodState { seen_by: Some((1, 1)), volumes: vec![volume], ..pod_state("u") };
        let at = Monotonic(second * 1_000_000_000);
        What::Sample(Arc::new(NodeSample { at, pods: vec![pod], ..NodeSample::default() }))
    }

    #[test]
    fn who_comes_late_is_told_by_kubelets_log() {
        let mut dead = Alone::<DeadMounts>::new();
        let at = |second: u64| Monotonic(second * 1_000_000_000);
        let path = Path::new(VOLUME).join("m");
        let outcome = Outcome(Errno::ENOTCONN as u16);
        let time = Timestamp::from_second(1).unwrap();
        let said = Said::new(Component::Kubelet, "log of kubelet", "u", time, "openfdat m: ...");
        let said = Said { looked: Some(NamedLook { path, outcome }), ..said };
        dead.take(at(1), What::Said(Box::new(said)));
        assert!(dead.take(at(2), sample(2, false)).queries.is_empty(), "it is not mounted");
        let query = dead.take(at(3), sample(3, true)).queries.pop().unwrap();
        assert!(dead.take(at(4), sample(4, true)).queries.is_empty(), "too soon");
        assert!(dead.answer(&query, mount(Errno::EACCES)).is_none());
        let draft = dead.answer(&query, mount(Errno::ENOTCONN)).unwrap();
        assert_eq!((draft.id(), draft.certainty()), ("fuse-daemon-dead", Certainty::Firm));
        assert!(explains(&dead.tracker, 7, Path::new(VOLUME)));
        assert!(dead.take(at(5), sample(5, true)).verdicts.is_empty());
        let over = dead.take(at(6), sample(6, false)).verdicts;
        assert!(matches!(over[..], [Verdict::Cleared { .. }]), "{over:?}");
    }

    #[test]
    fn it_is_over_when_the_mount_point_is_gone() {
        let mut dead = Alone::<DeadMounts>::new();
        let op = failed(Call::UnlinkatDir, Errno::EBUSY, "m", 1.0);
        let query = dead.ask(&op).pop().unwrap();
        dead.answer(&query, mount(Errno::ENOTCONN)).unwrap();
        let dead = &mut dead.tracker;
        assert!(forget(dead, Path::new("/elsewhere")).is_empty());
        let over = forget(dead, &op.path);
        assert!(matches!(over[..], [Verdict::Cleared { .. }]), "{over:?}");
        assert!(!explains(dead, 7, &op.path));
    }
}
