//! Who keeps a mount, a file or a device busy: a snapshot over all processes and mount namespaces.
//!
//! What is held is matched by the id of the mount and the device of the superblock, never by the
//! text of a path, so that it works after `umount -l` and in whatever namespace.
//!
//! The snapshot is taken in a helper process (`search`), because part of it may wait for a dead file
//! system. If it hangs, it is left behind and another one goes on behind that step. As long as the
//! first one hangs there, later snapshots leave that step out.
//!
//! Not seen: descriptors of threads that do not share their process's, files in flight through a
//! socket or registered with io_uring, and the directories of Unix sockets that are bound there.

mod descriptors;
mod detached;
mod fanotify;
mod kernel_users;
mod listed;
mod mappings;
mod own;
mod people;
mod pinned;
mod process;
mod relation;
mod search;
mod silent;
mod subject;
mod users;

use std::sync::{Mutex, PoisonError};

use super::asked::{AsWhom, Asked, in_thread};
use podstuck_confine::helper::{Failure, LIMIT, Share, ask_in_parts, is_hanging};
use podstuck_model::{
    holder::{About, How, Snapshot},
    query::NoAnswer,
};
pub(super) use search::FindHolders;
use search::{Extent, Part, Step};
pub(super) use users::users_below;

/// Steps that may hang before the rest is left alone.
const HANGS: usize = 3;

/// Helpers that hang, and where. As many as their budget allows.
static HANGING: Mutex<Vec<(u32, Step)>> = Mutex::new(Vec::new());

impl Asked for About {
    async fn answer(self, share: Share, _: &AsWhom) -> Result<Snapshot, NoAnswer> {
        in_thread(share, move || snapshot(self)).await.flatten()
    }
}

/// Takes a snapshot: for a thread that may wait. Whatever hangs, it ends after a few seconds.
///
/// # Errors
/// Fails when the helper cannot be run, or when it hangs at the very object asked about.
pub fn snapshot(about: About) -> Result<Snapshot, NoAnswer> {
    snapshots(vec![about])?.pop().ok_or_else(|| NoAnswer::Helper("it has no answer".into()))
}

/// The same of several objects at once, in their order: processes and mount tables are read once for all. Only a path
/// has to be looked up, which may hang: it is asked about alone.
///
/// # Errors
/// As [`snapshot`].
pub fn snapshots(about: Vec<About>) -> Result<Vec<Snapshot>, NoAnswer> {
    let silent = silent::find();
    let silent_unseen = silent.iter().map(|pid| {
        format!("pid {pid}, except its open files: it hangs while it executes a program")
    });
    let begun = Snapshot {
        at: podstuck_confine::clock::now(),
        subject: Err("there is no answer about it".into()),
        holders: Vec::new(),
        unseen: silent_unseen.collect(),
        looked_at: (0, 0, 0),
    };
    let mut taken = vec![begun; about.len()];
    let (mut hung, mut from) = (Vec::new(), None);
    loop {
        let question = FindHolders {
            about: about.clone(),
            silent: silent.clone(),
            hung: hung.clone(),
            from,
            avoided: avoided(),
        };
        let (step, helper) = match ask_in_parts(question, |part| take(&mut taken, part)) {
            Ok(extent) => {
                taken.iter_mut().for_each(|one| end(one, extent));
                break;
            }
            Err(Failure::Hung { at, helper }) => (at.unwrap_or(Step::Subject), helper),
            Err(Failure::Other(why)) => return Err(why),
        };
        if from.is_none() {
            from = Some(step);
            if step.is_one_of_many() {
                // It, or one of those after it.
                continue;
            }
        }
        if step == Step::Subject {
            return Err(NoAnswer::Deadline(LIMIT));
        }
        remember(helper, step);
        taken.iter_mut().for_each(|one| one.unseen.push(step.unseen()));
        hung.push(step);
        if hung.len() > HANGS {
            let rest = "everything after that: too many places do not answer";
            taken.iter_mut().for_each(|one| one.unseen.push(rest.into()));
            break;
        }
    }
    taken.iter_mut().for_each(arrange);
    Ok(taken)
}

/// Steps over which an earlier helper still hangs: the next one would, too.
fn avoided() -> Vec<Step> {
    let mut hanging = HANGING.lock().unwrap_or_else(PoisonError::into_inner);
    hanging.retain(|(helper, _)| is_hanging(*helper));
    hanging.iter().map(|(_, step)| *step).collect()
}

fn remember(helper: u32, step: Step) {
    HANGING.lock().unwrap_or_else(PoisonError::into_inner).push((helper, step));
}

/// What the helper tells goes into the snapshots.
fn take(taken: &mut [Snapshot], part: Part) {
    match part {
        Part::Subject(at, subject) => {
            if let Some(one) = taken.get_mut(at) {
                one.subject = subject;
            }
        }
        Part::Holder(at, holder) => {
            if let Some(one) = taken.get_mut(at) {
                one.holders.push(*holder);
            }
        }
        Part::Avoided(step) => {
            let what = step.unseen();
            // Each later helper reports it again.
            let new = taken.iter_mut().filter(|one| !one.unseen.contains(&what));
            new.for_each(|one| one.unseen.push(what.clone()));
        }
    }
}

fn end(taken: &mut Snapshot, extent: Extent) {
    let Extent { processes, namespaces, mounts, unread } = extent;
    if taken.subject.is_err() {
        // Nothing was looked for.
        return;
    }
    taken.looked_at = (processes, namespaces, mounts);
    if unread > 0 {
        taken.unseen.push(format!(
            "{unread} mount namespaces without a process: entering them needs CAP_SYS_ADMIN, which podstuck \
             drops before it watches"
        ));
    }
}

impl Step {
    fn unseen(self) -> String {
        let what = match self {
            Self::Pinned => "mount namespaces without a process".into(),
            Self::Subject => "the object itself".into(),
            Self::Links(pid) => {
                format!("working directory, root and program of pid {pid}, except their text")
            }
            Self::Detached(mount) => format!("mount {mount}, which is in no namespace"),
            Self::Maps(pid) => format!("mapped files of pid {pid}"),
            Self::Kernel => "swap files, loop devices, exports and overlays".into(),
        };
        format!("{what}: no answer within {LIMIT:?}")
    }
}

/// Each holder once, those first that explain an EBUSY. A program is mapped, too: the mapping of
/// nothing else is left out.
fn arrange(taken: &mut Snapshot) {
    let programs: Vec<(Option<u32>, u32)> = of(taken, How::Exe).collect();
    taken.holders.retain(|holder| {
        let program = programs.contains(&(holder.pid, holder.mount.id));
        !(holder.how == How::Map && holder.count == 1 && program)
    });
    taken.holders.sort_by_key(|holder| {
        let weight = match holder.explains_ebusy {
            Some(true) => 0,
            None => 1,
            Some(false) => 2,
        };
        (weight, holder.through, holder.pid, holder.how)
    });
    taken.holders.dedup_by_key(|h| (h.how, h.pid, h.mount.id, h.object.clone()));
}

fn of(taken: &Snapshot, how: How) -> impl Iterator<Item = (Option<u32>, u32)> {
    taken.holders.iter().filter(move |h| h.how == how).map(|h| (h.pid, h.mount.id))
}
