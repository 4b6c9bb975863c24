//! Tracks repeated EBUSY: on a removal it means a mount point in the caller's own mount namespace (`vfs_rmdir` and
//! `vfs_unlink`, fs/namei.c); on an unmount it means that the mount is in use.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    backoff::Attempts,
    bounded::Bounded,
    causes::{
        busy_mount::{self, in_use::Held, mount_point},
        shared::{clean_up::is_clean_up, holders},
    },
    event::{Event, What},
    model::{
        call::Call,
        errno::Errno,
        holder::{About, Snapshot},
        mounts::Mounts,
        operation::Operation,
        path::JsonPath,
        time::Monotonic,
    },
    query::{NoAnswer, Query, Question, ReadMounts, Wants},
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId},
    verdict::Draft,
};

/// Objects followed at a time.
const OBJECTS: usize = 1024;
/// In a burst, one call of this number starts a query.
const OF_A_BURST: u64 = 16;
/// A use shorter than this does not count: agents that read every file of a node hold each briefly.
const STILL: Duration = Duration::from_secs(2);

/// A busy object.
#[derive(Clone, Debug)]
pub(crate) struct BusyObject {
    /// The last call that failed.
    pub(crate) op: Operation,
    /// Failed calls, including those that were not reported one by one.
    pub(crate) count: u64,
    /// The first failure.
    pub(crate) first: Monotonic,
    /// Attempts, by time.
    pub(crate) attempts: Attempts,
    /// Holders that were seen when an unmount failed.
    pub(crate) held: Option<Held>,
    /// Whether the holders were searched once more after the only attempt.
    pub(crate) asked_again: bool,
    /// Whether that search found a holder.
    pub(crate) confirmed: bool,
}

impl BusyObject {
    /// Whether it lasts although no holder was seen: a process that blocks two attempts, half a second apart, may end
    /// its use before the scan.
    pub(crate) fn lasts_unseen(&self) -> bool {
        self.attempts.count() > 2 || self.op.logged_in.is_some()
    }

    /// Whether it is not transient: it failed twice, or is held for longer than a process takes to read a volume.
    pub(crate) fn lasts(&self) -> bool {
        self.attempts.count() > 1 || self.confirmed || self.op.logged_in.is_some()
    }
}

/// All busy objects.
#[derive(Default)]
pub(crate) struct Busy {
    objects: Bounded<(u64, PathBuf), BusyObject, OBJECTS>,
}

impl Busy {
    fn observe(&mut self, context: &Context<'_>, op: &Operation) -> Option<Query> {
        if !op.outcome.is(Errno::EBUSY) || !is_clean_up(op) {
            return None;
        }
        let key = (op.target_id, op.path.clone());
        let object = self.objects.or_insert_with(key, || BusyObject {
            op: op.clone(),
            count: 0,
            first: op.end,
            attempts: Attempts::default(),
            held: None,
            asked_again: false,
            confirmed: false,
        });
        object.op = op.clone();
        object.count += 1 + u64::from(op.suppressed);
        let new_attempt = object.attempts.note(op.end);
        // In a burst, the first call starts a query, and later ones at intervals.
        if !new_attempt && !object.count.is_multiple_of(OF_A_BURST) {
            return None;
        }
        Some(question(context, op))
    }

    /// Asks whether the holders that made the only attempt of an unmount fail are still there.
    fn ask_again(&mut self, context: &Context<'_>, now: Monotonic) -> Vec<Query> {
        let mut queries = Vec::new();
        for (_, object) in self.objects.iter_mut() {
            let waits = object.op.call == Call::Umount2 && !object.lasts() && !object.asked_again;
            let held = object.held.as_ref().is_some_and(Held::explains);
            if waits && held && now.since(object.op.end) >= STILL {
                object.asked_again = true;
                queries.push(question(context, &object.op));
            }
        }
        queries
    }

    /// The finding about a removal, by the caller's mounts.
    fn removal(
        &self,
        context: &Context<'_>,
        query: &Query,
        mounts: Option<&Mounts>,
    ) -> Option<Draft> {
        let object = self.objects.get(&(query.target_id, query.path.clone()))?;
        if object.op.call == Call::Umount2 {
            return None;
        }
        // An earlier unmount failed for a known reason.
        if object.held.as_ref().is_some_and(Held::explains) {
            return busy_mount::in_use::verdict(context, object, None);
        }
        mount_point::removal(context, object, &context.unmounts.on(&query.path), mounts)
    }

    /// The finding about an unmount, by the mount's holders.
    fn unmount(
        &mut self,
        context: &Context<'_>,
        query: &Query,
        taken: &Result<Snapshot, NoAnswer>,
    ) -> Option<Draft> {
        let object = self.objects.get_mut(&(query.target_id, query.path.clone()))?;
        if let Ok(taken) = taken {
            let is_late = taken.at.since(object.op.end) >= STILL;
            object.confirmed |= is_late && holders::culprits(taken).next().is_some();
            Held::renew(&mut object.held, taken.clone());
        }
        busy_mount::in_use::verdict(context, object, taken.as_ref().err())
    }

    fn of_target(&self, target_id: u64) -> impl Iterator<Item = &BusyObject> {
        let objects = self.objects.iter().filter(move |((target, _), _)| *target == target_id);
        objects.map(|(_, object)| object)
    }
}

/// The query for the holders of a busy mount, or for the mounts at a busy path.
fn question(context: &Context<'_>, op: &Operation) -> Query {
    let (pid, namespace) = (op.actor.pid, op.mnt_ns);
    // Mount tables have paths with links resolved.
    let link = context.sample.and_then(|sample| sample.link_to(&op.path));
    let path = link.map_or_else(|| op.path.clone(), |link| link.real(&op.path));
    let wants = if op.call == Call::Umount2 {
        Wants::Holders(About::Mount { pid, namespace, path: JsonPath(path) })
    } else {
        ReadMounts { pid, namespace, path, mount_id: 0 }.into()
    };
    Query { tracker: TrackerId::Busy, target_id: op.target_id, path: op.path.clone(), wants }
}

impl Tracker for Busy {
    fn id(&self) -> TrackerId {
        TrackerId::Busy
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Operation(op) | What::Logged(op)
                if !context.is_explained(self.id(), &Subject::of(op)) =>
            {
                steps.ask(self.observe(context, op));
            }
            What::Sample(sample) => steps.ask(self.ask_again(context, sample.at)),
            What::Answer { query, answer } => {
                if let Some((_, mounts)) = ReadMounts::answered(query, answer) {
                    steps.found(self.removal(context, query, mounts.as_ref()));
                }
                if let Some((_, taken)) = About::answered(query, answer) {
                    steps.found(self.unmount(context, query, taken));
                }
            }
            _ => {}
        }
    }

    fn explains(&self, subject: &Subject<'_>, _: Claim) -> bool {
        self.of_target(subject.target_id).next().is_some()
    }

    fn forget(&mut self, target_id: u64, path: Option<&Path>, _: Monotonic, _: &mut Steps) {
        self.objects.retain(|(target, object), _| {
            *target != target_id || path.is_some_and(|path| path != object)
        });
    }

    /// Calls on the target's object with the most calls, which the finding is about.
    fn count(&self, target_id: u64) -> Option<u64> {
        self.of_target(target_id).map(|object| object.count).max()
    }

    fn dropped(&self) -> u64 {
        self.objects.dropped()
    }
}
