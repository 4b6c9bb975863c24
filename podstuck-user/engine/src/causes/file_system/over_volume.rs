//! A read-only mount over a volume, which a log tells of.

use crate::{
    causes::{busy_mount::nested, file_system::tracker::Failing},
    command::View,
    model::{
        evidence::Source,
        file_system::FileSystem,
        path::{safe, safe_path},
    },
    tracker::{Context, TrackerId},
    verdict::{Draft, times},
};

/// What a log tells of a read-only mount over a volume: the attempt failed before it came to the mount
/// point.
pub(super) fn read_only_over_volume(
    context: &Context<'_>,
    failing: &Failing,
    fs: &FileSystem,
) -> Option<Draft> {
    let op = &failing.op;
    let may_be_kubelets = nested::in_memory(&fs.fs_type) && fs.is_whole;
    let cause =
        nested::over_volume(op, &fs.point, may_be_kubelets).filter(|_| op.told_by.is_some())?;
    let mut draft = Draft::about(TrackerId::FileSystem, cause, op);
    let point = safe_path(&fs.point);
    draft.path.clone_from(&fs.point);
    draft.blocks_deletion = Some(true);
    (draft.count, draft.first) = (failing.count, failing.first);
    let (call, outcome) = (op.call.name(), op.outcome.name());
    let said = format!("{call} of {} failed with {outcome}", safe_path(&op.path));
    draft.fact(format!("{said} {}", times(failing.count)), op.source());
    let (source, fs_type) = (safe(fs.source.as_bytes()), safe(fs.fs_type.as_bytes()));
    draft.fact(
        format!("{point} is a mount point for the caller: {source} of type {fs_type}, read-only"),
        Source::mountinfo(&fs.table),
    );
    nested::tell_apart_over_volume(&mut draft);
    draft.explanation = nested::words(cause).unwrap_or_default().into();
    let view = View::of(context, op);
    let step = view.on_mount("umount", &fs.point, fs.id).so(", which is mounted over the volume");
    draft.remedy(step, nested::LEFT_RISK);
    Some(draft)
}
