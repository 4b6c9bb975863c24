//! A tenant: root of a container of runc's, with the capabilities that containerd gives a container, in the
//! control group of a pod of his own. He may make a user namespace, in which he mounts what he likes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    unreachable_pub,
    reason = "a test stops at the first surprise, and each uses a part of this"
)]

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use podstuck_tests::{Ending, beside_the_tests};
use serde_json::{Value, json};
use tempfile::TempDir;

/// `defaultUnixCaps` of containerd's oci/spec.go.
const CAPABILITIES: [&str; 14] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
];
/// Debian has it where only root looks.
const PROGRAMS: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Of the container: 64 digits, as the runtimes of Kubernetes give them.
const ID: &str = "7e4a47000000000000000000000000000000000000000000000000000000cafe";
/// Of his pod.
pub const TENANT: &str = "7e4a4700-0000-4000-8000-00000000cafe";

/// What a test of attacks needs.
pub fn runc() -> Result<(), &'static str> {
    let there = PROGRAMS.split(':').any(|dir| Path::new(dir).join("runc").exists());
    if there { Ok(()) } else { Err("no runc") }
}

/// The container, which ends with the test and all that is in it.
pub struct Tenant {
    top: TempDir,
    group: String,
}

impl Tenant {
    /// `mounts` are directories of the node's that he is given, and where.
    pub fn start(mounts: &[(&Path, &str)]) -> Self {
        let top = tempfile::Builder::new().prefix("podstuck-test-").tempdir_in("/run").unwrap();
        let group = format!("podstuck-test-{}", std::process::id());
        let this = Self { top, group };
        this.make_root();
        let config = this.config(mounts);
        fs::write(this.at("config.json"), config.to_string()).unwrap();
        let mut run =
            this.runc(&["run", "--detach", "--bundle", this.at("").to_str().unwrap(), ID]);
        // It keeps what it is given as output.
        let log = fs::File::create(this.at("log")).unwrap();
        run.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let status = run.status().unwrap();
        assert!(status.success(), "{}", fs::read_to_string(this.at("log")).unwrap());
        this
    }

    /// What he does, until it is done.
    pub fn does(&self, script: &str) {
        let out = self.shell(script).output().unwrap();
        let error = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{script}: {error}");
    }

    /// What he begins, and goes on with: until he says that it is `ready`.
    pub fn begins(&self, script: &str) -> Begun {
        let mut shell = self.shell(script);
        let mut child = Ending::start(shell.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let begun = Begun(child);
        assert_eq!(line, "ready\n", "{script}");
        begun
    }

    /// A file of his root directory, as the node sees it.
    pub fn file(&self, path: &str) -> PathBuf {
        self.at("rootfs").join(path.strip_prefix('/').unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    fn shell(&self, script: &str) -> Command {
        self.runc(&["exec", ID, "/bin/sh", "-c", script])
    }

    fn runc(&self, args: &[&str]) -> Command {
        let mut command = Command::new("runc");
        command.env("PATH", PROGRAMS).arg("--root").arg(self.at("state")).args(args);
        command
    }

    /// As containers have it: an overlay. What is in it are the node's programs.
    fn make_root(&self) {
        let (none, flags) = (None::<&str>, MsFlags::empty());
        mount(Some("tenant"), self.top.path(), Some("tmpfs"), flags, none).unwrap();
        for name in ["lower", "upper", "work", "rootfs", "state"] {
            fs::create_dir(self.at(name)).unwrap();
        }
        for name in ["data", "dev", "etc", "proc", "sys", "tmp", "usr", "var"] {
            fs::create_dir(self.at("lower").join(name)).unwrap();
        }
        fs::write(self.at("lower/tenant"), "").unwrap();
        for name in merged() {
            symlink(format!("usr/{name}"), self.at("lower").join(name)).unwrap();
        }
        let [lower, upper, work] = ["lower", "upper", "work"].map(|name| self.at(name));
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            upper.display(),
            work.display()
        );
        let options = Some(options.as_str());
        mount(Some("overlay"), &self.at("rootfs"), Some("overlay"), flags, options).unwrap();
    }

    fn config(&self, given: &[(&Path, &str)]) -> Value {
        let bind = |from: &Path, to: &str, access: &str| json!({"destination": to, "type": "bind", "source": from, "options": ["rbind", access]});
        let mut mounts = vec![
            json!({"destination": "/proc", "type": "proc", "source": "proc"}),
            json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
                "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]}),
            json!({"destination": "/dev/shm", "type": "tmpfs", "source": "shm"}),
            // As with `cgroup_writable` of containerd.
            json!({"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup",
                "options": ["nosuid", "noexec", "nodev", "relatime", "rw"]}),
            bind(Path::new("/usr"), "/usr", "ro"),
            bind(&beside_the_tests("podstuck-tenant"), "/tenant", "ro"),
        ];
        mounts.extend(given.iter().map(|(from, to)| bind(from, to, "rw")));
        let mut namespaces = vec!["pid", "ipc", "uts", "mount", "network"];
        if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
            namespaces.push("cgroup");
        }
        let namespaces: Vec<Value> =
            namespaces.into_iter().map(|kind| json!({"type": kind})).collect();
        // Device plugins give it to builders of images and the like.
        let fuse =
            json!({"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229, "fileMode": 0o666});
        json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": ["/bin/sleep", "9999"],
                "env": [format!("PATH={PROGRAMS}")],
                "cwd": "/",
                "capabilities": {
                    "bounding": CAPABILITIES,
                    "effective": CAPABILITIES,
                    "permitted": CAPABILITIES,
                },
            },
            "root": {"path": "rootfs"},
            "mounts": mounts,
            "linux": {
                "namespaces": namespaces,
                "devices": [fuse],
                "resources": {"devices": [
                    {"allow": false, "access": "rwm"},
                    {"allow": true, "type": "c", "major": 10, "minor": 229, "access": "rwm"},
                ]},
                "cgroupsPath": format!("/{}/pod{TENANT}/{ID}", self.group),
            },
        })
    }
}

/// Directories of the node that are links into `/usr`.
fn merged() -> impl Iterator<Item = &'static str> {
    ["bin", "lib", "lib64", "sbin"].into_iter().filter(|name| Path::new("/usr").join(name).is_dir())
}

impl Drop for Tenant {
    fn drop(&mut self) {
        // Whatever fails here, the next step is tried: a test may have ended anywhere.
        // With its first process all others of its process namespace end.
        let _ = self.runc(&["delete", "--force", ID]).output();
        for mounted in [self.at("rootfs"), self.top.path().to_owned()] {
            let _ = umount2(&mounted, MntFlags::MNT_DETACH);
        }
        let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        for tree in hierarchies.map(|entry| entry.path()).chain(["/sys/fs/cgroup".into()]) {
            remove_groups(&tree.join(&self.group));
        }
    }
}

/// What goes on in the container, until it is dropped.
pub struct Begun(Ending);

impl Begun {
    /// Waits until it is done; whether it worked.
    pub fn succeeds(mut self) -> bool {
        self.0.wait().unwrap().success()
    }
}

/// A control group with those below it.
fn remove_groups(group: &Path) {
    for below in fs::read_dir(group).into_iter().flatten().flatten() {
        if below.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&below.path());
        }
    }
    let _ = fs::remove_dir(group);
}
