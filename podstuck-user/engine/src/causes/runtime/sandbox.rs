//! A sandbox whose network namespace or shared memory its runtime cannot remove, because something is mounted there
//! still.

use crate::{
    cause::{Cause, Kind, TriedWith, like, log, way},
    causes::runtime::{
        sandbox_mounts::{Look, kept},
        says_tracker::Suspect,
    },
    ids,
    model::{diagnosis::Stage, evidence::Source, path::safe_path, said::Said, sandbox::Kept},
    verdict::Draft,
};

/// Why a mount that only another namespace has is none of these.
const NEWER: &str = "a mount that only another namespace has keeps nobody from removing its mount point on this \
    kernel: they have been taken along since Linux 3.18";
/// Mounts for which a command is given.
const NAMED: usize = 4;

/// The file of the network namespace.
pub(crate) static NETNS_BUSY: Cause = Cause {
    id: ids::NETNS_BUSY,
    title: "the runtime cannot remove the file of a sandbox's network namespace: something is mounted on it",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "A runtime keeps a sandbox's network namespace by a file, /run/netns/cni-..., on which the namespace is \
        mounted. To stop the sandbox it unmounts it once and removes the file. It was mounted more than once, or is \
        mounted on the same file by another way to /run: what is left makes the removal fail with EBUSY, and \
        the sandbox counts as running. kubelet asks again and again, and unmounts nothing before.",
    confirmed_by: &[
        "the runtime's log, or kubelet's, says at each attempt that the file of the network namespace is busy",
        "in the runtime's mount namespace something is mounted on that file, at its path or by another way to it",
    ],
    log: log("containerd", "unlinkat /var/run/netns/cni-...: device or resource busy"),
    look_alikes: &[
        like(
            ids::CNI_TEARDOWN_FAILED,
            "the file of the namespace is busy, and no plugin has failed",
        ),
        like(
            ids::MOUNT_LEAKED_FOREIGN_NS_EL7,
            "the kernel is newer than 3.18, as podstuck needs it to be",
        ),
    ],
    ways_out: &[
        way("unmount what is left on the file; the next attempt removes it", ""),
        way(
            "have whoever has the host's / or /run mounted do so with the propagation HostToContainer",
            "",
        ),
    ],
    field: &["containerd#3667", "containerd#6143"],
    tried: &[TriedWith::Test],
    source: &[
        "containerd pkg/netns/netns_linux.go, unmountNS",
        "containerd issues 3667, 6143",
        "linux fs/namei.c, vfs_unlink: is_local_mountpoint",
    ],
};

/// The directory of the shared memory.
pub(crate) static SHM_BUSY: Cause = Cause {
    id: ids::SANDBOX_SHM_BUSY,
    title: "the runtime cannot remove a sandbox's shared memory: it is mounted still",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The containers of a pod have a file system in memory in common, at /dev/shm, which the runtime mounts in \
        the sandbox's directory. Its process was killed before it could unmount it, or it was mounted more than once: \
        the directory is a mount point still, and its removal fails with EBUSY. The sandbox stays; whether the pod \
        waits for that depends on what was asked, to stop it or to remove it, and on kubelet's version.",
    confirmed_by: &[
        "the runtime's log, or kubelet's, says that the directory of the sandbox's shared memory is busy",
        "in the runtime's mount namespace something is mounted on that directory",
    ],
    log: log("CRI-O", "unlinkat .../userdata/shm: device or resource busy"),
    look_alikes: &[like(
        ids::MOUNT_LEAKED_FOREIGN_NS_EL7,
        "the kernel is newer than 3.18, as podstuck needs it to be",
    )],
    ways_out: &[way(
        "unmount it; the next attempt removes it",
        "what the pod has left in /dev/shm is lost",
    )],
    field: &["cri-o#1453", "moby#22877"],
    tried: &[TriedWith::Test],
    source: &[
        "cri-o issue 1453, pull request 3073",
        "containerd internal/cri/server/helpers.go, ensureRemoveAll",
        "linux fs/namei.c, vfs_rmdir: is_local_mountpoint",
    ],
};

/// Which of the two it is.
pub(super) fn cause(said: &Said) -> Option<&'static Cause> {
    match kept(said)? {
        Kept::NetworkNamespace => Some(&NETNS_BUSY),
        Kept::SharedMemory => Some(&SHM_BUSY),
        Kept::ImageVolume => None,
    }
}

/// What is said of it.
pub(super) fn words(draft: &mut Draft, suspect: &Suspect<'_>) {
    let is_netns = *draft.cause == NETNS_BUSY;
    let said = &suspect.told.said;
    // Since Kubernetes 1.27 a pod goes when its sandbox has been stopped, whether or not it is removed.
    let is_stop = ["StopPodSandbox", "KillPodSandbox", "PodSandboxStatus"];
    if !is_netns && !is_stop.iter().any(|word| said.text.contains(word)) {
        draft.blocks_deletion = None;
    }
    let what = if is_netns { "file of the network namespace" } else { "shared memory" };
    let left = suspect.lies_on.filter(|look| !look.mounts.all.is_empty());
    match (left, suspect.lies_on) {
        (Some(look), _) => mounted(draft, look, is_netns),
        (None, Some(look)) => {
            let path = safe_path(&look.path);
            draft.fact_since(
                format!("nothing is mounted on {path} in the runtime's mount namespace now"),
                Source::mountinfo(&look.mounts.source),
                look.at,
            );
            draft.lacks("what is mounted on it for the runtime: nothing was at the last look");
        }
        (None, None) => draft.lacks("what is mounted on it for the runtime"),
    }
    let why = match left {
        Some(_) => "it is a mount point still, and the kernel removes none",
        None => "the kernel called it busy, as it does where something is mounted",
    };
    draft.explanation =
        format!("The runtime cannot remove the {what} of the pod's sandbox: {why}.");
    if left.is_some_and(only_by_another_way) {
        draft.explanation +=
            " What is left was mounted by another path than the one that the runtime unmounts.";
    }
    if draft.blocks_deletion.is_some() {
        draft.explanation += " kubelet asks again and again, and does not let the pod go before.";
    }
    draft.rule_out(
        ids::CNI_TEARDOWN_FAILED,
        "the error is about the file of the namespace, and not a plugin's",
    );
    draft.rule_out(ids::MOUNT_LEAKED_FOREIGN_NS_EL7, NEWER);
}

fn only_by_another_way(look: &Look) -> bool {
    look.mounts.all.iter().all(|mount| !look.is_own(&mount.point))
}

/// What is left there, and how it goes. The uppermost comes last in the table, and is to go first.
fn mounted(draft: &mut Draft, look: &Look, is_netns: bool) {
    let path = safe_path(&look.path);
    let all = &look.mounts.all;
    for mount in all.iter().take(NAMED) {
        let point = safe_path(&mount.point);
        let fact = if look.is_own(&mount.point) {
            format!("{point} is a mount point for the runtime: {}", mount.describe())
        } else {
            format!("{point} is another way to {path}, and a mount point: {}", mount.describe())
        };
        draft.fact_since(fact, Source::mountinfo(&look.mounts.source), look.at);
    }
    if all.len() > NAMED {
        let fact = format!("{} mounts are on it", all.len());
        draft.fact_since(fact, Source::mountinfo(&look.mounts.source), look.at);
    }
    let risk = if is_netns {
        "low once all containers of the pod have ended: whoever still uses the namespace keeps it"
    } else {
        "low once all containers of the pod have ended: what they left in /dev/shm is lost"
    };
    for mount in all.iter().rev().take(NAMED) {
        let step = look.view.on_mount("umount -l", &mount.point, Some(mount.id));
        draft.remedy(step.so(", which keeps the sandbox"), risk);
    }
}
