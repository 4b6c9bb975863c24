//! A block device of a container that the runtime cannot remove because a process has it open, as a virtual machine has
//! its disks.

use crate::{
    cause::{Cause, Kind, Origin, TriedWith, log, seen, way},
    causes::{
        runtime::{own_kernel::RISK, suspect::Suspect},
        shared::holders,
    },
    command::{Process, kill},
    ids,
    model::{
        diagnosis::Stage,
        evidence::Source,
        holder::{Holder, How},
        identity::Component,
        path::safe_path,
    },
    verdict::Draft,
};

/// Processes with a remedy.
const NAMED: usize = 4;

/// A device that is open, which the kernel does not remove.
pub(crate) static DEVICE_BUSY: Cause = Cause {
    id: ids::RUNTIME_DEVICE_BUSY,
    title: "the runtime cannot remove a container's block device because a process has it open",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "A device-mapper snapshotter gives each container a block device, which a virtual machine (Kata \
        Containers, Firecracker) uses as a disk. To stop the sandbox, the runtime removes that device, but the \
        virtual machine still has it open: the removal fails with EBUSY, and kubelet retries. The node mounts no \
        file system of the device, so neither the mount table nor lsof of a mount point shows which process has it \
        open.",
    confirmed_by: &[
        seen(
            "the runtime's or kubelet's log reports at each attempt that the device is busy, and names it",
            &[Origin::Log],
        ),
        seen("a process has that device open", &[Origin::Proc]),
    ],
    log: log("containerd", "failed to deactivate device ...: device or resource busy"),
    look_alikes: &[],
    ways_out: &[way(
        "end the process that has the device open; the runtime's next attempt removes the device",
        "if it is the pod's own virtual machine, its containers end without their clean-up",
    )],
    field: &["virtcontainers#435", "containerd#7712"],
    tried: &[TriedWith::Test],
    source: &[
        "containerd plugins/snapshots/devmapper/pool_device.go, DeactivateDevice",
        "Linux drivers/md/dm.c, dm_lock_for_deletion",
    ],
};

/// Fills in the finding.
pub(super) fn words(draft: &mut Draft, suspect: &Suspect<'_>) {
    // Since Kubernetes 1.27 a pod goes when its sandbox has been stopped, whether or not its containers are removed.
    let is_stop = ["StopPodSandbox", "KillPodSandbox", "StopContainer", "KillContainer"];
    if !is_stop.iter().any(|word| suspect.logged.said.text.contains(word)) {
        draft.blocks_deletion = None;
    }
    draft.explanation =
        "The runtime cannot remove a container's block device because a process has it open: the \
        kernel removes no device that is in use."
            .into();
    let Some(held) = suspect.held else {
        draft.lacks("which process has the device open");
        return;
    };
    let path = safe_path(&held.path).into_owned();
    draft.path.clone_from(&held.path);
    let has_open =
        |holder: &&Holder| holder.how == How::Fd && holder.component != Some(Component::Kubelet);
    let found: Vec<&Holder> = held.taken.holders.iter().filter(has_open).collect();
    holders::tell_unseen(draft, &held.taken);
    if found.is_empty() {
        let why = held.taken.subject.as_ref().err().map(|why| format!(": {why}"));
        let fact = format!("no process has {path} open now{}", why.unwrap_or_default());
        draft.fact_since(fact, Source::proc("/proc"), held.at);
        draft.lacks("which process has the device open: none had it open when last checked");
        return;
    }
    let last = suspect.logged.last;
    let was_there = |holder: &&&Holder| held.was_there(holder, last);
    let there: Vec<&Holder> = found.iter().filter(was_there).copied().collect();
    if there.is_empty() {
        for holder in &found {
            draft.fact(holders::describe(holder), Source::proc(&holder.source));
        }
        draft.lacks(
            "which process had the device open when the runtime failed: each process that has it open now started \
             later, and device names are reused",
        );
        return;
    }
    holders::tell(draft, &there);
    let is_own =
        |holder: &&&Holder| holder.pod.as_ref().is_some_and(|pod| pod.uid == suspect.pod.uid);
    let (own, others): (Vec<&Holder>, Vec<&Holder>) = there.iter().partition(is_own);
    for (holder, pid) in own.iter().filter_map(|it| Some((it, it.pid?))).take(NAMED) {
        let process = Process::new(pid, holder.started, holder.comm.as_deref());
        draft.remedy(kill("kill -9", process).so(&format!(", which has {path} open")), RISK);
    }
    draft.remedies.extend(holders::release(held.view, &others, "the device"));
}
