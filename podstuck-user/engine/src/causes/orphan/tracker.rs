//! The directory of a pod that the API server no longer knows. kubelet tries every two seconds to
//! remove it (`cleanupOrphanedPodDirs`), and by `rmdir` alone, so that no data are lost: a file in
//! a volume, such as `vol_data.json`, is enough to fail for ever. No pod waits for it.
//!
//! That the API server does not know it is concluded from what kubelet does, or the API server says so.

use std::{path::PathBuf, time::Duration};

use jiff::Timestamp;

use crate::{
    backoff::Attempts,
    bounded::Bounded,
    causes::orphan,
    event::{Event, What},
    model::{
        call::Call,
        identity::{Component, Pod},
        node::NodeSample,
        operation::Operation,
        time::Monotonic,
    },
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

/// Pods followed.
const PODS: usize = 1024;
/// Attempts before anything is said. A pod that is deleted in good health sees one.
const ATTEMPTS_NEEDED: u64 = 3;
/// kubelet's housekeeping comes every two seconds; a pause this long is none of it.
const TOO_LONG: Duration = Duration::from_secs(10);

/// kubelet's housekeeping on one pod's directory.
pub(crate) struct Housekeeping {
    /// By their time.
    pub(crate) attempts: Attempts,
    /// The first of them.
    pub(crate) first: Monotonic,
    last: Monotonic,
    target_id: u64,
    /// What was in the way at last, and the error.
    pub(crate) obstacle: Option<(PathBuf, String)>,
    told: bool,
}

/// A pod that the API server says it does not have.
struct Missing {
    pod: Pod,
    /// When it said so.
    read: Timestamp,
    /// What was said about it.
    told: Option<u64>,
}

/// Pods on which kubelet's housekeeping works, by UID, and those that the API server does not have.
pub(crate) struct Orphans {
    pods: Bounded<String, Housekeeping>,
    missing: Vec<Missing>,
}

impl Default for Orphans {
    fn default() -> Self {
        Self { pods: Bounded::new(PODS), missing: Vec::new() }
    }
}

impl Orphans {
    fn observe(&mut self, context: &Context<'_>, op: &Operation) -> Option<Draft> {
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
            return self.attempt(context, uid.clone(), op);
        }
        // What fails after the attempt on the whole is what is in the way; the last is the deepest.
        if op.path.starts_with(&volumes)
            && op.outcome.errno().is_some()
            && let Some(pod) = self.pods.get_mut(uid)
        {
            pod.obstacle = Some((op.path.clone(), op.outcome.name()));
        }
        None
    }

    fn attempt(&mut self, context: &Context<'_>, uid: String, op: &Operation) -> Option<Draft> {
        let pod = self.pods.or_insert_with(uid.clone(), || Housekeeping {
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
        // The API server's word needs none, and is said at the next look.
        let is_said = self.missing.iter().any(|missing| missing.pod.uid == uid);
        if pod.attempts.count() < ATTEMPTS_NEEDED || is_said {
            return None;
        }
        pod.told = true;
        Some(orphan::verdict::draft(context, pod, op))
    }

    /// What the API server does not have, and is here.
    fn look(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        for missing in &mut self.missing {
            let here = sample.pod(&missing.pod.uid);
            match (here, missing.told) {
                (Some(state), None) => {
                    let obstacle =
                        self.pods.get(&missing.pod.uid).and_then(|pod| pod.obstacle.as_ref());
                    let pod = (state, &missing.pod);
                    let draft =
                        orphan::verdict::missing(context, pod, missing.read, obstacle, sample.at);
                    missing.told = Some(draft.target_id);
                    steps.found(Some(draft));
                }
                (None, Some(target_id)) => {
                    missing.told = None;
                    let tracker = TrackerId::Orphan;
                    steps.say([Verdict::Over { tracker, target_id, at: sample.at }]);
                }
                _ => {}
            }
        }
    }

    /// What is over because housekeeping has stopped: the directory is gone.
    fn over(&mut self, now: Monotonic, steps: &mut Steps) {
        let tracker = self.id();
        self.pods.retain(|_, pod| {
            let over = now.since(pod.last) > TOO_LONG;
            if over && pod.told {
                steps.say([Verdict::Over { tracker, target_id: pod.target_id, at: now }]);
            }
            !over
        });
    }
}

impl Tracker for Orphans {
    fn id(&self) -> TrackerId {
        TrackerId::Orphan
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Operation(op) => steps.found(self.observe(context, op)),
            What::Sample(sample) => {
                self.over(sample.at, steps);
                self.look(context, sample, steps);
            }
            What::Node(node) => {
                for pod in &node.missing {
                    if !self.missing.iter().any(|known| known.pod == *pod) {
                        self.missing.push(Missing {
                            pod: pod.clone(),
                            read: node.read,
                            told: None,
                        });
                    }
                }
            }
            _ => {}
        }
    }

    /// A suspicion: housekeeping has lately been at this pod. A finding: it was said to be an orphan.
    fn explains(&self, subject: &Subject<'_>, claim: Claim) -> bool {
        self.pods.get(subject.pod).is_some_and(|pod| match claim {
            Claim::Suspicion => subject.at.since(pod.last) <= TOO_LONG,
            Claim::Finding => pod.told,
        })
    }

    fn dropped(&self) -> u64 {
        self.pods.dropped()
    }
}

/// `<kubelet root>/pods/<uid>/volumes`
fn volumes_of(op: &Operation, uid: &str) -> Option<PathBuf> {
    let pod = op.path.ancestors().find(|path| path.ends_with(uid))?;
    Some(pod.join("volumes"))
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use nix::errno::Errno;

    use super::*;
    use crate::{
        model::{
            csi::{CsiState, Registration, VolumeData},
            identity::Target,
            node::{PodState, VolumeState},
            node_record::NodeRecord,
        },
        testing::{Alone, FILE, failed, found, mounted, pod_state},
    };

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    fn op(call: Call, errno: Errno, below: &str, second: f64) -> Operation {
        let mut op = failed(call, errno, "x", second);
        op.path = format!("/k/pods/{UID}/{below}").into();
        let pod = Pod { uid: UID.into(), namespace: None, name: None };
        Arc::make_mut(&mut op.target).pod = Some(pod);
        op
    }

    fn observe(orphans: &mut Alone<Orphans>, op: Operation) -> Option<Draft> {
        found(orphans.take(op.end, What::Operation(Box::new(op))).verdicts).pop()
    }

    fn attempt(orphans: &mut Alone<Orphans>, second: f64) -> Option<Draft> {
        let whole = op(Call::UnlinkatDir, Errno::ENOTEMPTY, "volumes", second);
        let found = observe(orphans, whole);
        let file = "volumes/kubernetes.io~csi/pv/vol_data.json";
        observe(orphans, op(Call::UnlinkatDir, Errno::ENOTDIR, file, second));
        found
    }

    fn explains(orphans: &Alone<Orphans>, second: u64, claim: Claim) -> bool {
        let at = Monotonic(second * 1_000_000_000);
        let subject = Subject { target_id: 0, path: Path::new(""), pod: UID, at };
        orphans.tracker.explains(&subject, claim)
    }

    fn over(orphans: &mut Alone<Orphans>, second: u64) -> Vec<Verdict> {
        let at = Monotonic(second * 1_000_000_000);
        let sample = NodeSample { at, ..NodeSample::default() };
        orphans.take(at, What::Sample(Arc::new(sample))).verdicts
    }

    #[test]
    fn housekeeping_that_comes_again_and_again_is_an_orphans() {
        let mut orphans = Alone::new();
        assert!(attempt(&mut orphans, 2.0).is_none());
        assert!(attempt(&mut orphans, 4.0).is_none());
        assert!(explains(&orphans, 5, Claim::Suspicion) && !explains(&orphans, 5, Claim::Finding));
        let draft = attempt(&mut orphans, 6.0).unwrap();
        assert_eq!((draft.id(), draft.blocks_deletion), ("orphaned-pod-dir", Some(false)));
        assert!(draft.evidence.iter().any(|e| e.fact.contains("vol_data.json is in the way")));
        assert!(explains(&orphans, 7, Claim::Finding) && explains(&orphans, 7, Claim::Suspicion));
        assert!(over(&mut orphans, 8).is_empty());
        assert!(matches!(over(&mut orphans, 30)[..], [Verdict::Over { .. }]));
    }

    fn node(missing: &str) -> What {
        What::Node(Box::new(NodeRecord {
            node: "n".into(),
            read: Timestamp::UNIX_EPOCH,
            ready: None,
            drivers: None,
            missing: vec![Pod { uid: missing.into(), namespace: None, name: None }],
        }))
    }

    fn look(orphans: &mut Alone<Orphans>, second: u64, uids: &[&str]) -> Vec<Verdict> {
        let at = Monotonic(second * 1_000_000_000);
        let pods = uids.iter().map(|uid| pod_state(uid)).collect();
        orphans
            .take(at, What::Sample(Arc::new(NodeSample { at, pods, ..NodeSample::default() })))
            .verdicts
    }

    #[test]
    fn what_the_api_server_does_not_have_is_told_at_the_first_look_and_once() {
        let mut orphans = Alone::new();
        assert!(look(&mut orphans, 1, &[UID]).is_empty());
        orphans.take(Monotonic(1), node(UID));
        let draft = found(look(&mut orphans, 2, &[UID, "another"])).pop().unwrap();
        assert_eq!((draft.id(), draft.blocks_deletion), ("orphaned-pod-dir", Some(false)));
        assert_eq!(draft.target.pod.as_ref().map(|pod| pod.uid.as_str()), Some(UID));
        for second in [4.0, 6.0, 8.0, 10.0] {
            assert!(attempt(&mut orphans, second).is_none(), "it is said already");
        }
        assert!(look(&mut orphans, 11, &[UID]).is_empty());
        assert!(matches!(look(&mut orphans, 12, &[])[..], [Verdict::Over { .. }]), "removed");
        assert!(look(&mut orphans, 13, &[]).is_empty());
    }

    /// After the driver has let go, kubelet's own note of the volume is all that is left.
    #[test]
    fn what_is_left_is_named_with_the_command_that_removes_it() {
        let mut orphans = Alone::<Orphans>::new();
        orphans.take(Monotonic(1), node(UID));
        let path = PathBuf::from(format!("/k/pods/{UID}/volumes/kubernetes.io~csi/pv"));
        let (driver, handle) = ("block.example".into(), "h-1".into());
        let csi = CsiState {
            data: VolumeData::Known { driver, handle, lifecycle: "Persistent".into() },
            socket: "/s".into(),
            registration: Registration::Listening,
            registry_changed: None,
            driver: None,
        };
        let told = |orphans: &mut Alone<Orphans>, mounts| {
            let volume = VolumeState {
                target_id: 5,
                target: Target::unknown().into(),
                path: path.clone(),
                file: Some(FILE),
                csi: Some(csi.clone()),
                mounts,
            };
            let pods = vec![PodState { volumes: vec![volume], ..pod_state(UID) }];
            let at = Monotonic(2_000_000_000);
            let sample = NodeSample { at, pods, ..NodeSample::default() };
            let draft = found(orphans.take(at, What::Sample(Arc::new(sample))).verdicts).pop();
            let draft = draft.unwrap();
            let commands: Vec<String> =
                draft.remedies.iter().filter_map(|it| it.command.clone()).collect();
            (
                draft.evidence.iter().map(|it| it.fact.clone()).collect::<Vec<_>>().join("\n"),
                commands,
            )
        };
        let (facts, commands) = told(&mut orphans, Vec::new());
        assert!(facts.contains("/pv/vol_data.json is left, and nothing is mounted"), "{facts}");
        assert!(
            commands[0].contains("rm -f ./pv/vol_data.json && find ./pv -depth"),
            "{commands:?}"
        );
        assert!(commands.iter().all(|command| !command.contains("grep -F")), "{commands:?}");
        let mut orphans = Alone::<Orphans>::new();
        orphans.take(Monotonic(1), node(UID));
        let (facts, commands) = told(&mut orphans, vec![mounted(&path.join("mount"), 9)]);
        assert!(facts.contains("/pv/mount is still mounted"), "{facts}");
        assert!(commands[0].starts_with("grep -F -- "), "{commands:?}");
        assert!(commands.iter().all(|command| !command.contains("rm ")), "{commands:?}");
    }

    #[test]
    fn a_pod_that_is_deleted_in_good_health_sees_it_once() {
        let mut orphans = Alone::new();
        for pod in 0..20 {
            let second = f64::from(pod);
            // A static pod keeps its UID.
            observe(&mut orphans, op(Call::Umount2, Errno::EINVAL, "volumes/p/v", second));
            assert!(attempt(&mut orphans, second + 0.1).is_none());
        }
    }
}
