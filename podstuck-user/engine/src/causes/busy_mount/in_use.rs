//! Findings about an unmount that fails with EBUSY, by the holders of the mount.

use crate::{
    cause::Cause,
    causes::{
        busy_mount::{
            self,
            causes::{HELD_BY_AGENT, HELD_BY_PROCESS, SHIM_ROOTFS_BUSY},
            mount_point::{self, SHIM_BURST, base},
            tracker::BusyObject,
        },
        permission::verdict,
        shared::holders::{
            NAMED, culprits, describe, free, not_listed, tell, tell_unseen, who_else,
        },
    },
    command::View,
    ids,
    model::{
        evidence::Source,
        holder::{Holder, How, Snapshot, Through},
        identity::{Component, TargetKind},
    },
    query::NoAnswer,
    tracker::Context,
    verdict::Draft,
};

/// The holders that were seen on a mount.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// The last snapshot that found a holder, else the last one.
    pub(crate) taken: Snapshot,
    /// Whether it was taken because of the last attempt.
    pub(crate) is_fresh: bool,
}

impl Held {
    /// Takes a new snapshot. One without holders does not replace one with holders.
    pub(crate) fn renew(held: &mut Option<Self>, taken: Snapshot) {
        let found = culprits(&taken).next().is_some();
        match held {
            Some(before) if !found && culprits(&before.taken).next().is_some() => {
                before.is_fresh = false;
            }
            _ => *held = Some(Self { taken, is_fresh: true }),
        }
    }

    /// Whether a holder was ever found.
    pub(crate) fn explains(&self) -> bool {
        culprits(&self.taken).next().is_some()
    }
}

/// The finding about a refused unmount; `error` says why there is no snapshot of this attempt.
pub(crate) fn verdict(
    context: &Context<'_>,
    object: &BusyObject,
    error: Option<&NoAnswer>,
) -> Option<Draft> {
    let bundle = object.op.target.kind == TargetKind::ContainerBundle;
    let lasts = if bundle { object.count >= SHIM_BURST } else { object.lasts() };
    if !lasts {
        return None;
    }
    let Some(held) = &object.held else {
        let mut draft = mount_point::unexplained(context, object);
        let why = error.map(ToString::to_string).unwrap_or_default();
        not_listed(&mut draft, "it", &why);
        draft.explanation = unexplained();
        return Some(draft);
    };
    if held.taken.subject.is_err() && !bundle {
        // It is no longer a mount point: it was unmounted.
        return None;
    }
    let found: Vec<&Holder> = culprits(&held.taken).collect();
    let is_seen = !found.is_empty() && (held.is_fresh || object.confirmed);
    if !is_seen && !bundle && !object.lasts_unseen() {
        return None;
    }
    let (nested, users): (Vec<&Holder>, Vec<&Holder>) =
        found.iter().partition(|holder| holder.how == How::NestedMount);
    let mut draft = base(context, cause(bundle, &nested, &users), object);
    tell_time(&mut draft, object, held);
    tell(&mut draft, &found);
    let kubelets: Vec<&Holder> =
        held.taken.culprits().filter(|h| h.component == Some(Component::Kubelet)).collect();
    for holder in kubelets.iter().take(NAMED) {
        draft.fact(describe(holder), Source::proc(&holder.source));
    }
    if found.is_empty() {
        let fact = if kubelets.is_empty() {
            "no process was found that uses it, and nothing is mounted on it"
        } else {
            "no process but kubelet was found that uses it, and nothing is mounted on it"
        };
        draft.fact(fact, Source::proc("/proc"));
    }
    tell_unseen(&mut draft, &held.taken);
    draft.explanation = explanation(draft.cause, &users);
    if found.is_empty() && !kubelets.is_empty() {
        draft.explanation.push_str(
            " kubelet itself has it open, as it briefly does to measure a volume; if that is so \
             at each attempt, one of kubelet's threads hangs there.",
        );
    }
    let view = View::of(context, &object.op);
    free(&mut draft, view, &nested, &users);
    // Detached, a file system with an active swap file would have no path left by which to switch swap off.
    let swaps = users.iter().any(|holder| holder.how == How::Swap);
    if nested.is_empty() && !swaps {
        let id = held.taken.subject.as_ref().ok().and_then(|it| it.mount_id);
        let others = held.taken.unseen.is_empty().then(|| who_else(&held.taken));
        draft.remedy(
            view.on_mount("umount -l", &object.op.path, id)
                .so(", though it is in use")
                .forced(others),
            "high for a volume that only one node may mount: the pod is deleted, but the file \
             system stays active on this node until its last user ends. If another node mounts it \
             meanwhile, both corrupt it",
        );
    }
    tell_apart(&mut draft, &found, held);
    Some(draft)
}

pub(super) fn cause(bundle: bool, nested: &[&Holder], users: &[&Holder]) -> &'static Cause {
    let itself = users.iter().any(|holder| holder.through == Through::Itself);
    match (bundle, nested.is_empty(), users) {
        (true, _, _) => &SHIM_ROOTFS_BUSY,
        (false, false, _) => busy_mount::nested::on_unmount().0,
        (false, true, []) => mount_point::unexplained_cause(),
        (false, true, [first, ..]) if first.how == How::Swap => verdict::on_unmount().0,
        (false, true, _) if itself => &HELD_BY_PROCESS,
        (false, true, _) => &HELD_BY_AGENT,
    }
}

fn tell_time(draft: &mut Draft, object: &BusyObject, held: &Held) {
    let (processes, namespaces, _) = held.taken.looked_at;
    let late = held.taken.at.since(object.op.end).as_millis();
    let when = if held.is_fresh {
        format!("taken {late} ms after the call failed")
    } else {
        "taken at an earlier attempt; at the last one no process was found".into()
    };
    draft.fact_since(
        format!(
            "a snapshot of {processes} processes in {namespaces} mount namespaces was {when}: a \
             process that used it only for a moment may be missing"
        ),
        Source::proc("/proc"),
        held.taken.at,
    );
}

pub(super) fn explanation(cause: &Cause, users: &[&Holder]) -> String {
    let pod = users.iter().find_map(|holder| holder.pod.as_ref());
    match cause {
        cause if cause == busy_mount::nested::on_unmount().0 => {
            busy_mount::nested::on_unmount().1.into()
        }
        cause if cause == verdict::on_unmount().0 => verdict::on_unmount().1.into(),
        cause if *cause == HELD_BY_PROCESS => {
            "A process outside the pod uses the volume in the mount namespace in which it is \
            unmounted. The kernel does not unmount what is in use: every attempt fails while that \
            process uses it."
                .into()
        }
        cause if *cause == HELD_BY_AGENT => {
            let agent = match pod {
                Some(pod) => match (&pod.namespace, &pod.name) {
                    (Some(namespace), Some(name)) => format!("pod {namespace}/{name}"),
                    _ => format!("pod {}", pod.uid),
                },
                None => "another mount namespace".into(),
            };
            format!(
                "No process in the mount namespace of the unmount uses it. Processes of {agent} \
                 use a copy to which the unmount propagates (a hostPath with mountPropagation \
                 HostToContainer makes one), so the whole unmount fails."
            )
        }
        cause if *cause == SHIM_ROOTFS_BUSY && users.is_empty() => unexplained(),
        cause if *cause == SHIM_ROOTFS_BUSY => {
            "A process uses the root file system of a container that has ended, so its shim \
            cannot unmount it."
                .into()
        }
        _ => unexplained(),
    }
}

pub(super) fn unexplained() -> String {
    "The mount is in use, or was for a moment. Not visible from here are a file in flight through \
     a socket, a file registered with io_uring, and a Unix socket that is bound there."
        .into()
}

/// Rules out the look-alikes. The absence of holders is known only if all processes were read after the last attempt; a
/// holder that was found is known in any case.
fn tell_apart(draft: &mut Draft, found: &[&Holder], held: &Held) {
    let has = |test: fn(&Holder) -> bool| found.iter().any(|holder| test(holder));
    let complete = held.taken.unseen.is_empty() && held.is_fresh && !found.is_empty();
    let itself = has(|h| h.through == Through::Itself && h.how != How::NestedMount);
    let absent = [
        (
            ids::NESTED_MOUNT_UNDER_VOLUME,
            has(|h| h.how == How::NestedMount),
            "nothing is mounted on it",
        ),
        (ids::SWAPFILE_ACTIVE, has(|h| h.how == How::Swap), "no active swap file lies on it"),
        (ids::VOLUME_HELD_BY_HOST_PROCESS, itself, "no process uses the mount itself"),
        (
            ids::VOLUME_HELD_BY_HOSTTOCONTAINER_AGENT,
            has(|h| h.through == Through::PropagatedCopy),
            "no copy to which the unmount propagates is in use",
        ),
    ];
    for (other, holds, fact) in absent.iter().copied().filter(|_| complete) {
        if !holds && other != draft.cause.id {
            draft.rule_out_since(other, fact, Some(held.taken.at));
        }
    }
    if *draft.cause != HELD_BY_AGENT && !found.is_empty() {
        present(draft, has(|holder| holder.exact));
    }
    if !held.is_fresh {
        // Causes ruled out then stay ruled out; only the last attempt is unknown.
        if held.taken.unseen.is_empty() {
            absent.iter().for_each(|(other, ..)| draft.suffices_beside(*other));
        }
        draft.doubt("which process uses it now: at the last attempt no process was found");
    }
    if *draft.cause == HELD_BY_AGENT && !has(|holder| holder.exact) {
        draft.doubt("which mount it is: only the text of a path identifies it");
    }
    if *draft.cause == SHIM_ROOTFS_BUSY && found.is_empty() {
        draft.lacks("which process uses it");
    }
    let private = held.taken.holders.iter().filter(|h| h.explains_ebusy == Some(false)).count();
    if private > 0 && complete {
        let others =
            "use only other mounts of the file system, which does not make this unmount fail";
        draft.fact(format!("{private} more {others}"), Source::proc("/proc"));
    }
}

/// The cause of a refused unmount if the holders were not searched.
pub(crate) fn by_process() -> &'static Cause {
    &HELD_BY_PROCESS
}

/// What is not known without a search for holders.
pub(crate) fn tell_apart_without_user(draft: &mut Draft) {
    if *draft.cause == HELD_BY_PROCESS {
        draft.lacks("which process uses it");
        draft.rule_out(ids::CSI_DRIVER_LOST_PUBLISH_STATE, "an unmount was tried, and failed");
    }
}

/// The explanation without a search for holders.
pub(crate) fn words_without_user(cause: &Cause) -> Option<&'static str> {
    (*cause == HELD_BY_PROCESS).then_some(
        "The driver's unmount fails because the mount is in use. What uses it is not known.",
    )
}

/// Settles the look-alikes: the holder that was found makes the unmount fail by itself.
fn present(draft: &mut Draft, exact: bool) {
    for other in [
        ids::NESTED_MOUNT_UNDER_VOLUME,
        ids::SWAPFILE_ACTIVE,
        ids::VOLUME_HELD_BY_HOSTTOCONTAINER_AGENT,
        ids::VOLUME_HELD_BY_HOST_PROCESS,
    ] {
        draft.suffices_beside(other);
    }
    draft.rule_out(ids::CSI_DRIVER_LOST_PUBLISH_STATE, "the unmount is tried, and fails");
    draft.rule_out(ids::SHIM_OR_CONTAINERD_STATE_LOST, "the shim runs, and tries to unmount");
    draft.rule_out(ids::NODE_FS_READONLY, "the error is EBUSY, not EROFS");
    for other in [ids::IMMUTABLE_ATTRIBUTE, ids::APPEND_ONLY_ATTRIBUTE] {
        draft.rule_out(other, "the error is EBUSY, not EPERM");
    }
    draft.rule_out(ids::LEAKED_SUPERBLOCK_BLOCKS_DEVICE, "the unmount itself fails");
    if !exact {
        draft.doubt("which mount it is: only the text of a path identifies it");
    }
}
