//! A running process, by the kernel's data about it. A process chooses its name, its command line and the path of its
//! program; it does not choose its control group, its credentials and its start time.

use std::path::Path;

use super::{cgroup::group_of, component::component};
pub use podstuck_confine::credentials::may_be_root;
use podstuck_confine::{
    credentials::{is_maybe_root, is_started_by_root},
    proc, silent,
};
use podstuck_model::identity::Component;

/// The data that is read of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Living {
    /// Name of its main thread.
    pub comm: Vec<u8>,
    /// Path of its control group.
    pub cgroup: String,
    /// Whether it is the node's root, which mounts and unmounts: see [`is_root`].
    pub is_root: bool,
    /// Inode number of its mount namespace; 0 when that could not be read.
    pub mnt_ns: u32,
    /// Start time in clock ticks since boot; identifies the process together with its id.
    pub started: u64,
}

impl Living {
    /// Reads a process, given its directory in `/proc`; `None` when it has ended, or not all of it could be read. May
    /// block for as long as the process hangs in the execution of a program.
    pub(crate) fn look(process: &Path) -> Option<Self> {
        let cgroup = group_of(process)?;
        let namespace = proc::namespace(process, "mnt");
        Some(Self {
            comm: proc::comm(process),
            cgroup,
            is_root: is_known_root(process)?,
            mnt_ns: namespace.as_deref().and_then(proc::mount_namespace).unwrap_or(0),
            // Read last: so the other data is of this process, and not of an earlier one with its id.
            started: proc::stat_in(process)?.1,
        })
    }

    /// The component that it is on the node.
    pub(crate) fn component(&self) -> Component {
        component(&self.comm, &self.cgroup, self.is_root)
    }
}

/// Whether a process is the node's root: all its ids are 0, and were when its program was executed, and it has
/// `CAP_SYS_ADMIN` in the user namespace of this tool. kubelet, runtimes and their helpers have it, as they mount. The root
/// of a container lacks the capability, the root of another user namespace has it only there, and a set-user-ID program
/// was started by another user.
pub fn is_root(process: &Path) -> bool {
    is_known_root(process).unwrap_or(false)
}

/// The same; `None` when that could not be read.
fn is_known_root(process: &Path) -> Option<bool> {
    // The first two files take no lock of the process. Links are read only if these do not decide.
    if !is_maybe_root(process)? {
        return Some(false);
    }
    let auxv = silent::read(process, |process| std::fs::read(process.join("auxv")).ok())?;
    if !is_started_by_root(&auxv)? {
        return Some(false);
    }
    let namespace = |process: &Path| proc::namespace(process, "user");
    Some(namespace(process)? == namespace(Path::new("/proc/self"))?)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{Read, Write},
        process::{Child, Command, Stdio},
    };

    use super::*;
    use podstuck_confine::credentials::is_privileged;

    #[test]
    fn fuzz_proc_status() {
        podstuck_fuzz::fuzz("proc_status", |input| {
            let _ = is_privileged(input);
        });
    }

    #[test]
    fn root_has_roots_ids_alone_and_may_mount() {
        let all = "000001fffeffffff";
        let table = [
            (["0\t0\t0\t0", "0\t0\t0\t0"], all, true),
            // A set-user-ID program of a user: `su` that waits for a password, and `fusermount3`.
            (["1000\t0\t0\t0", "1000\t1000\t1000\t1000"], all, false),
            (["1000\t0\t0\t0", "0\t0\t0\t0"], all, false),
            (["0\t0\t0\t1000", "0\t0\t0\t0"], all, false),
            (["0\t0\t0\t0", "1000\t0\t0\t0"], all, false),
            (["0\t9\t0\t0", "0\t0\t0\t0"], all, false),
            // containerd's default for a container
            (["0\t0\t0\t0", "0\t0\t0\t0"], "00000000a80425fb", false),
            (["0\t0", "0\t0"], all, false),
        ];
        for ([uid, gid], capabilities, expected) in table {
            let status =
                format!("Name:\tkubelet\nUid:\t{uid}\nGid:\t{gid}\nCapEff:\t{capabilities}\n");
            assert_eq!(is_privileged(status.as_bytes()), expected, "{status}");
        }
        // The kernel writes a newline in a name as two characters.
        for other in ["Name:\tx\\nUid:\t0\t0\n", ""] {
            assert!(!is_privileged(other.as_bytes()), "{other}");
        }
    }

    /// A process that is named kubelet, with a flag for its root.
    struct Pretender(Child);

    impl Pretender {
        fn start(program: &str, before: &[&str]) -> Self {
            let script = "printf kubelet > /proc/$$/comm; echo; read wait";
            let child = Command::new(program)
                .args(before)
                .args(["sh", "-c", script, "kubelet", "--root-dir=/tmp/mine"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut this = Self(child);
            this.hear();
            this
        }

        /// As root of a user namespace with all of the node's user ids: a process that may set ids can create one.
        fn of_all_users() -> Self {
            let script =
                "echo; read go; exec sh -c 'printf kubelet > /proc/$$/comm; echo; read wait'";
            let mut child = Command::new("unshare");
            child.args(["--user", "sh", "-c", script]).stdin(Stdio::piped());
            let mut this = Self(child.stdout(Stdio::piped()).spawn().unwrap());
            this.hear();
            for map in ["uid_map", "gid_map"] {
                fs::write(format!("/proc/{}/{map}", this.0.id()), "0 0 4294967295").unwrap();
            }
            this.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            this.hear();
            this
        }

        fn hear(&mut self) {
            self.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        }

        fn look(&self) -> Living {
            Living::look(Path::new(&format!("/proc/{}", self.0.id()))).unwrap()
        }
    }

    impl Drop for Pretender {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_named_kubelet_is_judged_by_its_privileges() {
        if !may_be_root(Path::new("/proc/self")) {
            return podstuck_testing::skip("root is needed to start processes that are not");
        }
        let root = Pretender::start("env", &[]).look();
        assert_eq!((root.comm.as_slice(), root.component()), (&b"kubelet"[..], Component::Kubelet));
        let default = "--bounding-set=-all,+chown,+dac_override,+fowner,+fsetid,+setuid,+setgid";
        let of_container = Pretender::start("setpriv", &[default]).look();
        assert_eq!(of_container.component(), Component::Workload);
        for more in [&["--user", "--map-root-user"][..], &["--user", "--mount", "--map-root-user"]]
        {
            let of_its_own = Pretender::start("unshare", more).look();
            assert_eq!(of_its_own.comm, b"kubelet");
            assert_eq!(of_its_own.component(), Component::Workload, "{more:?}");
        }
        let of_all_users = Pretender::of_all_users();
        let process = format!("/proc/{}", of_all_users.0.id());
        assert!(may_be_root(Path::new(&process)), "it looks like root, but for its namespace");
        assert_eq!(of_all_users.look().component(), Component::Workload);
        // kubelet may have its own mount namespace.
        let private = Pretender::start("unshare", &["--mount"]).look();
        assert_eq!(private.component(), Component::Kubelet);
        assert_ne!(private.mnt_ns, root.mnt_ns);
    }

    #[test]
    fn a_process_that_has_ended_is_not_read() {
        assert_eq!(Living::look(Path::new("/proc/1073741823")), None);
        assert!(!is_root(Path::new("/proc/1073741823")));
    }
}
