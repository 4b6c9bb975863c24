//! The privileges of each thread and each helper: the least that its work takes. It drops the rest first, and then
//! begins to work. `docs/security.md` has the same as a table, and a test reads it from `/proc`.

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

/// The purpose of a thread or a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The main thread once the probes are attached: it empties the ring, and has every privilege that the others
    /// inherit.
    Run,
    /// Forks helpers and writers, until the run is reported to have begun: has all that one of them needs. After that
    /// it has the privileges of [`Self::Look`].
    Fork,
    /// Reads the probes' maps.
    ReadMaps,
    /// Follows hung calls. The kernel shows their stacks to a process that has `CAP_SYS_ADMIN` when it opens the file
    /// (`proc_pid_stack` in fs/proc/base.c).
    ReadStacks,
    /// Scans the node, and asks helpers.
    Look,
    /// Asks helpers to read logs, including the kernel's.
    ReadLogs,
    /// Asks a helper to query the API server: the helper enters kubelet's network namespace and root directory, or
    /// runs a program for credentials, which may write a file of its own.
    AskApi,
    /// Writes to files that are already open.
    WriteOpen,
    /// Waits for signals.
    HearSignals,
    /// A process that keeps the probes attached.
    Hold,
    /// A helper that reads files, also those of other processes.
    Helper,
    /// A helper that opens by `openat2(2)`: beneath a directory, or beneath the root of another process.
    HelperBeneath,
    /// A helper that first enters another root directory, network namespace or mount namespace.
    HelperInside,
    /// A helper that reads the kernel's log.
    HelperKernelLog,
    /// A helper that queries the API server, until it has credentials.
    HelperApi,
}

/// For reading `/proc` of other users' processes, and their directories.
const TO_LOOK: [Capability; 2] = [CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH];

impl Role {
    /// Restricts this thread and all that it starts. Restrictions that the kernel does not support are skipped and
    /// logged.
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
            // Before Linux 5.19, `bpf(2)` on an open map needs it, too.
            Self::Run | Self::ReadMaps => &[CAP_BPF],
            Self::ReadStacks => &[CAP_SYS_ADMIN],
            Self::ReadLogs | Self::HelperKernelLog => &[CAP_SYSLOG],
            Self::HelperInside => &[CAP_SYS_ADMIN, CAP_SYS_CHROOT],
            // Shrinking the bounding set needs the last.
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
            // The threads of its runtime read less.
            Self::Run => &[Enter, Change, OpenToWrite],
            Self::ReadMaps => &[Enter, Change, OpenToWrite, OpenUnseen],
            Self::Look | Self::ReadStacks | Self::ReadLogs => &[Bpf, Enter, Change, OpenToWrite],
            Self::Fork | Self::AskApi | Self::HelperApi => &[Bpf],
            Self::WriteOpen | Self::HearSignals | Self::Hold => {
                &[Bpf, Enter, Change, OpenToWrite, OpenUnseen]
            }
            Self::Helper | Self::HelperKernelLog => &[Bpf, Enter, Change, OpenToWrite, OpenUnseen],
            Self::HelperBeneath => &[Bpf, Enter, Change, OpenToWrite],
            // Paths that other processes name are opened beneath the root of those processes.
            Self::HelperInside => &[Bpf, Change, OpenToWrite],
        };
        [&[Machine], more].concat()
    }
}

/// For a helper that from now on only talks to the API server: it keeps no capability and writes nowhere.
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

/// For a helper that has already opened by `openat2(2)` the file that it was asked about.
pub fn open_no_more_unseen() {
    if let Err(error) = refused_calls::refuse(&[OpenUnseen]) {
        tracing::info!("the helper may still open by openat2: {error:#}");
    }
}

/// For a thread that from now on only writes files in one directory, of any owner.
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

/// The restrictions that the kernel supports.
///
/// # Errors
/// Fails with the restriction that it does not support.
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

    /// Runs in a process of its own: dropped privileges do not come back.
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
                // A program that it executes, such as `journalctl`, can do no more.
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
    fn what_is_refused_already_is_refused_by_no_second_filter() {
        let filters = || {
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            let count = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
            count.map(|count| count.trim().parse::<u32>().unwrap())
        };
        apart(|| {
            let run = || {
                let Some(before) = filters() else {
                    println!("skipped: Linux before 5.9 does not count filters");
                    return;
                };
                Role::Look.assume();
                Role::ReadLogs.assume();
                assert_eq!(filters(), Some(before + 1));
                Role::Helper.assume();
                assert_eq!(filters(), Some(before + 2), "it opens nothing unseen");
                assert!(is_refused(fs::write("/nowhere/file", "")));
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
    fn the_api_helper_may_write_until_it_has_credentials() {
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
