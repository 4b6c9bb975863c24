//! Network storage whose server is gone or rejects this client: calls and stat requests on a volume fail or wait.
//! kubelet and drivers stat a volume before they unmount it; if that fails, they make no call that a probe sees, and
//! their logs have the error. The type of the file system gives its meaning. None of this was tested with a real
//! server, so no finding is more than likely.

use crate::cause::Origin;
use std::{collections::BTreeSet, path::Path, sync::Arc};

use crate::{
    cause::{Cause, Kind, absent, hidden, like, log, seen, way},
    causes::shared::{kernel_says::KernelSays, sharers, stat_errors::StatErrors},
    command::{Step, View},
    event::{Event, What},
    family::Family,
    ids,
    model::{
        degraded::Feed,
        diagnosis::Stage,
        errno::Errno,
        evidence::Source,
        file_system::{FileSystem, is_ceph, is_smb},
        finding::Severity,
        node::NodeSample,
        path::{safe, safe_path},
        said::Said,
    },
    query::{Question, ReadFileSystem},
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId, TrackerSpec},
    verdict::Draft,
};

/// The family's causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[&EFS_STUNNEL_DEAD, &SMB_HOST_DOWN, &CEPHFS_EVICTED],
    trackers: &[TrackerSpec {
        id: TrackerId::NetworkStorage,
        feeds: &[Feed::Node, Feed::Logs],
        yields: &[],
        new: || Box::<NetworkStorage>::default(),
    }],
};

/// No process listens on the local address that an NFS client connects to.
pub(crate) static EFS_STUNNEL_DEAD: Cause = Cause {
    id: ids::EFS_STUNNEL_DEAD,
    title: "the local end of an NFS mount's tunnel is gone (EFS: stunnel or efs-proxy)",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The NFS mount's server is an address of the node itself, where a program forwards \
        the connections to the real server: stunnel or efs-proxy of the EFS driver, which end \
        with the driver's container. No process listens on the mount's port any more. The client \
        retries without end, and kubelet, umount and every process that accesses the volume wait.",
    confirmed_by: &[
        seen(
            "a thread waits for an NFS mount, or in a function of the kernel's NFS client",
            &[Origin::Proc],
        ),
        seen(
            "the mount's options have a loopback address and a port (addr=127.0.0.1, port=20XXX)",
            &[Origin::Mounts],
        ),
        absent("no process listens on that port in any network namespace of the node", Feed::Node),
        hidden("the client's connection is no longer established"),
    ],
    log: log("the kernel", "nfs: server 127.0.0.1 not responding"),
    look_alikes: &[
        like(
            ids::NFS_SERVER_UNREACHABLE,
            "the server's address is a loopback address, and no process listens there",
        ),
        like(ids::FUSE_DAEMON_HUNG, "the thread does not wait for the answer of a FUSE server"),
    ],
    ways_out: &[
        way("restart the driver's pod on this node: its watchdog starts the tunnels again", ""),
        way("`umount -f`, repeated until it succeeds", FORCED),
    ],
    field: &["aws-efs-csi-driver#178", "aws-efs-csi-driver#616"],
    tried: &[],
    source: &[
        "linux fs/nfs/super.c, nfs_show_mount_options",
        "github.com/kubernetes-sigs/aws-efs-csi-driver issues 130, 178, 973",
    ],
};

/// An SMB client has lost its server.
pub(crate) static SMB_HOST_DOWN: Cause = Cause {
    id: ids::SMB_HOST_DOWN,
    title: "the SMB server is unreachable or rejects this client",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The client has lost its session with the SMB server, and cannot restore it. A call \
        on the volume fails with EHOSTDOWN after a while (`host is down`) or with another error, \
        or waits. kubelet before 1.22, and drivers that call stat(2) before they unmount, fail \
        before the unmount.",
    confirmed_by: &[
        seen(
            "calls of the node's components on the volume fail with EHOSTDOWN, EACCES, ENOTCONN \
             or ETIMEDOUT, or a thread waits in a function of the kernel's SMB client",
            &[Origin::Calls, Origin::Log, Origin::Proc],
        ),
        seen("the object lies on a file system of type cifs or smb3", &[Origin::Mounts]),
        hidden(
            "the server is unreachable for all its clients, and not only slow or closed to this \
             one",
        ),
    ],
    log: log("kubelet or the driver", "stat ...: host is down"),
    look_alikes: &[
        like(ids::CEPHFS_EVICTED, "the file system is of type cifs"),
        like(ids::FUSE_DAEMON_DEAD, "the file system is of type cifs, and not served by FUSE"),
    ],
    ways_out: &[
        way("restore the server, the network to it, or the client's access to it", ""),
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

/// A CephFS client was evicted.
pub(crate) static CEPHFS_EVICTED: Cause = Cause {
    id: ids::CEPHFS_EVICTED,
    title: "CephFS has evicted this node's client",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A metadata server has evicted the node's client, mostly after an interruption of \
        the network, and has blocklisted it. Every call on the volume fails (EACCES, EIO, \
        ESHUTDOWN, ESTALE) or waits, and the client does not recover by itself, unless the volume \
        is mounted with recover_session=clean.",
    confirmed_by: &[
        seen(
            "calls of the node's components on the volume fail with EACCES, EIO, ESHUTDOWN or \
             ESTALE, or a thread waits in a function of the kernel's CephFS client",
            &[Origin::Calls, Origin::Log, Origin::Proc],
        ),
        seen("the object lies on a file system of type ceph", &[Origin::Mounts]),
        seen(
            "the kernel's log says that a metadata server has rejected the session",
            &[Origin::Log],
        ),
        hidden("the kernel's log is about this mount's client"),
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
            "remove the client from the blocklist, if Ceph's administrator agrees",
            "`ceph osd blocklist rm`: data that the client has not yet written may overwrite what \
             others have written since",
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

/// Failed stat requests from logs, and the kernel's messages about the servers.
#[derive(Default)]
pub(crate) struct NetworkStorage {
    errors: StatErrors,
    kernel: KernelSays,
    last: Option<Arc<NodeSample>>,
    /// Targets with a finding.
    found: BTreeSet<u64>,
}

impl NetworkStorage {
    fn listen(&mut self, context: &Context<'_>, said: &Said) {
        self.kernel.listen(said);
        if let Some(look) = &said.looked {
            self.errors.listen(context, said, look);
        }
    }

    /// Asks for the file system of volumes that cannot be read.
    fn sampled(&mut self, context: &Context<'_>, sample: &Arc<NodeSample>, steps: &mut Steps) {
        self.last = Some(sample.clone());
        self.errors.ask(TrackerId::NetworkStorage, (context, sample), &mut self.found, steps);
    }

    fn conclude(
        &mut self,
        context: &Context<'_>,
        target_id: u64,
        path: &Path,
        fs: &FileSystem,
    ) -> Option<Draft> {
        let failed = self.errors.of(path)?;
        let errno = failed.look.outcome.errno()?;
        let cause = judge(errno, &fs.fs_type)?;
        let sample = self.last.as_deref()?;
        let (pod, volume) = sample.volume(target_id)?;
        let (target, (pid, namespace)) = (volume.target.clone(), pod.seen_by?);
        let mut draft =
            Draft::about_state(self.id(), cause, target_id, target, path.to_owned(), context.now);
        failed.logged.tell(&mut draft);
        draft.is_logged = true;
        draft.blocks_deletion = Some(true);
        let (source, fs_type) = (safe(fs.source.as_bytes()), safe(fs.fs_type.as_bytes()));
        draft.fact(
            format!("{} is a mount of {source} of type {fs_type}", safe_path(&fs.point)),
            Source::mountinfo(&fs.table),
        );
        tell(&mut draft, Some(errno), self.kernel.of(&fs.fs_type, &fs.source));
        let others = fs.device.parse().ok().and_then(|it| sharers::of(sample, it, Some(&pod.uid)));
        let view = View::in_namespace(context, namespace, pid);
        unmount(&mut draft, view, &fs.point, fs.id, others);
        self.found.insert(target_id);
        Some(draft)
    }
}

impl Tracker for NetworkStorage {
    fn id(&self) -> TrackerId {
        TrackerId::NetworkStorage
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Said(said) => self.listen(context, said),
            What::Sample(sample) => self.sampled(context, sample, steps),
            What::Answer { query, answer } => {
                if let Some((_, Some(fs))) = ReadFileSystem::answered(query, answer) {
                    steps.found(self.conclude(context, query.target_id, &query.path, fs));
                }
            }
            _ => {}
        }
    }

    fn explains(&self, subject: &Subject<'_>, _: Claim) -> bool {
        self.found.contains(&subject.target_id)
    }

    fn dropped(&self) -> u64 {
        self.errors.dropped()
    }
}

/// Doubt about a lost SMB session.
const WHICH_SIDE: &str = "whether the server is unreachable, or only rejects this client (a \
    changed password, a moved address)";
/// Risk of a forced unmount of NFS. A mount that is detached first (`umount -l`) cannot be forced any more: the processes
/// that use it wait until the server is back, also killed ones.
pub(crate) const FORCED: &str = "what was not written to the server is lost, and the calls that wait for it fail. Not \
    `umount -l`: what waits then keeps waiting, also when it is killed, and `umount -f` finds no mount any more";
/// Doubt about a thread that waits.
pub(crate) const AWAY_OR_SLOW: &str = "whether its server is unreachable, or only slow";
/// Doubt about a line that names no client, as in older kernels.
const WHICH_CLIENT: &str = "whether the kernel's log is about this mount's client";
const NO_EVICTION: &str = "a line in the kernel's log that a metadata server has rejected the \
    session";
const NO_HOST_DOWN: &str = "whether the server is unreachable: this error has other reasons, too";

/// The kind of server that a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// The local end of a tunnel to an NFS server.
    Tunnel,
    Smb,
    Ceph,
}

impl Server {
    /// The cause if this server does not answer.
    pub(crate) fn away(self) -> &'static Cause {
        match self {
            Self::Tunnel => &EFS_STUNNEL_DEAD,
            Self::Smb => &SMB_HOST_DOWN,
            Self::Ceph => &CEPHFS_EVICTED,
        }
    }
}

/// The cause of an error on a file system of this type, if it is known.
pub(crate) fn judge(errno: Errno, fs_type: &str) -> Option<&'static Cause> {
    match errno {
        Errno::EHOSTDOWN | Errno::EACCES | Errno::ENOTCONN | Errno::ETIMEDOUT
            if is_smb(fs_type) =>
        {
            Some(&SMB_HOST_DOWN)
        }
        Errno::EACCES | Errno::EIO | Errno::ESHUTDOWN | Errno::ESTALE if is_ceph(fs_type) => {
            Some(&CEPHFS_EVICTED)
        }
        _ => None,
    }
}

/// The explanation; `errno` is `None` if a thread waits.
fn explanation(cause: &Cause, errno: Option<Errno>) -> &'static str {
    if *cause == SMB_HOST_DOWN && errno.is_none() {
        "The call waits for an SMB server, which does not answer this client. kubelet, umount and \
         the containers' processes that access the volume all wait. If the server answers again, \
         everything resumes."
    } else if *cause == SMB_HOST_DOWN {
        "The node's client has lost its session with the SMB server, and cannot restore it. Every \
         call on the volume fails or waits, also those of kubelet and the driver before they \
         unmount. If the server answers again, and accepts this client, everything resumes."
    } else {
        "Calls on CephFS fail or wait like this when a metadata server has evicted the node's \
         client: the client was unreachable for longer than the cluster waits, and its session is \
         no longer valid. The client does not recover by itself, unless the volume is mounted \
         with recover_session=clean."
    }
}

/// Adds facts, doubts and remedies. `errno` is of a call or stat request, `None` if a thread waits; `kernel` is its
/// message.
pub(crate) fn tell(draft: &mut Draft, errno: Option<Errno>, kernel: Option<&Said>) {
    draft.severity = Severity::Critical;
    draft.explanation = explanation(draft.cause, errno).into();
    if let Some(said) = kernel {
        draft.quote("the kernel", said);
    }
    if *draft.cause == SMB_HOST_DOWN {
        match errno {
            Some(Errno::EHOSTDOWN) => draft.doubt(WHICH_SIDE),
            None if kernel.is_some() => draft.doubt(WHICH_SIDE),
            None => draft.doubt(AWAY_OR_SLOW),
            // The kernel's message is about the server, and the error about the client.
            Some(_) if kernel.is_some() => draft.doubt(WHICH_SIDE),
            Some(_) => draft.lacks(NO_HOST_DOWN),
        }
        draft.rule_out(ids::CEPHFS_EVICTED, "the file system is SMB");
        draft.rule_out(ids::FUSE_DAEMON_DEAD, "the file system is SMB, not FUSE");
        draft.advice(
            "restore the server, the network to it, or the client's access to it: then everything \
             resumes",
            "none",
        );
        return;
    }
    match kernel {
        Some(_) => draft.doubt(WHICH_CLIENT),
        None => draft.lacks(NO_EVICTION),
    }
    for other in [ids::SMB_HOST_DOWN, ids::NFS_STALE_HANDLE, ids::DEVICE_IO_ERROR] {
        draft.rule_out(other, "the file system is CephFS");
    }
    draft.remedy(
        Step::new(
            "show whether Ceph has evicted this node's client",
            "dmesg --ctime | grep -E 'ceph: .*(reconnect denied|rejected session|blocklisted|blacklisted)'",
        ),
        "none",
    );
    draft.advice(
        "ask Ceph's administrator whether this client is blocklisted (`ceph osd blocklist ls`)",
        "none. Removing it from the list while the volume is mounted may overwrite what others \
         have written since",
    );
}

/// Adds the remedy that unmounts the volume; `others` use the same file system.
pub(crate) fn unmount(
    draft: &mut Draft,
    view: View,
    point: &Path,
    id: Option<u32>,
    others: Option<Vec<String>>,
) {
    let (words, risk) = if *draft.cause == SMB_HOST_DOWN {
        (
            "umount -l",
            "what was not written to the server is lost; processes that have files open on it \
             keep them open",
        )
    } else {
        ("umount -f", "what was not written to the servers is lost")
    };
    draft.remedy(
        view.on_mount(words, point, id).so(", whose server is unreachable").forced(others),
        risk,
    );
}

#[cfg(test)]
mod tests;
