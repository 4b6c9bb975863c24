//! Storage on the network whose client on this node has lost the other side.

use crate::{
    cause::{Cause, Kind, like, log, way},
    ids,
    model::diagnosis::Stage,
};

/// Nobody listens where an NFS client connects to.
pub(crate) static EFS_STUNNEL_DEAD: Cause = Cause {
    id: ids::EFS_STUNNEL_DEAD,
    title: "the local end of an NFS mount's tunnel is gone (EFS: stunnel or efs-proxy)",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The NFS mount's server is an address of the node itself, where a program takes the \
        connections and carries them to the real server: stunnel or efs-proxy of EFS's driver, which end \
        with the driver's container. Nobody listens on the mount's port any more. The client asks for \
        ever, and kubelet, umount and everybody who touches the volume wait.",
    confirmed_by: &[
        "a thread waits for an NFS mount, or in a function of the kernel's NFS client",
        "the mount's options have a loopback address and a port (addr=127.0.0.1, port=20XXX)",
        "nobody listens on that port in any network namespace of the node",
    ],
    log: log("the kernel", "nfs: server 127.0.0.1 not responding"),
    look_alikes: &[
        like(
            ids::NFS_SERVER_UNREACHABLE,
            "the server's address is a loopback one, and nobody listens there",
        ),
        like(ids::FUSE_DAEMON_HUNG, "the thread does not wait for the answer of a FUSE server"),
    ],
    ways_out: &[
        way("restart the driver's pod on this node: its watchdog starts the tunnels again", ""),
        way(
            "`umount -f -l`",
            "what was not written to the server is lost, and processes that have files open keep waiting",
        ),
    ],
    field: &["aws-efs-csi-driver#178", "aws-efs-csi-driver#616"],
    tried: &[],
    source: &[
        "linux fs/nfs/super.c, nfs_show_mount_options",
        "github.com/kubernetes-sigs/aws-efs-csi-driver issues 130, 178, 973",
    ],
};

/// An SMB client without its server.
pub(crate) static SMB_HOST_DOWN: Cause = Cause {
    id: ids::SMB_HOST_DOWN,
    title: "an SMB server is down, or takes this client no more",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The client has lost its session with the SMB server, and does not get it back. Whoever looks \
        at the volume gets EHOSTDOWN after a while (`host is down`), or another error, or waits. kubelet \
        before 1.22 and drivers that look before they unmount come to no unmount.",
    confirmed_by: &[
        "calls or looks of the node fail with EHOSTDOWN, EACCES, ENOTCONN or ETIMEDOUT, or a thread waits in \
         a function of the kernel's SMB client",
        "the object lies on a file system of type cifs or smb3",
    ],
    log: log("kubelet or the driver", "stat ...: host is down"),
    look_alikes: &[
        like(ids::CEPHFS_EVICTED, "the file system is of type cifs"),
        like(ids::FUSE_DAEMON_DEAD, "the file system is of type cifs, and not served by FUSE"),
    ],
    ways_out: &[
        way("bring the server, the way to it, or the client's right to it back", ""),
        way("`umount -l`", "what was not written to the server is lost"),
    ],
    field: &["kubernetes#101305", "kubernetes#101398", "csi-driver-smb#693"],
    tried: &[],
    source: &[
        "linux fs/smb/client/smb2pdu.c, smb2_reconnect",
        "github.com/kubernetes/kubernetes pull request 101305",
        "github.com/kubernetes-csi/csi-driver-smb issues 64, 782",
    ],
};

/// A CephFS client that was thrown out.
pub(crate) static CEPHFS_EVICTED: Cause = Cause {
    id: ids::CEPHFS_EVICTED,
    title: "CephFS has evicted this node's client",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A metadata server has evicted the node's client, mostly after a pause of the network, and has \
        blocklisted it. Every look at the volume fails (EACCES, EIO, ESHUTDOWN, ESTALE) or waits, and the \
        client does not come back by itself, unless it is mounted with recover_session=clean.",
    confirmed_by: &[
        "calls or looks of the node fail with EACCES, EIO, ESHUTDOWN or ESTALE, or a thread waits in a \
         function of the kernel's CephFS client",
        "the object lies on a file system of type ceph",
        "the kernel's log says that a metadata server has rejected the session",
    ],
    log: log("the kernel", "ceph: mds0 reconnect denied"),
    look_alikes: &[
        like(ids::SMB_HOST_DOWN, "the file system is of type ceph"),
        like(ids::NFS_STALE_HANDLE, "the file system is of type ceph"),
        like(
            ids::DEVICE_IO_ERROR,
            "the file system is served by Ceph, and lies on no device of the node",
        ),
    ],
    ways_out: &[
        way(
            "take the client off the blocklist, where Ceph's administrator agrees",
            "`ceph osd blocklist rm`: what the client still holds back may overwrite what others wrote since",
        ),
        way("`umount -f`", "what was not written to the servers is lost"),
    ],
    field: &[],
    tried: &[],
    source: &[
        "linux fs/ceph/mds_client.c, handle_session",
        "docs.ceph.com, CephFS: troubleshooting, and Ceph file system client eviction",
    ],
};
