//! A FUSE mount whose server is gone.

use std::sync::Arc;

use crate::{
    cause::{Cause, Kind, TriedWith, like, log, way},
    causes::dead_fuse::tracker::Suspect,
    command::View,
    ids,
    model::{
        diagnosis::Stage,
        evidence::Source,
        finding::Severity,
        hung::MountPoint,
        identity::Target,
        path::{safe, safe_path},
        said::Said,
    },
    tracker::{Context, TrackerId},
    verdict::{Draft, times},
};

/// A FUSE mount without a server.
pub(crate) static FUSE_DAEMON_DEAD: Cause = Cause {
    id: ids::FUSE_DAEMON_DEAD,
    title: "a FUSE server is gone, its mount is not; also where only the directory above says that \
        it is not empty",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The process that served a FUSE file system has ended, and its mount is still there. \
        Whoever looks at it gets ENOTCONN. A removal looks before it deletes, so it gives up there, \
        and the directories above stay.",
    confirmed_by: &[
        "a file system of type fuse is mounted on or below the object",
        "a look at its mount point fails with ENOTCONN",
    ],
    log: log("kubelet", "transport endpoint is not connected"),
    look_alikes: &[
        like(ids::FUSE_DAEMON_HUNG, "the look is answered at once, with an error, by the kernel"),
        like(ids::EMPTYDIR_BIDIRECTIONAL_SUBMOUNT, "the server of the mount is gone"),
        like(ids::SMB_HOST_DOWN, "the file system is of type fuse"),
    ],
    ways_out: &[way(
        "`umount` it",
        "low: nothing behind the mount can be reached; containers that use it must be started anew",
    )],
    field: &["fluid#4002", "kubernetes#96361", "mountpoint-s3-csi-driver#576"],
    tried: &[TriedWith::Lab, TriedWith::RealKubelet],
    source: &["linux fs/fuse/dev.c, fuse_abort_conn"],
};

/// For whoever finds it in another way.
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

/// The same where only kubelet's log tells that a removal has met it.
pub(crate) fn told(
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
    let said = format!("{} said {}: {text}", said.component.name(), times(said.times));
    draft.fact_since(said, source, draft.first);
    tell(&mut draft, mount, View::in_namespace(context, namespace, pid), pid);
    draft
}

/// What a look shows, and what follows.
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
    draft.fact(format!("a look at {point} fails with ENOTCONN"), Source::Look("statx"));
    draft.explanation =
        "The process that served this file system (FUSE) has ended, and its mount is \
        still there. Whoever looks at it gets ENOTCONN. Removals look before they delete, so they \
        give up there, and the directories above stay. Nothing can be lost any more by unmounting."
            .into();
    draft.remedy(
        view.on_mount("umount", &mount.point, mount.id).so(", whose FUSE server has ended"),
        "low: nothing behind the mount can be reached; containers that still use it must be \
         started anew. The owner's next attempt then deletes the directory",
    );
    tell_apart(draft);
}

/// What the look's answer tells it from.
pub(crate) fn tell_apart(draft: &mut Draft) {
    draft.rule_out(
        ids::FUSE_DAEMON_HUNG,
        "the look was answered at once, with an error, by the kernel",
    );
    draft.rule_out(
        ids::EMPTYDIR_BIDIRECTIONAL_SUBMOUNT,
        "the mount is not merely left behind, its server is gone",
    );
    draft.rule_out(ids::SMB_HOST_DOWN, "the file system is of type fuse");
}
