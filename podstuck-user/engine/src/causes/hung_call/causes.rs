//! Causes of a call that does not return.

use crate::cause::Origin;
use crate::{
    cause::{Cause, Kind, TriedWith, like, log, or_seen, seen, way},
    causes::network_storage::FORCED,
    ids,
    model::diagnosis::Stage,
};

/// A FUSE server that does not answer.
pub(crate) static FUSE_DAEMON_HUNG: Cause = Cause {
    id: ids::FUSE_DAEMON_HUNG,
    title: "a FUSE server does not respond, and the calls on its mount wait",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A process (the FUSE server) serves the file system and does not answer a request. Every process that \
        accesses the file system waits: kubelet before it deletes anything, and umount before it unmounts. The \
        waiting thread is in state S at first, so a search for state D misses it.",
    confirmed_by: &[
        seen(
            "a thread waits in the kernel's functions for FUSE (request_wait_answer)",
            &[Origin::Proc],
        ),
        seen("it has waited for longer than a slow server takes", &[Origin::Calls, Origin::Proc]),
        seen("/sys/fs/fuse/connections/N/waiting is not 0", &[Origin::Proc, Origin::Files]),
    ],
    log: None,
    look_alikes: &[
        like(
            ids::FUSE_DAEMON_DEAD,
            "the call waits; with a dead FUSE server, it fails with ENOTCONN at once",
        ),
        like(ids::NFS_SERVER_UNREACHABLE, "no function of NFS is in the stack"),
        like(ids::EFS_STUNNEL_DEAD, "no function of NFS is in the stack"),
        like(ids::FANOTIFY_LISTENER_HUNG, "the thread waits for a server's answer"),
        like(ids::FILESYSTEM_FROZEN, "the thread does not wait for a freeze to end"),
        like(
            ids::DEVICE_NOT_RESPONDING,
            "the thread waits for a server's answer, not for a device",
        ),
        like(ids::UMOUNT_KERNEL_HANG, "the thread waits for a server's answer, not for a device"),
        like(ids::UMOUNT_FLUSH_SLOW, "the thread waits for a server's answer, not for a device"),
    ],
    ways_out: &[way(
        "abort the connection, then `umount`",
        "every request fails with ECONNABORTED, and what the server had not written is lost",
    )],
    field: &["juicefs-csi-driver#907", "juicefs-csi-driver#1156"],
    tried: &[TriedWith::Lab, TriedWith::RealKubelet, TriedWith::Recording],
    source: &["linux fs/fuse/dev.c, request_wait_answer"],
};

/// A fanotify listener that does not answer.
pub(crate) static FANOTIFY_LISTENER_HUNG: Cause = Cause {
    id: ids::FANOTIFY_LISTENER_HUNG,
    title: "the call waits for a fanotify listener, which does not permit the access",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A process, usually a security agent or a virus scanner, listens for fanotify permission events: the \
        kernel opens or reads a file of this file system only after the listener permits it. The listener does not \
        answer, and the kernel sets no time limit: kubelet, the runtime and every program that opens a file there \
        wait. When the listener ends, the kernel permits all waiting accesses.",
    confirmed_by: &[
        seen("a thread waits in fanotify_handle_event or fanotify_get_response", &[Origin::Proc]),
        seen(
            "it has waited for longer than a scan of a file takes",
            &[Origin::Calls, Origin::Proc],
        ),
        seen(
            "one process has a fanotify group that marks the mount or the file system for permission events \
             (/proc/PID/fdinfo)",
            &[Origin::Proc],
        ),
    ],
    log: log("the kernel", "task ... blocked for more than 120 seconds"),
    look_alikes: &[
        like(ids::FUSE_DAEMON_HUNG, "the thread does not wait for the answer of a FUSE server"),
        like(ids::FILESYSTEM_FROZEN, "the thread does not wait for a freeze to end"),
        like(
            ids::DEVICE_NOT_RESPONDING,
            "the thread waits for a listener's permission, not for a device",
        ),
        like(
            ids::UMOUNT_KERNEL_HANG,
            "the thread waits for a listener's permission, not for a device",
        ),
        like(ids::CALL_HUNG_UNEXPLAINED, "the thread waits for a listener's permission"),
    ],
    ways_out: &[way("restart the listener", "accesses are not scanned until it listens again")],
    field: &["AgentBaker#9089", "elastic/endpoint#47", "hotsos#594"],
    tried: &[TriedWith::Test],
    source: &[
        "fanotify(7), permission events",
        "linux fs/notify/fanotify/fanotify.c, fanotify_get_response",
    ],
};

/// A file system that stays frozen.
pub(crate) static FILESYSTEM_FROZEN: Cause = Cause {
    id: ids::FILESYSTEM_FROZEN,
    title: "the file system was frozen and not thawed",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A freeze stopped all changes to the file system, as backups and snapshots do for a moment, and the \
        file system has not been thawed. Every call that would change something waits, even one that would fail. No \
        waiting thread can be killed, and all calls resume when the file system is thawed.",
    confirmed_by: &[seen(
        "a thread waits in percpu_rwsem_wait below mnt_want_write or sb_start_write",
        &[Origin::Proc],
    )],
    log: log("the kernel", "task ... blocked for more than 120 seconds"),
    look_alikes: &[
        like(ids::FUSE_DAEMON_HUNG, "the thread does not wait for the answer of a FUSE server"),
        like(ids::NFS_SERVER_UNREACHABLE, "no function of NFS is in the stack"),
        like(ids::FANOTIFY_LISTENER_HUNG, "the thread waits for a thaw"),
        like(ids::DEVICE_NOT_RESPONDING, "the thread waits for a thaw, not for a device"),
        like(ids::UMOUNT_KERNEL_HANG, "the thread waits for a thaw, not for a device"),
        like(ids::UMOUNT_FLUSH_SLOW, "the thread waits for a thaw, and nothing is written"),
    ],
    ways_out: &[way(
        "`fsfreeze --unfreeze`",
        "a snapshot or a backup in progress becomes inconsistent: first find out what froze it",
    )],
    field: &[],
    tried: &[TriedWith::Lab],
    source: &["linux fs/super.c, freeze_super", "linux kernel/locking/percpu-rwsem.c"],
};

/// An NFS server that does not answer.
pub(crate) static NFS_UNREACHABLE: Cause = Cause {
    id: ids::NFS_SERVER_UNREACHABLE,
    title: "the call waits for an NFS server",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The call waits for an NFS server that does not answer. Mounts are `hard` by default: the client \
        retries for ever. kubelet, umount and the containers' processes that access the volume all wait.",
    confirmed_by: &[
        seen(
            "a thread waits in a function of the kernel's NFS client or of its RPC layer",
            &[Origin::Proc],
        ),
        seen("it has waited for longer than a slow server takes", &[Origin::Calls, Origin::Proc]),
        seen(
            "the server has answered no other calls on the file system meanwhile (/proc/PID/mountstats)",
            &[Origin::Proc, Origin::Files],
        ),
    ],
    log: log("the kernel", "nfs: server ... not responding, still trying"),
    look_alikes: &[
        like(
            ids::EFS_STUNNEL_DEAD,
            "the server is not on this node, or a process listens at its address on the node",
        ),
        like(ids::FUSE_DAEMON_HUNG, "the thread does not wait for the answer of a FUSE server"),
        like(ids::FILESYSTEM_FROZEN, "the thread does not wait for a freeze to end"),
    ],
    ways_out: &[
        way("bring the server back", ""),
        way("`umount -f`, repeated until it succeeds", FORCED),
    ],
    field: &["kubernetes#72048", "kubernetes#123960", "kubernetes#31272"],
    tried: &[TriedWith::Test],
    source: &[
        "linux net/sunrpc/sched.c, rpc_wait_bit_killable",
        "linux fs/nfs/super.c, nfs_umount_begin",
    ],
};

/// A shutdown that is writing.
pub(crate) static FLUSH_SLOW: Cause = Cause {
    id: ids::UMOUNT_FLUSH_SLOW,
    title: "`umount2` has returned and the kernel is still writing: it is making progress",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The mount is gone from every mount table, and the kernel still writes cached data to the device before \
        the call returns. How long that takes depends on the device.",
    confirmed_by: &[
        seen(
            "umount2 has returned to the probes, and its thread has made no other call since",
            &[Origin::Calls, Origin::Proc],
        ),
        seen("the thread is woken repeatedly in a function that writes", &[Origin::Proc]),
    ],
    log: None,
    look_alikes: &[
        like(ids::UMOUNT_KERNEL_HANG, "the thread makes progress"),
        like(ids::FUSE_DAEMON_HUNG, "the thread does not wait for the answer of a FUSE server"),
        like(ids::FILESYSTEM_FROZEN, "the thread does not wait for a freeze to end"),
    ],
    ways_out: &[way("wait", "")],
    field: &[],
    tried: &[TriedWith::Lab],
    source: &["linux fs/namespace.c, cleanup_mnt", "linux fs/fs-writeback.c, sync_inodes_sb"],
};

/// A shutdown without progress.
pub(crate) static KERNEL_HANG: Cause = Cause {
    id: ids::UMOUNT_KERNEL_HANG,
    title: "`umount2` has returned, and the file system's shutdown makes no progress",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The mount is gone from every mount table, and the kernel shuts the file system down. The shutdown \
        waits for the device or server, and makes no progress. The thread cannot be killed, and unmounting again \
        does nothing, because nothing is mounted any more.",
    confirmed_by: &[
        seen(
            "umount2 has returned to the probes, and its thread has made no other call since",
            &[Origin::Calls, Origin::Proc],
        ),
        seen("the thread sleeps in the shutdown and is not woken", &[Origin::Proc]),
        or_seen(
            "or it waits for a disk, and that of the file system, or one below it, has completed no request for 5 s",
            &[Origin::Proc],
        ),
    ],
    log: log("the kernel", "task umount ... blocked for more than 120 seconds"),
    look_alikes: &[
        like(
            ids::FANOTIFY_LISTENER_HUNG,
            "the thread does not wait for the permission of a fanotify listener",
        ),
        like(
            ids::UMOUNT_FLUSH_SLOW,
            "the thread has slept for a long time: nothing that it waits for was written",
        ),
        like(ids::FUSE_DAEMON_HUNG, "the thread does not wait for the answer of a FUSE server"),
        like(ids::FILESYSTEM_FROZEN, "the thread does not wait for a freeze to end"),
    ],
    ways_out: &[way(
        "check the device, and the kernel's messages about it (`dmesg`)",
        "when the device comes back, or fails for good, the call ends; if it never does, only a \
         reboot helps",
    )],
    field: &["aws-fsx-csi-driver#495", "kubernetes#123960"],
    tried: &[TriedWith::Lab],
    source: &["linux fs/super.c, generic_shutdown_super", "linux kernel/hung_task.c"],
};

/// A block device that completes no request.
pub(crate) static DEVICE_SILENT: Cause = Cause {
    id: ids::DEVICE_NOT_RESPONDING,
    title: "the call waits for a block device that completes no request",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The call reads or writes the file system's block device, and neither that device nor the one below it \
        completes a request: a path, a session or the storage behind it is gone, or a device of the device mapper is \
        suspended. Every call on the file system that needs the disk waits and cannot be killed. kubelet waits with \
        it, or its unmount does.",
    confirmed_by: &[
        seen(
            "a thread waits for a block device, or for pages that are read from or written to it",
            &[Origin::Proc],
        ),
        seen(
            "the device of its file system, or one below it, has requests in flight and has completed none for 5 s, \
             or is suspended",
            &[Origin::Proc],
        ),
        seen(
            "the call has waited for longer than a busy device takes",
            &[Origin::Calls, Origin::Proc],
        ),
    ],
    log: log("the kernel", "task ... blocked for more than 120 seconds"),
    look_alikes: &[
        like(ids::FUSE_DAEMON_HUNG, "the thread does not wait for the answer of a FUSE server"),
        like(
            ids::FANOTIFY_LISTENER_HUNG,
            "the thread does not wait for the permission of a fanotify listener",
        ),
        like(ids::FILESYSTEM_FROZEN, "the thread does not wait for a freeze to end"),
    ],
    ways_out: &[way(
        "bring back the device: its path, its session or the storage behind it",
        "none; removing the device instead makes its requests fail, and what was not yet written is lost",
    )],
    field: &["kubernetes#90593"],
    tried: &[TriedWith::Test],
    source: &["linux Documentation/admin-guide/iostats.rst, in-flight", "linux block/blk-mq.c"],
};

/// A lock of the kernel that another thread holds.
pub(crate) static LOCK_HELD: Cause = Cause {
    id: ids::KERNEL_LOCK_HELD,
    title: "the call waits for a lock of the kernel that another process holds",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The kernel lets one thread at a time change a directory, a file or a file system, and the others sleep until \
        it has finished. The thread that holds such a lock does not finish: it waits for something else, such as a page of \
        a file whose server does not answer. A sleeping thread takes no signal.",
    confirmed_by: &[
        seen(
            "the thread sleeps for a mutex or an rw_semaphore of the kernel (`task_struct.blocker`, Linux 6.16), and the \
             lock names the same holder at two reads",
            &[Origin::Calls],
        ),
        seen(
            "it has waited for longer than 15 times `--hung-after`",
            &[Origin::Calls, Origin::Proc],
        ),
    ],
    log: log("the kernel", "blocked on a mutex likely owned by task"),
    look_alikes: &[like(ids::CALL_HUNG_UNEXPLAINED, "the holder of the lock is known")],
    ways_out: &[way(
        "end the wait of the process that holds the lock, or `kill -9` that process",
        "its work is lost; in state D, it ends only when its own wait does",
    )],
    field: &[],
    tried: &[TriedWith::Test],
    source: &[
        "linux include/linux/hung_task.h, hung_task_set_blocker",
        "linux kernel/locking/mutex.c and rwsem.c, owner",
    ],
};

/// A stack that does not show the cause.
pub(crate) static CALL_HUNG_UNEXPLAINED: Cause = Cause {
    id: ids::CALL_HUNG_UNEXPLAINED,
    title: "not a cause: a call does not return; the finding has its stack",
    stage: Stage::Volumes,
    kind: Kind::Admission,
    meaning: "A call does not return, and the kernel functions that it is in do not show the cause. Often the call \
        waits for a lock that another thread holds.",
    confirmed_by: &[seen(
        "the call has not returned for longer than `--hung-after`",
        &[Origin::Calls, Origin::Proc],
    )],
    log: None,
    look_alikes: &[like(
        ids::FUSE_DAEMON_HUNG,
        "the thread does not wait for the answer of a FUSE server",
    )],
    ways_out: &[way("read the kernel stack in the finding", "")],
    field: &[],
    tried: &[],
    source: &[],
};
