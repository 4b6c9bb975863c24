//! What a process waits for that no signal reaches, by the kernel functions that it is in.

/// What it waits for, and what can be done.
pub(super) struct Wait {
    /// Name of the cause.
    pub(super) id: &'static str,
    /// What answers no more.
    pub(super) what: &'static str,
    /// A command that shows or ends it, and its risk.
    pub(super) remedy: (&'static str, &'static str),
}

const STUCK: &str = "dstate-process";

/// The innermost functions say least: everybody who waits for a disk is in `io_schedule`. So the
/// list is in the order of how much a name says.
const KNOWN: [(&[&str], Wait); 8] = [
    (
        &["nvidia", "nv_", "rm_", "os_acquire"],
        Wait {
            id: "gpu-driver-dstate",
            what: "NVIDIA's driver",
            remedy: (
                "nvidia-smi --gpu-reset",
                "every program on that GPU loses its work; when the reset does not end either, only a \
                 reboot helps. `dmesg | grep Xid` tells the fault",
            ),
        },
    ),
    (
        &["nfs", "rpc_"],
        Wait {
            id: STUCK,
            what: "an NFS server",
            remedy: (
                "nfsstat --mounts",
                "none; shows the servers. Bring the server back, or `umount -f` the mount: what was \
                 not yet written is lost",
            ),
        },
    ),
    (
        &["nbd", "rbd", "ceph"],
        Wait {
            id: STUCK,
            what: "a disk or file system on the network",
            remedy: (
                "lsblk",
                "none; shows the devices. Bring the server back, or detach the device: what was not \
                 yet written is lost",
            ),
        },
    ),
    (
        &["cifs", "smb"],
        Wait {
            id: STUCK,
            what: "an SMB server",
            remedy: ("findmnt --types cifs", "none; shows the servers. Bring the server back"),
        },
    ),
    (
        &["fuse", "request_wait_answer"],
        Wait {
            id: STUCK,
            what: "a FUSE server",
            remedy: (
                "grep -H . /sys/fs/fuse/connections/*/waiting",
                "none; the connection with requests is the one. `echo 1 > .../abort` ends it: all its \
                 users get errors, and what was not yet written is lost",
            ),
        },
    ),
    (
        &["percpu_rwsem_wait", "mnt_want_write", "sb_start", "freeze_super"],
        Wait {
            id: STUCK,
            what: "a frozen file system",
            remedy: (
                "fsfreeze --unfreeze",
                "add the mount point. Low, unless a backup or a snapshot that is under way has frozen \
                 it: ask for that first",
            ),
        },
    ),
    (
        &["ext4", "jbd2", "xfs", "btrfs"],
        Wait {
            id: STUCK,
            what: "a file system on a disk",
            remedy: ("cat /proc/pressure/io", "none; shows whether the disks do anything at all"),
        },
    ),
    (
        &["blk_", "bio", "io_schedule", "folio_wait", "rq_qos", "wait_on_page", "scsi", "nvme"],
        Wait {
            id: STUCK,
            what: "a block device",
            remedy: ("cat /proc/pressure/io", "none; shows whether the disks do anything at all"),
        },
    ),
];

/// Anything else.
const UNKNOWN: Wait = Wait {
    id: STUCK,
    what: "something in the kernel that its name does not tell",
    remedy: ("dmesg | grep -A 20 'blocked for more than'", "none"),
};

/// By wait channel and stack.
pub(super) fn of(channel: Option<&str>, stack: &[String]) -> &'static Wait {
    let functions = || channel.into_iter().chain(stack.iter().map(String::as_str));
    let is_in = |names: &[&str]| {
        functions().any(|function| {
            names
                .iter()
                .any(|name| function.starts_with(name) || function.contains(&format!("[{name}")))
        })
    };
    KNOWN.iter().find(|(names, _)| is_in(names)).map_or(&UNKNOWN, |(_, wait)| wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_says_most_counts() {
        let of = |channel, stack: &[&str]| {
            let stack: Vec<String> = stack.iter().map(|name| (*name).into()).collect();
            let wait = of(channel, &stack);
            (wait.id, wait.what)
        };
        assert_eq!(of(Some("rpc_wait_bit_killable"), &[]).1, "an NFS server");
        assert_eq!(of(Some("io_schedule"), &["folio_wait_bit", "nfs_wb_all"]).1, "an NFS server");
        assert_eq!(of(Some("percpu_rwsem_wait"), &[]).1, "a frozen file system");
        assert_eq!(of(Some("folio_wait_bit"), &[]).1, "a block device");
        assert_eq!(of(Some("down_read"), &["foo [nvidia]"]).0, "gpu-driver-dstate");
        assert_eq!(of(None, &[]).0, "dstate-process");
        assert_eq!(of(Some("rmqueue"), &[]).1, UNKNOWN.what);
    }
}
