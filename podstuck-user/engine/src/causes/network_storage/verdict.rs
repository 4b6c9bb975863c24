//! What it means that a call on storage on the network fails or waits, in words. Nothing of it was seen
//! with a real server: so it is never more than likely.

use std::path::Path;

use nix::errno::Errno;

use super::causes::{CEPHFS_EVICTED, EFS_STUNNEL_DEAD, SMB_HOST_DOWN};
use crate::{
    cause::Cause,
    command::{Step, View},
    ids,
    model::{
        evidence::Source,
        finding::Severity,
        path::safe,
        said::{Complaint, Said},
    },
    verdict::Draft,
};

/// What else could be behind a lost SMB session.
const WHICH_SIDE: &str = "whether the server is away, or only takes this client no more (a password that was \
    changed, an address that has moved)";
/// A wait says no more.
pub(crate) const AWAY_OR_SLOW: &str = "whether its server is away, or only slow";
/// Older kernels name no client in that line.
const WHICH_CLIENT: &str = "whether the kernel's log speaks of this mount's client";
const NO_EVICTION: &str = "that a metadata server has rejected the session, in the kernel's log";
const NO_HOST_DOWN: &str = "that the server is away: this error has other reasons, too";

/// Whose answer a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// The end of a tunnel on this node, behind which is NFS.
    Tunnel,
    Smb,
    Ceph,
}

impl Server {
    /// The cause of its not answering.
    pub(crate) fn away(self) -> &'static Cause {
        match self {
            Self::Tunnel => &EFS_STUNNEL_DEAD,
            Self::Smb => &SMB_HOST_DOWN,
            Self::Ceph => &CEPHFS_EVICTED,
        }
    }
}

/// Of SMB.
pub(crate) fn is_smb(fs_type: &str) -> bool {
    ["cifs", "smb3"].contains(&fs_type)
}

/// Of Ceph.
pub(crate) fn is_ceph(fs_type: &str) -> bool {
    fs_type == "ceph"
}

/// By an error on a file system of this type.
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

/// What it means; without an errno, that a thread waits.
fn explanation(cause: &Cause, errno: Option<Errno>) -> &'static str {
    if *cause == SMB_HOST_DOWN && errno.is_none() {
        "The call waits for an SMB server, which does not answer this client. kubelet, umount and the containers' \
         processes that touch the volume all wait. If the server answers again, everything resumes."
    } else if *cause == SMB_HOST_DOWN {
        "The node's client has lost its session with the SMB server and does not get it back. Whoever looks at \
         the volume fails or waits: kubelet before it comes to unmount, and the driver as well. If the server \
         answers again, and takes this client, everything resumes."
    } else {
        "CephFS gives such errors, and lets calls wait, when a metadata server has evicted the node's client: it \
         was away for longer than the cluster waits, and what it holds is no longer valid. It does not come back \
         by itself, unless the volume is mounted with recover_session=clean."
    }
}

/// Says what is known: `errno` of a call or a look, or that a thread waits; the kernel's word, if there is one.
pub(crate) fn tell(draft: &mut Draft, errno: Option<Errno>, kernel: Option<&Said>) {
    draft.severity = Severity::Critical;
    draft.explanation = explanation(draft.cause, errno).into();
    if let Some(said) = kernel {
        let text = safe(said.text.as_bytes());
        draft.fact(
            format!("the kernel said at {:.0}: {text}", said.at),
            Source::Log(said.source.clone()),
        );
    }
    if *draft.cause == SMB_HOST_DOWN {
        match errno {
            Some(Errno::EHOSTDOWN) => draft.doubt(WHICH_SIDE),
            None if kernel.is_some() => draft.doubt(WHICH_SIDE),
            None => draft.doubt(AWAY_OR_SLOW),
            // The kernel's word is about the server, and the error about the client.
            Some(_) if kernel.is_some() => draft.doubt(WHICH_SIDE),
            Some(_) => draft.lacks(NO_HOST_DOWN),
        }
        draft.rule_out(ids::CEPHFS_EVICTED, "it is a file system of SMB");
        draft.rule_out(ids::FUSE_DAEMON_DEAD, "it is a file system of SMB, not of FUSE");
        draft.advice(
            "bring the server, the way to it, or the client's right to it back: then everything resumes",
            "none",
        );
        return;
    }
    match kernel {
        Some(_) => draft.doubt(WHICH_CLIENT),
        None => draft.lacks(NO_EVICTION),
    }
    for other in [ids::SMB_HOST_DOWN, ids::NFS_STALE_HANDLE, ids::DEVICE_IO_ERROR] {
        draft.rule_out(other, "it is a file system of Ceph");
    }
    draft.remedy(
        Step::new(
            "show whether Ceph has evicted this node's client",
            "dmesg --ctime | grep -E 'ceph: .*(reconnect denied|rejected session|blocklisted|blacklisted)'",
        ),
        "none",
    );
    draft.advice(
        "have Ceph's administrator look whether this client is blocklisted (`ceph osd blocklist ls`)",
        "none. To take it off the list while it is mounted may overwrite what others wrote since",
    );
}

/// The way out that leaves the storage alone; `others` have the same file system.
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
            "what was not written to the server is lost; who has files open on it keeps them",
        )
    } else {
        ("umount -f", "what was not written to the servers is lost")
    };
    draft.remedy(view.on_mount(words, point, id).so(", whose server is away").forced(others), risk);
}

/// The last that the kernel said of servers on the network.
#[derive(Default)]
pub(crate) struct KernelSays {
    /// Of SMB servers, by name.
    smb: std::collections::BTreeMap<String, Said>,
    /// Of Ceph.
    ceph: Option<Said>,
}

/// Servers remembered.
const SERVERS: usize = 64;

impl KernelSays {
    /// Somebody says something.
    pub(crate) fn listen(&mut self, said: &Said) {
        let is_newer = |before: Option<&Said>| before.is_none_or(|before| before.at <= said.at);
        match said.complaint {
            Some(Complaint::SessionRejected) if is_newer(self.ceph.as_ref()) => {
                self.ceph = Some(said.clone());
            }
            Some(Complaint::ServerSilent) => {
                let Some(server) = smb_server(&said.text) else { return };
                let known = self.smb.get(&server);
                if is_newer(known) && (known.is_some() || self.smb.len() < SERVERS) {
                    self.smb.insert(server, said.clone());
                }
            }
            _ => {}
        }
    }

    /// Of the server of a mount of this type and source.
    pub(crate) fn of(&self, fs_type: &str, source: &str) -> Option<&Said> {
        if is_ceph(fs_type) {
            return self.ceph.as_ref();
        }
        // `//SERVER/SHARE`
        let server = source.trim_start_matches(['/', '\\']).split(['/', '\\']).next()?;
        self.smb.get(&server.to_ascii_lowercase()).filter(|_| is_smb(fs_type))
    }
}

/// Whom a line is about: `CIFS: VFS: \\SERVER has not responded`, and `Server SERVER` before Linux 5.4.
fn smb_server(text: &str) -> Option<String> {
    let (before, _) = text.split_once(" has not responded in ")?;
    let name = before.rsplit(' ').next()?.trim_start_matches('\\');
    (!name.is_empty()).then(|| name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::model::identity::Component;

    fn said(text: &str, complaint: Complaint, second: i64) -> Said {
        let at = Timestamp::from_second(second).unwrap();
        let said = Said::new(Component::Other, "log of the kernel, /dev/kmsg", "", at, text);
        Said { complaint: Some(complaint), ..said }
    }

    #[test]
    fn the_kernel_speaks_of_a_server_and_not_of_all() {
        let mut says = KernelSays::default();
        let silent = Complaint::ServerSilent;
        let new = r"CIFS: VFS: \\Files.example has not responded in 180 seconds. Reconnecting...";
        says.listen(&said(new, silent, 5));
        says.listen(&said(
            "CIFS VFS: Server old.example has not responded in 120 seconds. x",
            silent,
            6,
        ));
        assert_eq!(
            says.of("cifs", "//files.example/share").map(|said| said.text.as_str()),
            Some(new)
        );
        assert!(says.of("smb3", r"\\old.example\share").is_some());
        assert!(says.of("cifs", "//other.example/share").is_none());
        assert!(says.of("nfs4", "//files.example/share").is_none());
        assert!(says.of("ceph", "10.0.0.1:6789:/").is_none());
        let denied = Complaint::SessionRejected;
        says.listen(&said("ceph: mds0 reconnect denied", denied, 9));
        says.listen(&said("ceph: mds0 rejected session", denied, 7));
        let last = says.of("ceph", "10.0.0.1:6789:/").map(|said| said.text.as_str());
        assert_eq!(last, Some("ceph: mds0 reconnect denied"), "the last one");
    }

    #[test]
    fn an_error_means_something_on_its_file_system_alone() {
        let id = |errno, fs_type| judge(errno, fs_type).map(|cause| cause.id.as_str());
        for errno in [Errno::EHOSTDOWN, Errno::EACCES, Errno::ENOTCONN, Errno::ETIMEDOUT] {
            assert_eq!(id(errno, "cifs"), Some("smb-host-down"));
            assert_eq!(id(errno, "ext4"), None);
        }
        for errno in [Errno::EACCES, Errno::EIO, Errno::ESHUTDOWN, Errno::ESTALE] {
            assert_eq!(id(errno, "ceph"), Some("cephfs-evicted"));
            assert_eq!(id(errno, "nfs4"), None);
        }
        assert_eq!(id(Errno::EBUSY, "cifs"), None);
    }
}
