//! What each thread and each helper may do: the least that its work takes. It limits itself first, and
//! then begins to work. `docs/security.md` has the same as a table, and a test reads it from `/proc`.

use std::fs::File;

use caps::Capability::{
    self, CAP_BPF, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SETPCAP, CAP_SYS_ADMIN,
    CAP_SYS_CHROOT, CAP_SYS_PTRACE, CAP_SYSLOG,
};

use crate::{
    privilege::keep,
    refused_calls::{
        self,
        Group::{self, Bpf, Change, Enter, Machine, OpenToWrite, OpenUnseen},
    },
    write_places,
};

/// What a thread, or a helper, is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The main thread once the probes are in: it empties the ring, and gives what the others inherit.
    Run,
    /// Forks helpers and writers, before the run is said to have begun: all that one of them needs. From then
    /// on it is one that looks.
    Fork,
    /// Reads the probes' maps.
    ReadMaps,
    /// Follows calls that hang. The kernel shows its stacks to whoever has `CAP_SYS_ADMIN` when the file is
    /// opened (`proc_pid_stack` in fs/proc/base.c).
    ReadStacks,
    /// Looks at the node, and asks helpers.
    Look,
    /// Has logs read, the kernel's as well.
    ReadLogs,
    /// Has the API server asked: its helper enters kubelet's network and root directory, or runs a program
    /// for credentials, which may write a file of its own.
    AskApi,
    /// Writes to files that are open.
    WriteOpen,
    /// Is there for signals.
    HearSignals,
    /// A process that holds the probes in their hooks.
    Hold,
    /// A helper that looks at files, also of other processes.
    Helper,
    /// One that opens by `openat2(2)`: beneath a directory, or beneath the root of another process.
    HelperBeneath,
    /// One that enters another root directory, network or mount namespace first.
    HelperInside,
    /// One that reads the kernel's log.
    HelperKernelLog,
    /// One that asks the API server, until it has credentials.
    HelperApi,
}

/// `/proc` of other users' processes, and their directories.
const TO_LOOK: [Capability; 2] = [CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH];

impl Role {
    /// Limits this thread, and all that it starts. What the kernel cannot do is left out, and told.
    pub fn assume(self) {
        if let Err(error) = keep(&self.capabilities()) {
            tracing::info!("{self:?} keeps all privileges: {error:#}");
        }
        if let Err(error) = refused_calls::refuse(&self.refused()) {
            tracing::info!("{self:?} may make any system call: {error:#}");
        }
        if matches!(self, Self::WriteOpen | Self::HearSignals | Self::Hold) {
            restrict(None);
        }
    }

    fn capabilities(self) -> Vec<Capability> {
        let more: &[Capability] = match self {
            // Below 5.19, `bpf(2)` on a map that is open takes it, too.
            Self::Run | Self::ReadMaps => &[CAP_BPF],
            Self::ReadStacks => &[CAP_SYS_ADMIN],
            Self::ReadLogs | Self::HelperKernelLog => &[CAP_SYSLOG],
            Self::HelperInside => &[CAP_SYS_ADMIN, CAP_SYS_CHROOT],
            // The bounding set cannot be made smaller without the last.
            Self::Fork => {
                &[CAP_SYS_ADMIN, CAP_SYS_CHROOT, CAP_DAC_OVERRIDE, CAP_SYSLOG, CAP_SETPCAP]
            }
            Self::AskApi | Self::HelperApi => &[CAP_SYS_ADMIN, CAP_SYS_CHROOT, CAP_DAC_OVERRIDE],
            Self::Look | Self::Helper | Self::HelperBeneath => &[],
            Self::WriteOpen | Self::HearSignals | Self::Hold => return Vec::new(),
        };
        [&TO_LOOK, more].concat()
    }

    fn refused(self) -> Vec<Group> {
        let more: &[Group] = match self {
            // The threads of its runtime look at less.
            Self::Run => &[Enter, Change, OpenToWrite],
            Self::ReadMaps => &[Enter, Change, OpenToWrite, OpenUnseen],
            Self::Look | Self::ReadStacks | Self::ReadLogs => &[Bpf, Enter, Change, OpenToWrite],
            Self::Fork | Self::AskApi | Self::HelperApi => &[Bpf],
            Self::WriteOpen | Self::HearSignals | Self::Hold => {
                &[Bpf, Enter, Change, OpenToWrite, OpenUnseen]
            }
            Self::Helper | Self::HelperKernelLog => &[Bpf, Enter, Change, OpenToWrite, OpenUnseen],
            Self::HelperBeneath => &[Bpf, Enter, Change, OpenToWrite],
            // What others name is opened beneath the root that they have.
            Self::HelperInside => &[Bpf, Change, OpenToWrite],
        };
        [&[Machine], more].concat()
    }
}

/// For a helper that from now on talks to the API server, and looks at nothing else: it keeps no
/// capability and writes nowhere.
pub fn only_talk() {
    if let Err(error) = keep(&[]) {
        tracing::info!("the helper keeps its privileges: {error:#}");
    }
    let refused = [Machine, Bpf, Enter, Change, OpenToWrite, OpenUnseen];
    if let Err(error) = refused_calls::refuse(&refused) {
        tracing::info!("the helper may make any system call: {error:#}");
    }
    restrict(None);
}

/// For a helper that has opened by `openat2(2)` what it was asked about.
pub fn open_no_more_unseen() {
    if let Err(error) = refused_calls::refuse(&[OpenUnseen]) {
        tracing::info!("the helper may still open by openat2: {error:#}");
    }
}

/// For a thread that from now on writes files in one directory, whosever it is.
pub fn only_write_beneath(directory: &File) {
    if let Err(error) = keep(&[CAP_DAC_OVERRIDE]) {
        tracing::info!("the export keeps all privileges: {error:#}");
    }
    if let Err(error) = refused_calls::refuse(&[Machine, Bpf, Enter, OpenUnseen]) {
        tracing::info!("the export may make any system call: {error:#}");
    }
    restrict(Some(directory));
}

fn restrict(beneath: Option<&File>) {
    if let Err(error) = write_places::restrict(beneath) {
        tracing::info!("writing is not restricted: {error:#}");
    }
}

/// What of all this the kernel can do.
///
/// # Errors
/// Says what it cannot.
pub fn tried() -> Result<String, String> {
    let seccomp = std::thread::spawn(|| refused_calls::refuse(&[Machine])).join();
    let seccomp = seccomp.map_err(|_| "seccomp cannot be tried".to_owned())?;
    seccomp.map_err(|error| format!("{error:#}"))?;
    Ok(format!("no_new_privs, seccomp, {}", write_places::tried()?))
}

#[cfg(test)]
mod tests {
    use std::{fs, io::ErrorKind, process::Command};

    use nix::mount::{MntFlags, umount2};
    use podstuck_testing::{again, is_started_again};

    use super::*;

    /// In a process of its own: what is given up does not come back.
    fn apart(test: impl FnOnce()) {
        if is_started_again() {
            test();
        } else {
            let ended = again().output().unwrap();
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
        }
    }

    fn is_refused<T>(result: std::io::Result<T>) -> bool {
        result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    }

    #[test]
    fn a_helper_reads_and_executes_and_changes_nothing() {
        apart(|| {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("file");
            fs::write(&file, "text").unwrap();
            let run = || {
                Role::Helper.assume();
                assert_eq!(fs::read_to_string(&file).unwrap(), "text");
                assert!(is_refused(fs::write(&file, "other")));
                assert!(is_refused(fs::write(dir.path().join("new"), "")));
                assert!(is_refused(fs::OpenOptions::new().append(true).open(&file)));
                assert!(is_refused(fs::remove_file(&file)));
                assert!(is_refused(fs::rename(&file, dir.path().join("new"))));
                assert!(is_refused(fs::create_dir(dir.path().join("new"))));
                assert_eq!(umount2("/nowhere", MntFlags::empty()), Err(nix::Error::EPERM));
                assert!(is_refused(std::os::unix::fs::chroot("/")));
                // What it executes, as `journalctl`, can do no more.
                let cat = Command::new("cat").arg(&file).output().unwrap();
                assert_eq!(cat.stdout, b"text");
                assert!(!Command::new("rm").arg(&file).output().unwrap().status.success());
            };
            std::thread::scope(|scope| scope.spawn(run).join().unwrap());
            assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        });
    }

    #[test]
    fn a_helper_that_has_opened_what_it_was_asked_opens_no_more_unseen() {
        use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
        apart(|| {
            let opened =
                || openat2(CWD, "/", OFlags::PATH, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
            let run = || {
                Role::HelperBeneath.assume();
                opened().unwrap();
                open_no_more_unseen();
                assert_eq!(opened().unwrap_err(), rustix::io::Errno::PERM);
                assert!(fs::read_dir("/").unwrap().next().is_some());
            };
            std::thread::scope(|scope| scope.spawn(run).join().unwrap());
            let run = || {
                Role::Helper.assume();
                assert_eq!(opened().unwrap_err(), rustix::io::Errno::PERM);
            };
            std::thread::scope(|scope| scope.spawn(run).join().unwrap());
        });
    }

    #[test]
    fn the_export_writes_in_its_directory_only() {
        apart(|| {
            let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let run = || {
                only_write_beneath(&File::open(dir.path()).unwrap());
                fs::write(dir.path().join("a"), "text").unwrap();
                fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
                if write_places::tried().is_ok() {
                    assert!(is_refused(fs::write(other.path().join("a"), "")));
                    assert!(is_refused(fs::remove_file(other.path().join("c"))));
                } else {
                    println!("skipped in part: no Landlock");
                }
            };
            fs::write(other.path().join("c"), "").unwrap();
            std::thread::scope(|scope| scope.spawn(run).join().unwrap());
        });
    }

    #[test]
    fn who_asks_the_api_server_may_write_until_it_has_credentials() {
        apart(|| {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("file");
            let run = || {
                Role::HelperApi.assume();
                fs::write(&file, "cached").unwrap();
                only_talk();
                assert!(is_refused(fs::write(&file, "")));
                std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            };
            std::thread::scope(|scope| scope.spawn(run).join().unwrap());
            assert_eq!(fs::read_to_string(&file).unwrap(), "cached");
        });
    }
}
