//! Causes and remedies for a process that no signal reaches, by what it waits for.

use crate::{
    cause::Cause,
    causes::unkillable::causes::{DSTATE, GPU_DSTATE},
    model::pod_group::Task,
    wait_channel::{WaitsFor, functions, waits_for},
};

/// What it waits for, and what can be done.
pub(crate) struct Wait {
    /// The cause.
    pub(crate) cause: &'static Cause,
    /// What does not answer.
    pub(crate) what: &'static str,
    /// A command that shows more, and what it does.
    pub(crate) look: (&'static str, &'static str),
    /// What ends it, and what that breaks.
    pub(crate) advice: (&'static str, &'static str),
}

static NVIDIA: Wait = Wait {
    cause: &GPU_DSTATE,
    what: "NVIDIA's driver",
    look: ("dmesg | grep Xid", "show the faults that the GPU's driver has reported"),
    advice: (
        "reset the GPU (`nvidia-smi --gpu-reset`); if the reset does not end either, only a reboot helps",
        "every program on that GPU loses its work",
    ),
};

pub(super) static NFS: Wait = Wait {
    cause: &DSTATE,
    what: "an NFS server",
    look: ("grep ' nfs' /proc/self/mountinfo", "list the NFS mounts and their servers"),
    advice: (
        "restore the server, or the network path to it: then everything resumes. If the mount was detached (`umount -l`), \
         `umount -f` does not find it any more: from Linux 6.5 on, `echo 1 > /sys/fs/nfs/MAJOR:MINOR/shutdown` makes the \
         requests of its file system fail",
        "none to restore it; the other loses what was not written to the server",
    ),
};

static NETWORK_DISK: Wait = Wait {
    cause: &DSTATE,
    what: "a disk on the network",
    look: ("lsblk", "list the block devices"),
    advice: (
        "bring the server back; or detach the device",
        "detaching it loses what was not yet written",
    ),
};

static CEPH: Wait = Wait {
    cause: &DSTATE,
    what: "CephFS",
    look: ("findmnt --types ceph", "list the CephFS mounts"),
    advice: (
        "bring the cluster back; or `umount -f` the mount",
        "a forced unmount loses what was not yet written",
    ),
};

static SMB: Wait = Wait {
    cause: &DSTATE,
    what: "an SMB server",
    look: ("findmnt --types cifs", "list the SMB mounts and their servers"),
    advice: ("bring the server back", "none"),
};

pub(super) static FUSE: Wait = Wait {
    cause: &DSTATE,
    what: "a FUSE server",
    look: (
        "grep -H . /sys/fs/fuse/connections/*/waiting",
        "show which FUSE connection has waiting requests",
    ),
    advice: (
        "restart the server, or abort the connection (`echo 1 > .../abort`)",
        "all users of that file system receive errors, and what was not yet written is lost",
    ),
};

pub(super) static FROZEN: Wait = Wait {
    cause: &DSTATE,
    what: "a frozen file system",
    look: ("cat /proc/self/mountinfo", "list the mount points"),
    advice: (
        "thaw it (`fsfreeze --unfreeze MOUNTPOINT`)",
        "low, unless a backup or a snapshot in progress has frozen it: check that first",
    ),
};

const WATCH_DISKS: (&str, &str) =
    ("cat /proc/pressure/io", "show how long tasks wait for the disks");
const MEND_DISKS: (&str, &str) = ("bring the device back, or replace it", "none");

static DISK_FILE_SYSTEM: Wait =
    Wait { cause: &DSTATE, what: "a file system on a disk", look: WATCH_DISKS, advice: MEND_DISKS };

static BLOCK_DEVICE: Wait =
    Wait { cause: &DSTATE, what: "a block device", look: WATCH_DISKS, advice: MEND_DISKS };

/// hugging-face hf-mount#192: a FUSE server that waits for what only it could write.
pub(super) static PAGE: Wait = Wait {
    cause: &DSTATE,
    what: "a page of a file to be read or written, by a disk, a server on the network or a FUSE server",
    look: (
        "grep -H . /sys/fs/fuse/connections/*/waiting /proc/pressure/io",
        "show which FUSE connection has waiting requests, and how long tasks wait for the disks",
    ),
    advice: ("find out which file system it is, and restore its disk or server", "none"),
};

static PAGE_FAULT: Wait = Wait {
    cause: &DSTATE,
    what: "the process that resolves its page faults (userfaultfd)",
    look: (
        "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -e '^/proc' -e userfaultfd",
        "list the processes with a userfaultfd: such as CRIU, or a hypervisor that migrates",
    ),
    advice: (
        "end the process that has the other side: the faults are then resolved as usual",
        "none",
    ),
};

static FANOTIFY: Wait = Wait {
    cause: &DSTATE,
    what: "a fanotify listener, which must permit the access",
    look: (
        "grep -ls fanotify /proc/[0-9]*/fdinfo/*",
        "list the file descriptors of the node's fanotify listeners",
    ),
    advice: (
        "restart the listener, usually a security agent",
        "accesses are not scanned meanwhile",
    ),
};

/// Anything else.
pub(super) static UNKNOWN: Wait = Wait {
    cause: &DSTATE,
    what: "something in the kernel that this name does not show",
    look: (
        "dmesg | grep -A 20 'blocked for more than'",
        "show the kernel's messages about blocked tasks",
    ),
    advice: ("find out from its kernel stack what it waits for, and restore that", "none"),
};

impl Wait {
    /// Whether a function's name shows what the process waits for.
    pub(crate) fn is_known(&self) -> bool {
        self.what != UNKNOWN.what
    }

    /// Whether the wait may be for a block device.
    pub(super) fn may_be_a_disk(&self) -> bool {
        let disks = [&NETWORK_DISK, &DISK_FILE_SYSTEM, &BLOCK_DEVICE, &PAGE];
        disks.iter().any(|disk| disk.what == self.what)
    }
}

/// The wait of a task: of the thread that holds the lock it sleeps for, if that is known.
pub(super) fn of_task(task: &Task) -> &'static Wait {
    match task.lock.last() {
        Some(holder) => of(holder.wait_channel.as_deref(), &holder.stack),
        None => of(task.wait_channel.as_deref(), &task.stack),
    }
}

/// The wait, by wait channel and stack.
pub(crate) fn of(channel: Option<&str>, stack: &[String]) -> &'static Wait {
    match waits_for(functions(stack, channel)) {
        WaitsFor::PageFault => &PAGE_FAULT,
        WaitsFor::Fanotify => &FANOTIFY,
        WaitsFor::Nvidia => &NVIDIA,
        WaitsFor::Nfs => &NFS,
        WaitsFor::Ceph => &CEPH,
        WaitsFor::NetworkDisk => &NETWORK_DISK,
        WaitsFor::Smb => &SMB,
        WaitsFor::Fuse => &FUSE,
        WaitsFor::Thaw { .. } => &FROZEN,
        WaitsFor::DiskFileSystem => &DISK_FILE_SYSTEM,
        WaitsFor::BlockDevice => &BLOCK_DEVICE,
        WaitsFor::Page => &PAGE,
        WaitsFor::Unknown => &UNKNOWN,
    }
}
