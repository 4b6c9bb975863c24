//! FUSE mounts whose server is gone. Every look at one fails with ENOTCONN, and removals show it
//! seldom: Go looks before it deletes, gives up there, and what the probes see is that the directory
//! above is not empty, or that the mount point is busy.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::errno::Errno;

use super::{
    case::{Case, Needs, Verdict},
    command::View,
    draft::{Draft, Family, PROBE},
    is_clean_up,
};
use crate::model::{
    call::Call,
    finding::Severity,
    hung::MountPoint,
    operation::Operation,
    path::{safe, safe_path},
    time::Monotonic,
};

/// Between two looks at the mounts of one object.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Objects remembered; all are forgotten when there are more.
const REMEMBERED: usize = 1024;

/// A mount, and the errno of a look at it.
pub(super) type Looked = (MountPoint, i32);

/// An object whose removal failed as it does above a dead mount.
#[derive(Debug)]
struct Suspect {
    op: Operation,
    failures: u64,
    first: Monotonic,
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
#[derive(Debug, Default)]
pub(super) struct Dead {
    suspects: HashMap<(u64, PathBuf), Suspect>,
    /// Dead mounts, by target.
    found: HashMap<u64, Found>,
}

impl Dead {
    /// Takes an operation.
    pub(super) fn observe(&mut self, op: &Operation) -> Option<Case> {
        let removes = op.call == Call::UnlinkatDir || op.call == Call::Rmdir;
        let refused = op.outcome.is(Errno::ENOTCONN) || (removes && op.outcome.is(Errno::EBUSY));
        let stays = removes && op.outcome.is(Errno::ENOTEMPTY);
        if !(refused || stays) || !is_clean_up(op) {
            return None;
        }
        if self.suspects.len() >= REMEMBERED {
            self.suspects.clear();
        }
        let suspect = self.suspects.entry((op.target_id, op.path.clone())).or_insert_with(|| {
            Suspect { op: op.clone(), failures: 0, first: op.end, looked: None }
        });
        suspect.failures += 1;
        suspect.op = op.clone();
        // Every removal of a tree first tries whether it is empty: that is no failure yet.
        let too_early = !refused && suspect.failures < 2;
        if too_early || suspect.looked.is_some_and(|then| op.end.since(then) < LOOK_EVERY) {
            return None;
        }
        suspect.looked = Some(op.end);
        Some(Case {
            family: Family::Hung,
            target_id: op.target_id,
            path: op.path.clone(),
            needs: Needs::FuseMounts { pid: op.actor.pid, path: op.path.clone() },
        })
    }

    /// Decides by the answers of the mounts.
    pub(super) fn conclude(&mut self, case: &Case, looked: &[Looked]) -> Option<Draft> {
        let suspect = self.suspects.get(&(case.target_id, case.path.clone()))?;
        let dead = |(_, errno): &&Looked| *errno == Errno::ENOTCONN as i32;
        let (mount, _) = looked.iter().find(dead)?;
        let object = case.path.clone();
        let found = Found { point: mount.point.clone(), object };
        let found = self.found.entry(case.target_id).or_insert(found);
        // The directories above fail, too, because of this.
        (found.object == case.path).then(|| draft(suspect, mount))
    }

    /// Whether a dead file system was found in a target.
    pub(super) fn is_found(&self, target_id: u64) -> bool {
        self.found.contains_key(&target_id)
    }

    /// Whether a failure on this path is because of a dead mount there or below.
    pub(super) fn explains(&self, target_id: u64, path: &Path) -> bool {
        self.found.get(&target_id).is_some_and(|found| found.point.starts_with(path))
    }

    /// A target is gone, or an object of it.
    pub(super) fn forget(&mut self, target_id: u64, path: Option<&Path>) -> Option<Verdict> {
        let concerns = |of: &Path| path.is_none_or(|path| of.starts_with(path));
        self.suspects.retain(|(id, of), _| *id != target_id || !concerns(of));
        let point = &self.found.get(&target_id).filter(|found| concerns(&found.point))?.point;
        let path = Some(point.clone());
        self.found.remove(&target_id);
        Some(Verdict::Cleared { target_id, path, at: Monotonic::now() })
    }
}

fn draft(suspect: &Suspect, mount: &MountPoint) -> Draft {
    let op = &suspect.op;
    let mut draft = Draft::about(Family::Hung, "fuse-daemon-dead", op);
    let point = safe_path(&mount.point);
    draft.path = mount.point.clone();
    draft.severity = Severity::Warning;
    draft.confidence = 0.95;
    draft.blocks_deletion = op.target.pod.is_some().then_some(true);
    (draft.count, draft.first) = (suspect.failures, suspect.first);
    let (call, outcome) = (op.call.name(), op.outcome.name());
    draft.fact(format!("{call} of {} failed with {outcome}", safe_path(&op.path)), PROBE);
    draft.fact(
        format!(
            "{} of type {} is mounted on {point}",
            safe(mount.source.as_bytes()),
            safe(mount.fs_type.as_bytes())
        ),
        format!("/proc/{}/mountinfo", op.actor.pid),
    );
    draft.fact(format!("a look at {point} fails with ENOTCONN"), "statx");
    draft.explanation =
        "The process that served this file system (FUSE) has ended, and its mount is \
        still there. Whoever looks at it gets ENOTCONN. Removals look before they delete, so they \
        give up there, and the directories above stay. Nothing can be lost any more by unmounting."
            .into();
    draft.remedy(
        View::of(op).on_mount("umount", &mount.point),
        "low: nothing behind the mount can be reached; containers that still use it must be \
         started anew. The owner's next attempt then deletes the directory",
    );
    draft.ruled_out.push(
        "fuse-daemon-hung: the look was answered at once, with an error, by the kernel".into(),
    );
    draft.ruled_out.push(
        "emptydir-bidirectional-submount: the mount is not merely left behind, its server is gone"
            .into(),
    );
    draft
}

#[cfg(test)]
mod tests {
    use super::{super::sample, *};

    fn mount(errno: Errno) -> Looked {
        let point = Path::new(sample::VOLUME).join("m");
        (MountPoint { point, fs_type: "fuse.s3".into(), ..MountPoint::default() }, errno as i32)
    }

    #[test]
    fn a_directory_that_stays_is_looked_at_only_the_second_time() {
        let mut dead = Dead::default();
        let failed = |errno, second| sample::failed(Call::UnlinkatDir, errno, "", second);
        assert!(dead.observe(&failed(Errno::ENOTEMPTY, 1.0)).is_none(), "every removal does that");
        let case = dead.observe(&failed(Errno::ENOTEMPTY, 1.1)).unwrap();
        assert!(dead.observe(&failed(Errno::ENOTEMPTY, 1.2)).is_none(), "too soon");
        assert!(dead.conclude(&case, &[mount(Errno::EACCES)]).is_none());
        let draft = dead.conclude(&case, &[mount(Errno::ENOTCONN)]).unwrap();
        assert_eq!(
            (draft.id, draft.path),
            ("fuse-daemon-dead", Path::new(sample::VOLUME).join("m"))
        );
        assert!(dead.explains(7, Path::new(sample::VOLUME)) && !dead.explains(8, Path::new("/")));
    }

    #[test]
    fn it_is_over_when_the_mount_point_is_gone() {
        let mut dead = Dead::default();
        let op = sample::failed(Call::UnlinkatDir, Errno::EBUSY, "m", 1.0);
        let case = dead.observe(&op).unwrap();
        dead.conclude(&case, &[mount(Errno::ENOTCONN)]).unwrap();
        assert!(dead.forget(7, Some(Path::new("/elsewhere"))).is_none());
        assert!(dead.forget(7, Some(&op.path)).is_some() && !dead.explains(7, &op.path));
    }
}
