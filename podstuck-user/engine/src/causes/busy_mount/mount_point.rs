//! Findings about EBUSY on a removal, by the caller's mounts and the unmounts that were tried.

use std::{path::Path, sync::Arc};

use crate::{
    cause::Cause,
    causes::{
        busy_mount::{self, causes::BUSY_UNEXPLAINED, tracker::BusyObject},
        csi_volume::{left_mounted, linked_root},
        shared::moments::began,
    },
    command::View,
    ids,
    model::{
        csi::{DriverProcess, Reach},
        evidence::Source,
        file_system::is_fuse,
        finding::Severity,
        identity::{SUBPATH, TargetKind},
        mounts::{Mount, Mounts},
        operation::Operation,
        path::safe_path,
    },
    tracker::{Context, TrackerId},
    unmounts::Tried,
    verdict::{Draft, times},
};

/// kubelet tries once more after half a second: an EBUSY that was not repeated may be over.
const ATTEMPTS_NEEDED: u64 = 2;
/// After this number of attempts without an unmount, no component unmounts: three pauses have passed.
const ATTEMPTS_IN_SILENCE: u64 = 4;
/// A shim tries 50 times at 50 ms before it gives up once.
pub(crate) const SHIM_BURST: u64 = 10;

/// The finding about a directory or file that could not be removed.
pub(crate) fn removal(
    context: &Context<'_>,
    object: &BusyObject,
    tried: &Tried,
    mounts: Option<&Mounts>,
) -> Option<Draft> {
    let op = &object.op;
    // Docker's volume removal makes one attempt for each command of its user.
    if object.attempts.count() < ATTEMPTS_NEEDED && op.target.kind != TargetKind::DockerVolume {
        return None;
    }
    let link = context.sample.and_then(|sample| sample.link_to(&op.path));
    let point = link.map_or_else(|| op.path.clone(), |link| link.real(&op.path));
    let path = safe_path(&point).into_owned();
    let Some(mounts) = mounts else {
        let mut draft = base(context, &BUSY_UNEXPLAINED, object);
        draft.fact(
            "the caller's mounts could not be read, or its namespace is gone",
            Source::proc("/proc"),
        );
        draft.explanation =
            "The path is busy, and whether it is a mount point is not known.".into();
        return Some(draft);
    };
    let here: Vec<_> = mounts.at(&point).collect();
    let Some(top) = here.last() else {
        let mut draft = base(context, &BUSY_UNEXPLAINED, object);
        draft.fact(
            format!("{path} is not a mount point for the caller now"),
            Source::mountinfo(&mounts.source),
        );
        draft.explanation = "The kernel returned EBUSY although the path is not a mount point. A \
            short-lived mount, or a file that NFS keeps for an open file descriptor (`.nfsXXXX`), \
            would explain it."
            .into();
        return Some(draft);
    };
    // Whether the server of a FUSE mount is gone is asked at the same attempt, and takes longer to answer.
    let is_asked = is_fuse(&top.fs_type) && op.logged_in.is_none();
    if is_asked && object.attempts.count() == ATTEMPTS_NEEDED {
        return None;
    }
    let driver = context.driver_of(op.target_id);
    // The path and the volume's directory may be known by different names: through the link, and resolved.
    let mut real = op.clone();
    if let Some(link) = link {
        real.path.clone_from(&point);
        Arc::make_mut(&mut real.target).root = link.real(&op.target.root);
    }
    let known = cause(&real, top, here.len(), tried, driver);
    let own = busy_mount::nested::in_memory(&top.fs_type) && top.root == Path::new("/");
    let over = || busy_mount::nested::over_volume(&real, &point, own);
    let over = if known.is_admission() { over() } else { None };
    let known = linked_root::in_place_of(over.unwrap_or(known), link);
    let mut draft = base(context, known, object);
    draft.fact(
        format!("{path} is a mount point for the caller: {}", top.describe()),
        Source::mountinfo(&mounts.source),
    );
    if here.len() > 1 {
        draft.fact(
            format!("{} mounts are stacked on it", here.len()),
            Source::mountinfo(&mounts.source),
        );
    }
    tell_attempts(context, &mut draft, tried);
    if let Some(driver) = driver {
        left_mounted::tell_reach(&mut draft, driver);
    }
    tell_apart(context, &mut draft, object, top, driver.map(|driver| driver.reach));
    draft.explanation = explanation(draft.cause, object).into();
    let view = View::of(context, op);
    let umount = view.on_mount("umount", &point, Some(top.id)).so(", which is still mounted");
    draft.remedy(
        umount,
        "low once all containers of the pod have ended and no process uses the mount; the data on \
         it stays intact. Never run `rm -rf` below it: that deletes the data behind the mount",
    );
    linked_root::tell_apart(&mut draft, &op.target, here.len(), link);
    Some(draft)
}

/// The draft that all findings about a busy object start from.
pub(crate) fn base(context: &Context<'_>, cause: &'static Cause, object: &BusyObject) -> Draft {
    let op = &object.op;
    let mut draft = Draft::about(TrackerId::Busy, cause, op);
    draft.severity = Severity::Warning;
    draft.count = object.count;
    draft.first = object.first;
    draft.blocks_deletion = match op.target.kind {
        TargetKind::PodVolume | TargetKind::PodDirectory | TargetKind::ContainerBundle => {
            Some(true)
        }
        // Containers and their layers are collected in the background since Kubernetes 1.27.
        TargetKind::ContainerLayer | TargetKind::DockerVolume | TargetKind::Other => None,
    };
    let attempts = object.attempts.count();
    draft.fact_since(
        format!(
            "{} failed with EBUSY {} in {attempts} {}",
            op.call.name(),
            times(object.count),
            if attempts == 1 { "attempt" } else { "attempts" }
        ),
        object.op.source(),
        object.first,
    );
    if let Some(gap) = object.attempts.next_gap() {
        let gaps: Vec<String> =
            object.attempts.gaps().iter().map(|g| format!("{:.1}", g.as_secs_f64())).collect();
        let due = gap.saturating_sub(context.now.since(object.op.end)).as_secs_f64();
        draft.fact(
            format!(
                "the pauses ({} s) are kubelet's back-off; next attempt in about {due:.0} s",
                gaps.join(", ")
            ),
            Source::Inference,
        );
    }
    draft
}

/// A finding without a cause: it lists what could not be determined.
pub(crate) fn unexplained(context: &Context<'_>, object: &BusyObject) -> Draft {
    base(context, &BUSY_UNEXPLAINED, object)
}

/// The cause of [`unexplained`].
pub(crate) fn unexplained_cause() -> &'static Cause {
    &BUSY_UNEXPLAINED
}

/// The cause of a mount point that a component tries to remove instead of unmounting it.
pub(super) fn cause(
    op: &Operation,
    top: &Mount,
    stacked: usize,
    tried: &Tried,
    driver: Option<&DriverProcess>,
) -> &'static Cause {
    let Operation { target, path, .. } = op;
    let unmounted = tried.succeeded_in(op.mnt_ns);
    let plugin = target.volume.as_ref().map_or("", |v| v.plugin.as_str());
    let below_root = *path != target.root;
    match plugin {
        // A driver's own mount sits at `mount` below the volume's directory, or at its root.
        "kubernetes.io/csi" => {
            let own = path.parent() == Some(&target.root) || !below_root;
            match (own, unmounted, tried.busy > 0) {
                (false, ..) => busy_mount::nested::cause(op, top),
                (_, None, true) if stacked == 1 => busy_mount::in_use::by_process(),
                (_, None, false)
                    if stacked == 1 && driver.is_some_and(DriverProcess::is_cut_off) =>
                {
                    left_mounted::cause(stacked, Some(false))
                }
                _ => left_mounted::cause(stacked, unmounted),
            }
        }
        _ if stacked > 1 || (!below_root && unmounted == Some(true)) => {
            left_mounted::cause(stacked, unmounted)
        }
        _ if below_root || plugin == SUBPATH => busy_mount::nested::cause(op, top),
        _ => &BUSY_UNEXPLAINED,
    }
}

fn tell_attempts(context: &Context<'_>, draft: &mut Draft, tried: &Tried) {
    let Some((_, outcome, who)) = tried.last.as_ref().filter(|_| tried.any()) else {
        draft.fact_since(
            format!("no process unmounted it since {}", began(context)),
            Source::Probe,
            context.begun,
        );
        return;
    };
    draft.fact(
        format!(
            "umount2 on it: {} succeeded, {} failed with EBUSY, {} failed with another error; the \
             last one: {} by {who}",
            tried.ok,
            tried.busy,
            tried.other,
            outcome.name()
        ),
        Source::Probe,
    );
}

/// Rules out the look-alikes.
fn tell_apart(
    context: &Context<'_>,
    draft: &mut Draft,
    object: &BusyObject,
    top: &Mount,
    reach: Option<Reach>,
) {
    let op = &object.op;
    let since = Some(context.begun);
    // Between two attempts kubelet calls the driver again, so each further attempt makes it more certain that no process
    // unmounts the volume.
    if object.attempts.count() >= ATTEMPTS_IN_SILENCE {
        let fact = "umount2 would have failed with EBUSY; no process called it";
        draft.rule_out_since(ids::VOLUME_HELD_BY_HOST_PROCESS, fact, since);
    }
    left_mounted::tell_apart(draft, since.filter(|_| op.logged_in.is_none()), reach);
    busy_mount::in_use::tell_apart_without_user(draft);
    busy_mount::nested::tell_apart(draft, op, top);
}

fn explanation(cause: &Cause, object: &BusyObject) -> &'static str {
    let plugin = object.op.target.volume.as_ref().map_or("", |v| v.plugin.as_str());
    let words = left_mounted::words(cause).or_else(|| busy_mount::nested::words(cause));
    words.or_else(|| busy_mount::in_use::words_without_user(cause)).unwrap_or(
        if plugin.is_empty() {
            "The path is a mount point and must be unmounted first."
        } else {
            "The volume's directory is still a mount point; no process unmounts it."
        },
    )
}
