//! What an unmount that fails with EBUSY means, given who holds on to the mount.

use super::{
    busy::BusyObject,
    busy_verdict::{SHIM_BURST, base},
    command::View,
    draft::{Draft, PROBE},
    holder_words::{describe, release},
};
use crate::{
    model::{
        holder::{Holder, How, Through},
        identity::{Component, TargetKind},
    },
    state::{holders::Snapshot, look::LookError},
};

/// Facts and remedies for so many holders; the others are only counted.
const TOLD: usize = 8;

/// Who was seen to hold a mount.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// The last snapshot that found somebody, else the last one.
    pub(super) taken: Snapshot,
    /// It was taken because of the last attempt.
    pub(super) is_fresh: bool,
}

/// Those of a snapshot that explain the failure. kubelet looks at its volumes now and then, and is
/// the one who wants to be rid of them.
fn culprits(taken: &Snapshot) -> impl Iterator<Item = &Holder> {
    taken.culprits().filter(|h| h.component != Some(Component::Kubelet))
}

impl Held {
    /// Takes a new snapshot: one that found nobody does not wipe out what was found before.
    pub(super) fn renew(held: &mut Option<Self>, taken: Snapshot) {
        let found = culprits(&taken).next().is_some();
        match held {
            Some(before) if !found && culprits(&before.taken).next().is_some() => {
                before.is_fresh = false;
            }
            _ => *held = Some(Self { taken, is_fresh: true }),
        }
    }

    /// Whether anybody was ever found.
    pub(super) fn explains(&self) -> bool {
        culprits(&self.taken).next().is_some()
    }
}

/// An unmount was refused; `error` says why there is no snapshot of this attempt.
pub(super) fn verdict(object: &BusyObject, error: Option<&LookError>) -> Option<Draft> {
    let bundle = object.op.target.kind == TargetKind::ContainerBundle;
    if bundle && object.count < SHIM_BURST {
        return None;
    }
    let Some(held) = &object.held else {
        let mut draft = base("busy-unexplained", object, 0.3);
        let why = error.map(ToString::to_string).unwrap_or_default();
        draft.fact(format!("who holds on to it could not be looked at: {why}"), "/proc");
        draft.explanation = unexplained();
        return Some(draft);
    };
    if held.taken.subject.is_err() && !bundle {
        // It is no mount point any more: somebody let go, or unmounted it.
        return None;
    }
    let found: Vec<&Holder> = culprits(&held.taken).collect();
    let (nested, users): (Vec<&Holder>, Vec<&Holder>) =
        found.iter().partition(|holder| holder.how == How::NestedMount);
    let mut draft = base(id(bundle, &nested, &users), object, confidence(held, &found));
    tell_time(&mut draft, object, held);
    for holder in found.iter().take(TOLD) {
        draft.fact(describe(holder), &holder.source);
    }
    if found.len() > TOLD {
        draft.fact(format!("and {} more", found.len() - TOLD), "/proc");
    }
    if found.is_empty() {
        draft.fact("nobody was found who holds it, and nothing is mounted on it", "/proc");
    }
    for unseen in &held.taken.unseen {
        draft.fact(format!("not looked at: {unseen}"), "/proc");
    }
    draft.explanation = explanation(&draft, &users);
    // The deepest mount goes first.
    for holder in nested.iter().rev().take(TOLD) {
        let command = View::of(&object.op).on_mount("umount", &holder.object.0);
        draft.remedy(command, "low if whoever mounted it has ended: check first");
    }
    for (command, risk) in release(&users) {
        draft.remedy(command, risk);
    }
    if nested.is_empty() {
        draft.remedy(
            View::of(&object.op).on_mount("umount -l", &object.op.path),
            "high for a volume that only one node may mount: the pod goes, but the file system \
             lives on here until its last user ends, and another node may mount it meanwhile; both \
             then corrupt it",
        );
    }
    rule_out(&mut draft, &found, held);
    Some(draft)
}

fn id(bundle: bool, nested: &[&Holder], users: &[&Holder]) -> &'static str {
    let itself = users.iter().any(|holder| holder.through == Through::Itself);
    match (bundle, nested.is_empty(), users) {
        (true, _, _) => "shim-rootfs-busy",
        (false, false, _) => "nested-mount-under-volume",
        (false, true, []) => "busy-unexplained",
        (false, true, [first, ..]) if first.how == How::Swap => "swapfile-active",
        (false, true, _) if itself => "volume-held-by-host-process",
        (false, true, _) => "volume-held-by-hosttocontainer-agent",
    }
}

fn confidence(held: &Held, found: &[&Holder]) -> f64 {
    match (found.iter().any(|holder| holder.exact), held.is_fresh) {
        _ if found.is_empty() => 0.3,
        (true, true) => 0.95,
        (true, false) => 0.85,
        (false, _) => 0.7,
    }
}

fn tell_time(draft: &mut Draft, object: &BusyObject, held: &Held) {
    let (processes, namespaces, _) = held.taken.looked_at;
    let late = held.taken.at.since(object.op.end).as_millis();
    let when = if held.is_fresh {
        format!("taken {late} ms after the call failed")
    } else {
        "taken at an earlier attempt; at the last one nobody was found".into()
    };
    draft.fact(
        format!(
            "a snapshot of {processes} processes in {namespaces} mount namespaces was {when}: who \
             held it only for a moment may be missing"
        ),
        PROBE,
    );
}

fn explanation(draft: &Draft, users: &[&Holder]) -> String {
    let pod = users.iter().find_map(|holder| holder.pod.as_ref());
    match draft.id {
        "nested-mount-under-volume" => "A mount on it must go first.".into(),
        "swapfile-active" => {
            "The kernel swaps to a file of this volume, and lets neither the file \
            nor the mount go until that is switched off."
                .into()
        }
        "volume-held-by-host-process" => "A process outside the pod uses the volume in the mount \
            namespace in which it is unmounted. The kernel does not unmount what is in use: every \
            attempt fails until that process lets go."
            .into(),
        "volume-held-by-hosttocontainer-agent" => {
            let agent = match pod {
                Some(pod) => match (&pod.namespace, &pod.name) {
                    (Some(namespace), Some(name)) => format!("pod {namespace}/{name}"),
                    _ => format!("pod {}", pod.uid),
                },
                None => "another mount namespace".into(),
            };
            format!(
                "Nobody in the mount namespace of the unmount holds it. Processes of {agent} hold a \
                 copy that the unmount would take along (a hostPath with mountPropagation \
                 HostToContainer makes one), and that copy is in use, so the whole unmount fails."
            )
        }
        "shim-rootfs-busy" if users.is_empty() => unexplained(),
        "shim-rootfs-busy" => {
            "Somebody uses the root file system of a container that has ended, so \
            its shim cannot unmount it."
                .into()
        }
        _ => unexplained(),
    }
}

fn unexplained() -> String {
    "Somebody uses the mount, or used it for a moment. Who cannot be seen from here would be a file \
     in flight through a socket or registered with io_uring, or a Unix socket that is bound there."
        .into()
}

fn rule_out(draft: &mut Draft, found: &[&Holder], held: &Held) {
    let complete = held.taken.unseen.is_empty() && held.is_fresh && !found.is_empty();
    if !complete {
        return;
    }
    let has = |test: fn(&Holder) -> bool| found.iter().any(|holder| test(holder));
    let itself = has(|h| h.through == Through::Itself && h.how != How::NestedMount);
    let others = [
        (
            "nested-mount-under-volume",
            has(|h| h.how == How::NestedMount),
            "nothing is mounted on it",
        ),
        ("swapfile-active", has(|h| h.how == How::Swap), "no active swap file lies on it"),
        ("volume-held-by-host-process", itself, "nobody uses the mount itself"),
        (
            "volume-held-by-hosttocontainer-agent",
            has(|h| h.through == Through::PropagatedCopy),
            "no copy that the unmount would take along is in use",
        ),
    ];
    for (id, holds, fact) in others {
        if !holds && id != draft.id {
            draft.ruled_out.push(format!("{id}: {fact}"));
        }
    }
    let private = held.taken.holders.iter().filter(|h| h.explains_ebusy == Some(false)).count();
    if private > 0 {
        let others =
            "hold only other mounts of the file system, which does not make this unmount fail";
        draft.fact(format!("{private} more {others}"), "/proc");
    }
}

#[cfg(test)]
#[path = "busy_umount_tests.rs"]
mod tests;
