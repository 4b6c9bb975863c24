//! What a thread waits for, by its kernel functions: the table for hung calls, unkillable processes and the chain of
//! waits.
//!
//! The names are those of Linux 5.10 to 6.18: fs/userfaultfd.c, fs/notify/fanotify/fanotify.c, fs/fuse/dev.c, fs/super.c and
//! kernel/locking/percpu-rwsem.c (a frozen file system), net/sunrpc, fs/nfs, drivers/block.

use crate::model::path::safe;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// The process that resolves the thread's page faults (userfaultfd(2)).
    PageFault,
    /// A fanotify listener, which must permit the access.
    Fanotify,
    /// The server of a FUSE file system.
    Fuse,
    /// A frozen file system to be thawed; or, if no function says so, another lock of that kind.
    Thaw {
        /// Whether a function shows the start of a write to a file system.
        named: bool,
    },
    /// An NFS server.
    Nfs,
    /// NVIDIA's driver.
    Nvidia,
    /// A CephFS server.
    Ceph,
    /// A network block device.
    NetworkDisk,
    /// An SMB server.
    Smb,
    /// A file system on a disk.
    DiskFileSystem,
    /// A block device.
    BlockDevice,
    /// A page of a file that a disk, a network server or a FUSE server must read or write.
    Page,
    /// The functions do not show it.
    Unknown,
}

impl WaitsFor {
    /// In a few words; `None` if the functions do not show it.
    pub(crate) fn words(self) -> Option<&'static str> {
        Some(match self {
            Self::PageFault => "the process that resolves its page faults (userfaultfd)",
            Self::Fanotify => "a fanotify listener, which must permit the access",
            Self::Fuse => "the server of a FUSE file system",
            Self::Thaw { named: true } => "a file system to be thawed",
            Self::Thaw { named: false } => {
                "a file system to be thawed, or another lock of that kind"
            }
            Self::Nfs => "an NFS server",
            Self::Nvidia => "NVIDIA's driver",
            Self::Ceph => "CephFS",
            Self::NetworkDisk => "a disk on the network",
            Self::Smb => "an SMB server",
            Self::DiskFileSystem | Self::BlockDevice => "a disk",
            Self::Page => "a page of a file to be read or written",
            Self::Unknown => return None,
        })
    }
}

/// The signs in a function: a prefix of its name, or its module.
struct Signs {
    waits: WaitsFor,
    prefixes: &'static [&'static str],
    modules: &'static [&'static str],
}

const fn signs(
    waits: WaitsFor,
    prefixes: &'static [&'static str],
    modules: &'static [&'static str],
) -> Signs {
    Signs { waits, prefixes, modules }
}

/// Sorted by significance. The innermost functions say least: every thread that waits for a disk is in
/// `io_schedule`.
static TABLE: [Signs; 13] = [
    // It may be in a call on a file, whose functions are on the stack as well.
    signs(WaitsFor::PageFault, &["handle_userfault"], &[]),
    // A listener that reads its events is in `fanotify_read`.
    signs(WaitsFor::Fanotify, &["fanotify_handle_event", "fanotify_get_response"], &[]),
    signs(WaitsFor::Fuse, &["request_wait_answer", "fuse_", "__fuse"], &["fuse"]),
    signs(
        WaitsFor::Thaw { named: true },
        &["mnt_want_write", "sb_start", "__sb_start", "freeze_super"],
        &[],
    ),
    signs(WaitsFor::Thaw { named: false }, &["percpu_rwsem_wait", "__percpu_down_read"], &[]),
    signs(
        WaitsFor::Nfs,
        &["rpc_", "__rpc_", "nfs_", "nfs3_", "nfs4_"],
        &["nfs", "nfsv3", "nfsv4", "sunrpc"],
    ),
    signs(WaitsFor::Nvidia, &["nvidia", "nv_", "rm_", "os_acquire"], &["nvidia"]),
    signs(WaitsFor::Ceph, &["ceph_"], &["ceph"]),
    signs(WaitsFor::NetworkDisk, &["nbd", "rbd", "ceph_"], &["nbd", "rbd", "libceph"]),
    signs(WaitsFor::Smb, &["cifs", "smb"], &["cifs"]),
    signs(
        WaitsFor::DiskFileSystem,
        &["ext4", "jbd2", "xfs", "xlog", "btrfs"],
        &["ext4", "jbd2", "xfs", "btrfs"],
    ),
    signs(
        WaitsFor::BlockDevice,
        // The buffers are those of block devices (fs/buffer.c).
        &[
            "blk_",
            "blkdev_",
            "__blkdev",
            "bio",
            "submit_bio",
            "__wait_on_buffer",
            "__lock_buffer",
            "rq_qos",
            "scsi",
            "nvme",
        ],
        &[],
    ),
    // Pages of all file systems are waited for in these (mm/filemap.c).
    signs(
        WaitsFor::Page,
        &["folio_", "__folio_lock", "wait_on_page", "__lock_page", "io_schedule"],
        &[],
    ),
];

impl Signs {
    fn are_in(&self, function: &str) -> bool {
        let (name, module) = match function.split_once(" [") {
            Some((name, module)) => (name, module.trim_end_matches(']')),
            None => (function, ""),
        };
        // The shutdown of a file system makes no request to its server.
        if self.waits == WaitsFor::Nfs && name.ends_with("_super") {
            return false;
        }
        // Functions that Ceph's block device and its file system share do not distinguish them.
        let is_common = ["ceph_osdc_", "ceph_monc_", "ceph_con_", "ceph_msg_"];
        let is_common = module == "libceph" || is_common.iter().any(|p| name.starts_with(p));
        if self.waits == WaitsFor::Ceph && is_common {
            return false;
        }
        self.modules.contains(&module) || self.prefixes.iter().any(|p| name.starts_with(p))
    }
}

/// The functions of a thread, from its stack and its wait channel.
pub(crate) fn functions<'a>(
    stack: &'a [String],
    channel: Option<&'a str>,
) -> impl Iterator<Item = &'a str> + Clone {
    stack.iter().map(String::as_str).chain(channel)
}

/// What a thread waits for, by its functions (`name` or `name [module]`).
pub(crate) fn waits_for<'a>(functions: impl Iterator<Item = &'a str> + Clone) -> WaitsFor {
    let shows = |signs: &&Signs| functions.clone().any(|function| signs.are_in(function));
    TABLE.iter().find(shows).map_or(WaitsFor::Unknown, |signs| signs.waits)
}

/// The same in words, for a thread that waits in this function.
pub(crate) fn words(stack: &[String], channel: &str) -> String {
    let function = safe(channel.as_bytes());
    match waits_for(functions(stack, Some(channel))).words() {
        Some(what) => format!("{what}, in the kernel function {function}"),
        None => format!("the kernel function {function} to return"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_says_most_counts() {
        for (functions, expected) in [
            (&["rpc_wait_bit_killable"][..], WaitsFor::Nfs),
            (&["fanotify_handle_event", "fsnotify", "do_dentry_open"], WaitsFor::Fanotify),
            (&["fanotify_read", "vfs_read"], WaitsFor::Unknown),
            (&["handle_userfault", "ext4_buffered_write_iter"], WaitsFor::PageFault),
            (&["io_schedule", "folio_wait_bit", "nfs_wb_all"], WaitsFor::Nfs),
            (&["down_read", "wait_answer [nfsv4]"], WaitsFor::Nfs),
            (&["folio_wait_bit", "nfs_kill_super [nfs]"], WaitsFor::Page),
            (&["folio_wait_bit", "blk_mq_get_tag"], WaitsFor::BlockDevice),
            (&["schedule", "nfsd_dispatch [nfsd]"], WaitsFor::Unknown),
            (&["percpu_rwsem_wait"], WaitsFor::Thaw { named: false }),
            (&["percpu_rwsem_wait", "mnt_want_write"], WaitsFor::Thaw { named: true }),
            (&["request_wait_answer", "fuse_simple_request [fuse]"], WaitsFor::Fuse),
            (&["down_read", "foo [nvidia]"], WaitsFor::Nvidia),
            (&["io_schedule", "__ext4_find_entry"], WaitsFor::Page),
            (&["xlog_wait_on_iclog"], WaitsFor::DiskFileSystem),
            // kubernetes/project-infra#5070: a process on the device itself.
            (&["submit_bio_wait", "blkdev_issue_flush"], WaitsFor::BlockDevice),
            (&["wait_for_completion_killable", "ceph_mdsc_wait_request"], WaitsFor::Ceph),
            (&["schedule", "wait_caps [ceph]"], WaitsFor::Ceph),
            (&["ceph_osdc_wait_request [libceph]", "ceph_sync_fs [ceph]"], WaitsFor::Ceph),
            (&["ceph_osdc_wait_request [libceph]"], WaitsFor::NetworkDisk),
            (&["ceph_osdc_wait_request", "rbd_img_request"], WaitsFor::NetworkDisk),
            (&["wait_for_response [cifs]", "compound_send_recv"], WaitsFor::Smb),
            (&["rmqueue"], WaitsFor::Unknown),
            (&[], WaitsFor::Unknown),
        ] {
            assert_eq!(waits_for(functions.iter().copied()), expected, "{functions:?}");
        }
    }
}
