//! FUSE mounts whose server is gone. stat(2) on such a mount fails with ENOTCONN, and removals seldom show it: Go calls
//! stat(2) before it deletes and gives up, so the probes see only that the directory above is not empty, or that the
//! mount point is busy. kubelet's log of such an error counts, too: a run that starts late sees no failing removal.

use crate::cause::Origin;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::{
    bounded::Bounded,
    cause::{Cause, Kind, TriedWith, like, log, seen, way},
    causes::shared::{clean_up::is_clean_up, stat_errors::StatErrors},
    command::View,
    event::{Event, What},
    family::Family,
    ids,
    model::{
        call::Call,
        chain::Who,
        degraded::Feed,
        diagnosis::Stage,
        errno::Errno,
        evidence::Source,
        finding::Severity,
        hung::{FuseServer, MountPoint},
        identity::Target,
        node::NodeSample,
        operation::Operation,
        path::{safe, safe_path},
        said::Said,
        time::Monotonic,
    },
    query::{Query, Question, ReachFuseMounts},
    tracker::{Claim, Context, Scope, Steps, Subject, Tracker, TrackerId, TrackerSpec, yields},
    verdict::{Draft, Verdict, times},
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[&FUSE_DAEMON_DEAD],
    trackers: &[TrackerSpec {
        id: TrackerId::DeadMount,
        feeds: &[Feed::Calls, Feed::Node, Feed::Objects, Feed::Logs],
        yields: &[
            yields(
                TrackerId::CrossedMount,
                Claim::Suspicion,
                Scope::Target,
                "the mount that a removal went through is busy afterwards",
            ),
            yields(TrackerId::Orphan, Claim::Finding, Scope::Pod, "no pod waits for an orphan"),
        ],
        new: || Box::<DeadMounts>::default(),
    }],
};

/// Time between two questions about the mounts of one object.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Objects remembered, and targets.
const REMEMBERED: usize = 1024;

/// A mount, and the errno of statx(2) on it; 0 if that succeeded.
type Looked = (MountPoint, i32);

/// An object whose removal failed as one above a dead mount does.
#[derive(Debug)]
pub(crate) struct Suspect {
    /// The last call that failed.
    pub(crate) op: Operation,
    /// Number of failed calls.
    pub(crate) failures: u64,
    /// When the first call failed.
    pub(crate) first: Monotonic,
    looked: Option<Monotonic>,
}

/// The dead mount of a target.
#[derive(Debug)]
struct Found {
    point: PathBuf,
    /// The object whose failures are counted.
    object: PathBuf,
}

/// Removals that may meet a dead mount.
#[derive(Default)]
pub(crate) struct DeadMounts {
    suspects: Bounded<(u64, PathBuf), Suspect, REMEMBERED>,
    /// Dead mounts, by target.
    found: Bounded<u64, Found, REMEMBERED>,
    logged: LoggedDead,
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
        // Every removal of a tree first tries to remove the directory: one ENOTEMPTY is no failure yet.
        let too_early = !refused && suspect.failures < 2;
        if too_early || suspect.looked.is_some_and(|then| op.end.since(then) < LOOK_EVERY) {
            return None;
        }
        suspect.looked = Some(op.end);
        let (target_id, path) = (op.target_id, op.path.clone());
        let wants = ReachFuseMounts { pid: op.actor.pid, path: path.clone() }.into();
        Some(Query { tracker: self.id(), target_id, path, wants })
    }

    /// The finding, by the answers of the mounts.
    fn conclude(
        &mut self,
        context: &Context<'_>,
        query: &Query,
        looked: &[Looked],
    ) -> Option<Draft> {
        let (mount, _) = looked.iter().find(|(_, errno)| is_dead(*errno))?;
        let Some(suspect) = self.suspects.get(&(query.target_id, query.path.clone())) else {
            return self.logged.conclude(context, query, mount);
        };
        let begin = || Found { point: mount.point.clone(), object: query.path.clone() };
        let found = self.found.or_insert_with(query.target_id, begin);
        // The directories above fail, too, because of this.
        (found.object == query.path).then(|| draft(context, suspect, mount))
    }
}

impl Tracker for DeadMounts {
    fn id(&self) -> TrackerId {
        TrackerId::DeadMount
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Operation(op) | What::Logged(op)
                if !context.is_explained(self.id(), &Subject::of(op)) =>
            {
                steps.ask(self.observe(op));
            }
            What::Said(said) => self.logged.listen(context, said),
            What::Sample(sample) => {
                let (queries, over) = self.logged.sampled(context, sample);
                steps.ask(queries);
                steps.say(over);
            }
            What::Answer { query, answer } => {
                if let Some((_, looked)) = ReachFuseMounts::answered(query, answer) {
                    steps.found(self.conclude(context, query, looked));
                }
            }
            _ => {}
        }
    }

    /// Explains a failure on a path, if the dead mount is there or below.
    fn explains(&self, subject: &Subject<'_>, _: Claim) -> bool {
        let found = self.found.get(&subject.target_id);
        found.is_some_and(|found| found.point.starts_with(subject.path))
            || self.logged.explains(subject.target_id, subject.path)
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
        self.suspects.dropped() + self.found.dropped() + self.logged.dropped()
    }
}

/// Whether the errno of a call shows that a FUSE mount has no connection to a server.
pub(crate) fn is_dead(errno: i32) -> bool {
    errno == Errno::ENOTCONN as i32
}

/// A FUSE mount without a server.
pub(crate) static FUSE_DAEMON_DEAD: Cause = Cause {
    id: ids::FUSE_DAEMON_DEAD,
    title: "calls on a FUSE mount fail with ENOTCONN: its server, or what that server needs, is \
        gone",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "stat(2) of a FUSE mount fails with ENOTCONN: the process that served it has ended, \
        or it still runs and has lost its connection or its own servers. A removal calls stat(2) \
        first, so it fails there, and the directories above stay. podstuck detects this also when \
        only the directory above is reported as not empty.",
    confirmed_by: &[
        seen("a file system of type fuse is mounted on or below the object", &[Origin::Mounts]),
        seen("statx(2) of its mount point fails with ENOTCONN", &[Origin::Look]),
    ],
    log: log("kubelet", "transport endpoint is not connected"),
    look_alikes: &[
        like(ids::FUSE_DAEMON_HUNG, "stat(2) fails at once, with an error from the kernel"),
        like(ids::EMPTYDIR_BIDIRECTIONAL_SUBMOUNT, "the server of the mount is gone"),
        like(ids::SMB_HOST_DOWN, "the file system is of type fuse"),
    ],
    ways_out: &[way(
        "`umount` it",
        "low: nothing behind the mount can be reached; containers that use it must be restarted",
    )],
    field: &["fluid#4002", "kubernetes#65703", "kubernetes#96361", "mountpoint-s3-csi-driver#576"],
    tried: &[TriedWith::Lab, TriedWith::RealKubelet],
    source: &["linux fs/fuse/dev.c, fuse_abort_conn"],
};

/// The cause, for other trackers that find it.
pub(crate) fn cause() -> &'static Cause {
    &FUSE_DAEMON_DEAD
}

pub(crate) fn draft(context: &Context<'_>, suspect: &Suspect, mount: &MountPoint) -> Draft {
    let op = &suspect.op;
    let mut draft = Draft::about(TrackerId::DeadMount, &FUSE_DAEMON_DEAD, op);
    draft.blocks_deletion = op.target.pod.is_some().then_some(true);
    (draft.count, draft.first) = (suspect.failures, suspect.first);
    let (call, outcome) = (op.call.name(), op.outcome.name());
    draft.fact(format!("{call} of {} failed with {outcome}", safe_path(&op.path)), op.source());
    tell(&mut draft, mount, View::of(context, op), op.actor.pid);
    draft
}

/// The finding where only kubelet's log shows that a removal failed at the mount.
fn draft_from_log(
    context: &Context<'_>,
    (target_id, target): (u64, Arc<Target>),
    said: &Said,
    mount: &MountPoint,
    (pid, namespace): (u32, u32),
) -> Draft {
    let (tracker, cause) = (TrackerId::DeadMount, &FUSE_DAEMON_DEAD);
    let path = mount.point.clone();
    let mut draft = Draft::about_state(tracker, cause, target_id, target, path, context.now);
    draft.blocks_deletion = Some(true);
    (draft.count, draft.first) = (said.times, context.when(said.at));
    let text = safe(said.text.as_bytes());
    let source = Source::Log(said.source.clone());
    let said = format!("{} logged {}: {text}", said.component.name(), times(said.times));
    draft.fact_since(said, source, draft.first);
    tell(&mut draft, mount, View::in_namespace(context, namespace, pid), pid);
    draft
}

/// Adds the facts about the mount, the explanation and the remedy.
fn tell(draft: &mut Draft, mount: &MountPoint, view: View, pid: u32) {
    let point = safe_path(&mount.point);
    draft.path = mount.point.clone();
    draft.severity = Severity::Warning;
    draft.fact(
        format!(
            "{} of type {} is mounted on {point}",
            safe(mount.source.as_bytes()),
            safe(mount.fs_type.as_bytes())
        ),
        Source::mountinfo(format!("/proc/{pid}/mountinfo")),
    );
    draft.fact(format!("statx(2) of {point} fails with ENOTCONN"), Source::Look("statx"));
    let why = match mount.fuse {
        // A server that lives has its connection open even after an abort.
        Some(FuseServer::Lives(server)) => {
            draft.fact(
                format!("process {server} has the mount's FUSE connection open"),
                Source::proc("/proc/*/fdinfo"),
            );
            draft.doubt(
                "whether the connection was aborted: the FUSE server still runs, and may return \
                 ENOTCONN itself, as GlusterFS's does while its own servers are unreachable",
            );
            draft.held_by(Who::process("the FUSE server", server));
            draft.explanation = format!(
                "stat(2) of this mount fails with ENOTCONN. Removals call stat(2) before they \
                 delete, so they fail there, and the directories above stay. The mount's FUSE \
                 server, process {server}, still runs: it returns this error itself, as \
                 GlusterFS's client does when its volume or its own servers are gone, or its \
                 connection was aborted."
            );
            ", whose FUSE server returns no other answer"
        }
        Some(FuseServer::NotShown) => {
            draft.doubt(
                "whether its server is gone: this kernel does not show which process serves a \
                 FUSE mount, and a running server may return ENOTCONN itself",
            );
            draft.explanation =
                "stat(2) of this mount fails with ENOTCONN: its FUSE server has ended, or returns \
                 this error itself. Removals call stat(2) before they delete, so they fail there, \
                 and the directories above stay."
                    .into();
            ", whose FUSE server has ended or returns no other answer"
        }
        server => {
            if server == Some(FuseServer::Gone) {
                draft.fact(
                    "no process has the mount's FUSE connection open",
                    Source::proc("/proc/*/fdinfo"),
                );
            }
            draft.explanation =
                "The process that served this FUSE file system has ended, and the mount is still \
                 there. stat(2) of it fails with ENOTCONN. Removals call stat(2) before they \
                 delete, so they fail there, and the directories above stay. Unmounting can lose \
                 nothing more."
                    .into();
            ", whose FUSE server has ended"
        }
    };
    draft.remedy(
        view.on_mount("umount", &mount.point, mount.id).so(why),
        "low: nothing behind the mount can be reached; containers that still use it must be \
         restarted. The next attempt then deletes the directory",
    );
    tell_apart(draft);
}

/// Rules out the look-alikes.
pub(crate) fn tell_apart(draft: &mut Draft) {
    draft.rule_out(ids::FUSE_DAEMON_HUNG, "stat(2) failed at once, with an error from the kernel");
    draft.rule_out(ids::EMPTYDIR_BIDIRECTIONAL_SUBMOUNT, "the server of the mount is gone");
    draft.rule_out(ids::SMB_HOST_DOWN, "the file system is of type fuse");
}

#[derive(Debug, Default)]
pub(super) struct LoggedDead {
    logged: StatErrors,
    last: Option<Arc<NodeSample>>,
    /// Dead mounts, by target.
    found: BTreeMap<u64, PathBuf>,
}

impl LoggedDead {
    pub(super) fn listen(&mut self, context: &Context<'_>, said: &Said) {
        if let Some(look) = said.looked.as_ref().filter(|it| it.outcome.is(Errno::ENOTCONN)) {
            self.logged.listen(context, said, look);
        }
    }

    /// Asks about the mounts of volumes that the log names; returns the queries, and what is over.
    pub(super) fn sampled(
        &mut self,
        context: &Context<'_>,
        sample: &Arc<NodeSample>,
    ) -> (Vec<Query>, Vec<Verdict>) {
        self.last = Some(sample.clone());
        let (tracker, at) = (TrackerId::DeadMount, sample.at);
        let failing = self
            .logged
            .failing(context, sample, |volume| volume.mounts.iter().any(|it| it.is_fuse));
        let queries = failing.into_iter().filter_map(|it| {
            let (pid, _) = it.ask_in?;
            let wants = ReachFuseMounts { pid, path: it.path.clone() }.into();
            Some(Query { tracker, target_id: it.volume.target_id, path: it.path, wants })
        });
        let is_there = |target_id: u64, point: &Path| {
            sample
                .volume(target_id)
                .is_some_and(|(_, volume)| volume.mounts.iter().any(|it| it.point == point))
        };
        let gone = self.found.extract_if(.., |target_id, point| !is_there(*target_id, point));
        let over =
            gone.map(|(target_id, point)| Verdict::Cleared { target_id, path: Some(point), at });
        (queries.collect(), over.collect())
    }

    /// The finding, by the answer of the mount.
    pub(super) fn conclude(
        &mut self,
        context: &Context<'_>,
        query: &Query,
        mount: &MountPoint,
    ) -> Option<Draft> {
        let failed = self.logged.of(&query.path)?;
        let (pod, volume) = self.last.as_ref()?.volume(query.target_id)?;
        self.found.insert(query.target_id, mount.point.clone());
        let (target, seen_by) = (volume.target.clone(), pod.seen_by?);
        Some(draft_from_log(
            context,
            (query.target_id, target),
            &failed.logged.said,
            mount,
            seen_by,
        ))
    }

    pub(super) fn explains(&self, target_id: u64, path: &Path) -> bool {
        self.found.get(&target_id).is_some_and(|point| point.starts_with(path))
    }

    pub(super) fn dropped(&self) -> u64 {
        self.logged.dropped()
    }
}

#[cfg(test)]
mod tests;
