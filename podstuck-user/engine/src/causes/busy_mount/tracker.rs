//! EBUSY again and again: on the removal of a directory it means a mount point in the caller's own
//! mount namespace (`vfs_rmdir` and `vfs_unlink`, fs/namei.c); on an unmount it means that somebody
//! uses the mount.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use nix::errno::Errno;

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
/// In a burst of calls, one of so many is asked about.
const OF_A_BURST: u64 = 16;
/// Agents that look at every file of a node hold each for a moment.
const STILL: Duration = Duration::from_secs(2);

/// An object that is busy.
#[derive(Clone, Debug)]
pub(crate) struct BusyObject {
    /// The last call that failed.
    pub(crate) op: Operation,
    /// Calls, those not reported one by one included.
    pub(crate) count: u64,
    /// First failure.
    pub(crate) first: Monotonic,
    /// Attempts by their time.
    pub(crate) attempts: Attempts,
    /// Who was seen to hold it when an unmount failed.
    pub(crate) held: Option<Held>,
    /// It was asked once more after its only attempt.
    pub(crate) asked_again: bool,
    /// Somebody still held it then.
    pub(crate) confirmed: bool,
}

impl BusyObject {
    /// Whether it lasts although nobody is seen on it: who holds two attempts, half a second apart, may let go before
    /// the look.
    pub(crate) fn lasts_unseen(&self) -> bool {
        self.attempts.count() > 2 || self.op.told_by.is_some()
    }

    /// Whether it is more than a moment's: tried twice, or held for longer than a look at a volume takes.
    pub(crate) fn lasts(&self) -> bool {
        self.attempts.count() > 1 || self.confirmed || self.op.told_by.is_some()
    }
}

/// All objects that are busy.
pub(crate) struct Busy {
    objects: Bounded<(u64, PathBuf), BusyObject>,
}

impl Default for Busy {
    fn default() -> Self {
        Self { objects: Bounded::new(OBJECTS) }
    }
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
        // A burst is asked about at its beginning and now and then.
        if !new_attempt && !object.count.is_multiple_of(OF_A_BURST) {
            return None;
        }
        Some(question(context, op))
    }

    /// Whether those who made an unmount's only attempt fail are still there.
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

    /// Decides about a removal by the mounts of its caller.
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
        // Its unmount failed before, and it is known why.
        if object.held.as_ref().is_some_and(Held::explains) {
            return busy_mount::in_use::verdict(context, object, None);
        }
        mount_point::removal(context, object, &context.unmounts.on(&query.path), mounts)
    }

    /// Decides about an unmount by who holds on to the mount.
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

/// Who holds what was busy, or what is mounted there.
fn question(context: &Context<'_>, op: &Operation) -> Query {
    let (pid, namespace) = (op.actor.pid, op.mnt_ns);
    // Mount tables have no links.
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
            What::Operation(op) | What::Told(op)
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

    /// Calls on the busiest object of the target, which its finding is about.
    fn count(&self, target_id: u64) -> Option<u64> {
        self.of_target(target_id).map(|object| object.count).max()
    }

    fn dropped(&self) -> u64 {
        self.objects.dropped()
    }
}
