//! Errors that are about the file system, and not about the object: read-only, full, broken, gone.
//! The mount table and the device show which.

use std::path::Path;

use crate::{
    backoff::Attempts,
    bounded::Bounded,
    causes::{
        file_system::{looked::Looked, verdict},
        shared::clean_up::is_clean_up,
        shared::kernel_says::KernelSays,
    },
    event::{Event, What},
    model::{
        call::Call, errno::Errno, file_system::FileSystem, operation::Operation, time::Monotonic,
    },
    query::{Query, Question, ReadFileSystem, ReadSubvolume},
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId},
};

/// Pods and other targets followed at a time.
const FOLLOWED: usize = 1024;
/// Failed attempts that a finding needs: a single failure may be transient.
const ATTEMPTS: u64 = 2;

/// The errors, by precedence. Other trackers explain EBUSY, EPERM and ENOTEMPTY. ENOTCONN counts for SMB only: another
/// tracker explains it for FUSE.
const TELLING: [Errno; 15] = [
    Errno::EROFS,
    Errno::EIO,
    Errno::EUCLEAN,
    Errno::ENODEV,
    Errno::ENXIO,
    Errno::ESHUTDOWN,
    Errno::ESTALE,
    Errno::EHOSTDOWN,
    Errno::ETIMEDOUT,
    Errno::ENOSPC,
    Errno::EDQUOT,
    Errno::EACCES,
    Errno::ENAMETOOLONG,
    Errno::EOVERFLOW,
    Errno::ENOTCONN,
];

/// A target with a call that failed.
pub(crate) struct Failing {
    /// The last failed call.
    pub(crate) op: Operation,
    /// Number of failed calls, including those that were not reported one by one.
    pub(crate) count: u64,
    /// First failure.
    pub(crate) first: Monotonic,
    /// The attempts, by the calls' times.
    pub(crate) attempts: Attempts,
    /// Its file system, while its subvolume is asked for.
    found: Option<FileSystem>,
}

/// All failing targets, one for each pod: a file system that fails does so everywhere in the pod.
#[derive(Default)]
pub(crate) struct FileSystemErrors {
    failing: Bounded<String, Failing, FOLLOWED>,
    looked: Looked,
    kernel: KernelSays,
}

impl FileSystemErrors {
    fn observe(&mut self, op: &Operation) -> Option<Query> {
        let errno = op.outcome.errno().filter(|errno| TELLING.contains(errno))?;
        if !is_clean_up(op) {
            return None;
        }
        let key = key(op);
        let known = self.failing.get(&key);
        // A pod has one finding, about the error that says most: read-only comes first, because the
        // kernel checks it first.
        if known.is_some_and(|known| rank(known.op.outcome.errno()) < rank(Some(errno))) {
            return None;
        }
        if known.is_some_and(|known| !known.op.outcome.is(errno)) {
            self.failing.remove(&key);
        }
        let failing = self.failing.or_insert_with(key, || Failing {
            op: op.clone(),
            count: 0,
            first: op.end,
            attempts: Attempts::default(),
            found: None,
        });
        failing.count += 1 + u64::from(op.suppressed);
        let new = failing.attempts.note(op.end);
        if new || failing.op.target_id == op.target_id {
            let (target_id, target) = (failing.op.target_id, failing.op.target.clone());
            failing.op = Operation { target_id, target, ..op.clone() };
        }
        // A removed object may be a mount point itself, so its parent counts; an unmounted one is a mount point.
        let path = match op.call {
            Call::Umount2 => op.path.clone(),
            _ => op.path.parent().unwrap_or(&op.path).to_owned(),
        };
        let again = new && failing.attempts.count() >= ATTEMPTS;
        let target_id = failing.op.target_id;
        let wants = ReadFileSystem { pid: op.actor.pid, namespace: op.mnt_ns, path }.into();
        let query = Query { tracker: self.id(), target_id, path: op.path.clone(), wants };
        again.then_some(query)
    }

    fn of_target(&self, target_id: u64) -> Option<&Failing> {
        self.failing.iter().map(|(_, known)| known).find(|known| known.op.target_id == target_id)
    }

    /// Takes an answer about the file system, and asks on where it does not explain the error.
    fn answered(
        &mut self,
        context: &Context<'_>,
        query: &Query,
        asked: &ReadFileSystem,
        found: Option<&FileSystem>,
        steps: &mut Steps,
    ) {
        let (tracker, target_id) = (self.id(), query.target_id);
        let mut all = self.failing.iter_mut().map(|(_, known)| known);
        let Some(failing) = all.find(|known| known.op.target_id == target_id) else { return };
        let errno = failing.op.outcome.errno();
        if let Some(fs) = found.filter(|fs| errno.is_some_and(|it| is_hidden(it, fs))) {
            failing.found = Some(fs.clone());
            let wants = ReadSubvolume { pid: asked.pid, directory: asked.path.clone() }.into();
            steps.ask([Query { tracker, target_id, path: query.path.clone(), wants }]);
            return;
        }
        let draft = verdict::draft(context, failing, (found, None), &self.kernel);
        steps.found(draft);
    }
}

impl Tracker for FileSystemErrors {
    fn id(&self) -> TrackerId {
        TrackerId::FileSystem
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Operation(op) | What::Logged(op)
                if !context.is_explained(self.id(), &Subject::of(op)) =>
            {
                steps.ask(self.observe(op));
            }
            What::Answer { query, answer } => {
                if let Some((_, subvolume)) = ReadSubvolume::answered(query, answer) {
                    let Some(failing) = self.of_target(query.target_id) else { return };
                    let subvolume = subvolume.as_ref().ok().and_then(Option::as_ref);
                    let found = (failing.found.as_ref(), subvolume);
                    steps.found(verdict::draft(context, failing, found, &self.kernel));
                    return;
                }
                let Some((asked, found)) = ReadFileSystem::answered(query, answer) else { return };
                if let Some(fs) = found
                    && let Some(draft) = self.looked.conclude(context, query, fs, &self.kernel)
                {
                    steps.found([draft]);
                } else {
                    self.answered(context, query, asked, found.as_ref(), steps);
                }
            }
            What::Said(said) => {
                self.kernel.listen(said);
                self.looked.listen(context, said);
            }
            What::Sample(sample) => self.looked.sampled(context, sample, steps),
            _ => {}
        }
    }

    fn explains(&self, subject: &Subject<'_>, _: Claim) -> bool {
        self.looked.explains(subject.target_id)
    }

    fn forget(&mut self, target_id: u64, path: Option<&Path>, _: Monotonic, _: &mut Steps) {
        self.failing.retain(|_, known| {
            known.op.target_id != target_id || path.is_some_and(|path| path != known.op.path)
        });
    }

    fn count(&self, target_id: u64) -> Option<u64> {
        self.of_target(target_id).map(|known| known.count)
    }

    fn dropped(&self) -> u64 {
        self.failing.dropped() + self.looked.dropped()
    }
}

/// Whether mountinfo may hide the reason: of a subvolume's property it shows nothing.
fn is_hidden(errno: Errno, fs: &FileSystem) -> bool {
    errno == Errno::EROFS && fs.fs_type == "btrfs" && !fs.read_only && !fs.mount_read_only
}

fn key(op: &Operation) -> String {
    let uid = op.target.pod.as_ref().map(|pod| pod.uid.clone());
    uid.unwrap_or_else(|| format!("{:x}", op.target_id))
}

fn rank(errno: Option<Errno>) -> usize {
    let position = errno.and_then(|errno| TELLING.iter().position(|known| *known == errno));
    position.unwrap_or(TELLING.len())
}
