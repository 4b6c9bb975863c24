//! The kernel's last messages about network servers and block devices.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::{
    model::{
        file_system::{is_ceph, is_smb},
        said::{Complaint, Said},
    },
    tracker::Context,
};

/// Servers and devices remembered.
const REMEMBERED: usize = 256;
/// How long a warning counts as one of the present.
const RECENT: SignedDuration = SignedDuration::from_mins(10);

/// The last messages, each by what it is about.
#[derive(Default)]
pub(crate) struct KernelSays {
    /// SMB and NFS servers, by lower-case name.
    servers: BTreeMap<String, Said>,
    ceph: Option<Said>,
    /// Block devices, by `major:minor`.
    devices: BTreeMap<String, Said>,
}

impl KernelSays {
    /// Records a log line, if it is the newest about its server or device.
    pub(crate) fn listen(&mut self, said: &Said) {
        match said.complaint {
            Some(Complaint::SessionRejected)
                if self.ceph.as_ref().is_none_or(|before| before.at <= said.at) =>
            {
                self.ceph = Some(said.clone());
            }
            Some(Complaint::ServerSilent) => {
                server(&said.text).into_iter().for_each(|name| keep(&mut self.servers, name, said));
            }
            Some(Complaint::DeviceWarning) => {
                said.devices.iter().for_each(|it| keep(&mut self.devices, it.clone(), said));
            }
            _ => {}
        }
    }

    /// The last message about the server of a mount of this type and source.
    pub(crate) fn of(&self, fs_type: &str, source: &str) -> Option<&Said> {
        if is_ceph(fs_type) {
            return self.ceph.as_ref();
        }
        let server = if is_smb(fs_type) {
            // `//SERVER/SHARE`
            source.trim_start_matches(['/', '\\']).split(['/', '\\']).next()?
        } else if fs_type.starts_with("nfs") {
            // `SERVER:/DIRECTORY`, and an IPv6 address in brackets
            source.split_once(":/")?.0.trim_matches(['[', ']'])
        } else {
            return None;
        };
        let is_smbs = |said: &&Said| is_smb_text(&said.text) == is_smb(fs_type);
        self.servers.get(&server.to_ascii_lowercase()).filter(is_smbs)
    }

    /// The last warning about the device with this number, `major:minor`, if it was written since then: device numbers
    /// are reused.
    pub(crate) fn of_device(&self, number: &str, since: Timestamp) -> Option<&Said> {
        self.devices.get(number).filter(|said| said.at >= since)
    }

    /// The same of the last minutes: an error shows that the device fails at present.
    pub(crate) fn recent(&self, context: &Context<'_>, number: &str) -> Option<&Said> {
        self.of_device(number, context.clock.at(context.now) - RECENT)
    }
}

fn keep(all: &mut BTreeMap<String, Said>, key: String, said: &Said) {
    let known = all.get(&key);
    let is_newer = known.is_none_or(|before| before.at <= said.at);
    if is_newer && (known.is_some() || all.len() < REMEMBERED) {
        all.insert(key, said.clone());
    }
}

/// The server in a line: `CIFS: VFS: \\SERVER has not responded`, or `Server SERVER` before Linux 5.4; `nfs: server
/// SERVER not responding`.
fn server(text: &str) -> Option<String> {
    let ends = [" has not responded in ", " not responding, "];
    let (before, _) = ends.iter().find_map(|end| text.split_once(end))?;
    let name = before.rsplit(' ').next()?.trim_start_matches('\\').trim_matches(['[', ']']);
    (!name.is_empty()).then(|| name.to_ascii_lowercase())
}

fn is_smb_text(text: &str) -> bool {
    text.starts_with("CIFS")
}

#[cfg(test)]
mod tests {
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
        let old = "CIFS VFS: Server old.example has not responded in 120 seconds. x";
        let nfs = "nfs: server NAS.example not responding, still trying";
        for text in [new, old, nfs, "nfs: server fd00::5 not responding, timed out"] {
            says.listen(&said(text, silent, 5));
        }
        let of = |fs_type, source| says.of(fs_type, source).map(|said| said.text.as_str());
        assert_eq!(of("cifs", "//files.example/share"), Some(new));
        assert_eq!(of("smb3", r"\\old.example\share"), Some(old));
        assert_eq!(of("nfs4", "nas.example:/export"), Some(nfs));
        assert!(of("nfs4", "[fd00::5]:/export").is_some());
        for (fs_type, source) in [
            ("cifs", "//other.example/share"),
            ("cifs", "//nas.example/share"),
            ("nfs4", "files.example:/share"),
            ("ext4", "nas.example:/export"),
            ("ceph", "10.0.0.1:6789:/"),
        ] {
            assert_eq!(of(fs_type, source), None, "{fs_type} {source}");
        }
        let denied = Complaint::SessionRejected;
        says.listen(&said("ceph: mds0 reconnect denied", denied, 9));
        says.listen(&said("ceph: mds0 rejected session", denied, 7));
        let last = says.of("ceph", "10.0.0.1:6789:/").map(|said| said.text.as_str());
        assert_eq!(last, Some("ceph: mds0 reconnect denied"), "the last one");
    }
}
