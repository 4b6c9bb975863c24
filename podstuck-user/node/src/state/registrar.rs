//! Who registers CSI drivers with kubelet: a registrar, mostly a container of the driver's pod, or the driver
//! itself.

use std::{
    collections::HashSet,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{
    memory::ReadCommandLine,
    pod_dirs::USUAL_SOCKET,
    sockets::{self, Listener},
};
use podstuck_confine::helper;
use podstuck_model::path::safe;

/// The option with the path that a registrar passes to kubelet
/// (kubernetes-csi/node-driver-registrar, cmd/csi-node-driver-registrar/main.go).
const OPTION: &[u8] = b"kubelet-registration-path";
/// The end of the name of its own socket, behind the driver's (the same file).
const SOCKET: &[u8] = b"-reg.sock";

/// A driver's name, safe to be shown, and the process that has registered it.
pub(super) type Registered = (String, u32);

/// All that are registered now. Other plugins register in the same way (DRA drivers): they have no socket of
/// a CSI driver.
pub(super) fn registered() -> Vec<Registered> {
    let listening = sockets::listening();
    let endpoint = |listener: &&Listener| listener.path.ends_with(USUAL_SOCKET);
    let inodes = listening.iter().filter(|l| endpoint(l) || driver(l).is_some());
    let owners = sockets::owners(&inodes.map(|listener| listener.inode).collect());
    let of = |listener: &Listener| owners.get(&listener.inode).copied();
    let serving: HashSet<u32> = listening.iter().filter(endpoint).filter_map(of).collect();
    let is_csi = |pid: u32| {
        let command = || helper::ask(ReadCommandLine { pid }).unwrap_or_default();
        serving.contains(&pid) || is_csi_registrar(&command())
    };
    let named = listening.iter().filter_map(|listener| Some((driver(listener)?, of(listener)?)));
    let mut found: Vec<Registered> = named.filter(|(_, pid)| is_csi(*pid)).collect();
    found.sort();
    found.dedup();
    found
}

fn driver(listener: &Listener) -> Option<String> {
    let name = listener.path.file_name()?.as_bytes().strip_suffix(SOCKET)?;
    Some(safe(name).into_owned())
}

fn is_csi_registrar(command: &[u8]) -> bool {
    is_registrar(command) || registration_path(command).is_some()
}

/// The words of a command line.
fn words(command: &[u8]) -> impl Iterator<Item = &[u8]> {
    command.split(|byte| *byte == 0)
}

/// Whether a process does nothing but register a driver, by its command line.
pub(super) fn is_registrar(command: &[u8]) -> bool {
    // The program, or its first word where one program does both.
    words(command).take(2).any(|word| String::from_utf8_lossy(word).contains("registrar"))
}

/// The path that a registrar hands to kubelet.
pub(super) fn registration_path(command: &[u8]) -> Option<PathBuf> {
    let mut words = words(command);
    let value = loop {
        // Go's options have one dash or two.
        let Some(name) = words.next()?.strip_prefix(b"-") else { continue };
        match name.strip_prefix(b"-").unwrap_or(name).strip_prefix(OPTION) {
            Some(b"") => break words.next()?,
            Some([b'=', value @ ..]) => break value,
            _ => {}
        }
    };
    let path = Path::new(OsStr::from_bytes(value));
    path.is_absolute().then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_registrar_says_which_path_kubelet_calls() {
        let path = |words: &str| registration_path(words.replace(' ', "\0").as_bytes());
        let socket = Some(PathBuf::from("/var/lib/kubelet/plugins/x/csi.sock"));
        for option in ["--kubelet-registration-path=", "-kubelet-registration-path "] {
            let command =
                format!("/registrar --v=5 {option}/var/lib/kubelet/plugins/x/csi.sock -x");
            assert_eq!(path(&command), socket, "{command}");
        }
        assert_eq!(path("/driver --endpoint=unix:///csi/csi.sock"), None);
        assert_eq!(path("/registrar --kubelet-registration-path"), None);
        assert_eq!(path("/registrar --kubelet-registration-path=x"), None);
        assert!(is_registrar(b"/csi-node-driver-registrar\0--v=5"));
        assert!(is_registrar(b"/csi\0registrar\0--name"));
        assert!(!is_registrar(b"/driver\0--endpoint\0/registrar"));
    }

    /// Here one process is both; what registers and serves no volumes is another kind of plugin.
    #[test]
    fn a_driver_that_has_registered_is_named_by_its_socket() {
        let top = tempfile::tempdir().unwrap();
        let name = format!("d{}.example", std::process::id());
        let is_named = || registered().contains(&(name.clone(), std::process::id()));
        let _registers = UnixListener::bind(top.path().join(format!("{name}-reg.sock"))).unwrap();
        assert!(!is_named());
        let _serves = UnixListener::bind(top.path().join("csi.sock")).unwrap();
        assert!(is_named());
    }
}
