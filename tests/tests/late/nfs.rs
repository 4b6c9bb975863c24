//! Volumes of a real NFS server: it stops answering, and it forgets the directory that it has exported.

#[path = "nfs/server.rs"]
mod server;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use podstuck_tests::requires;
use serde_json::Value;

use super::{Node, answer, klog};
use server::{ADDRESS, CLIENT, Server, nfs};

const GROUPS: &str = "/sys/fs/cgroup/podstuck-late";
/// The shell of an administrator. In a guest, `/bin/sh` would run the programs that busybox has in itself.
const SHELL: &str = "/usr/bin/sh";
/// Longer than anything takes that is released.
const RELEASED: Duration = Duration::from_secs(30);

/// A pod with a volume on the server.
struct Pod {
    node: Node,
    container: Option<Child>,
}

impl Pod {
    fn new(number: u8, error: &str) -> Self {
        let pod = Self { node: Node::new(number, error), container: None };
        // With a superblock of its own, so that it shares nothing with the other pods' mounts.
        let options = format!("vers=4.2,hard,nosharecache,addr={ADDRESS},clientaddr={CLIENT}");
        let (source, volume) = (format!("{ADDRESS}:/v"), pod.node.volume());
        mount(Some(&*source), &volume, Some("nfs4"), MsFlags::empty(), Some(&*options)).unwrap();
        pod
    }

    /// Its deletion has not come further than the end of its containers.
    fn only_killed(number: u8) -> Self {
        let pod = Self::new(number, "");
        let text = format!(
            "\"Killing container with a grace period\" pod=\"shop/{}\" podUID=\"{}\" gracePeriod=30",
            pod.node.name(),
            pod.node.uid
        );
        fs::write(pod.node.directory.path().join("kubelet.log"), klog(60, 'I', &text)).unwrap();
        pod
    }

    fn point(&self) -> String {
        self.node.volume().to_str().unwrap().to_owned()
    }

    fn group(&self) -> PathBuf {
        Path::new(GROUPS).join(format!("pod{}", self.node.uid)).join("c0ffee00".repeat(8))
    }

    /// Starts its container, which has files of the volume open.
    fn run(&mut self) {
        fs::create_dir_all(self.group()).unwrap();
        let mut container = Command::new(SHELL)
            .args(["-ec", "echo $$ >$1/cgroup.procs; exec 3>>$2/log 4>>$2/data 5<$2/log; echo ready; read line", "app"])
            .args([self.group(), self.node.volume()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(container.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        self.container = Some(container);
    }

    /// The first cause of the answer, which must be this one and name the mount and its server.
    fn diagnose(&self, id: &str) -> Value {
        let begin = Instant::now();
        let (lines, _) = self.node.diagnose("100s");
        println!("measured: {id} after {:.1?}", begin.elapsed());
        let answer = answer(&lines);
        let cause = &answer["causes"][0];
        assert_eq!(cause["id"], id, "{answer:#}");
        let text = cause.to_string();
        assert!(text.contains(&self.point()) && text.contains(ADDRESS), "{cause:#}");
        cause.clone()
    }

    /// Runs the first command as it is printed.
    fn obey(&self, cause: &Value) {
        let mut remedies = cause["remedies"].as_array().unwrap().iter();
        let first = remedies.find(|it| it["kind"] == "command").unwrap();
        let command = first["command"].as_str().unwrap();
        let shell = |line: &str| Command::new(SHELL).args(["-c", line]).status().unwrap();
        let begin = Instant::now();
        assert!(shell(command).success(), "{cause:#}");
        println!("measured: {command}: {:.1?}", begin.elapsed());
        assert!(shell(first["verify"].as_str().unwrap()).success(), "{cause:#}");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&self.point()), "{mounts}");
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = umount2(&self.node.volume(), MntFlags::MNT_FORCE | MntFlags::MNT_DETACH);
        if let Some(container) = &mut self.container {
            let _ = container.kill();
            let _ = container.wait();
            for group in self.group().ancestors().take(3) {
                let _ = fs::remove_dir(group);
            }
        }
    }
}

fn ends(child: &mut Child) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < RELEASED {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        thread::sleep(Duration::from_millis(100));
    }
    false
}

/// One outage for both: a silent server may be a slow one for half a minute.
#[test]
fn what_waits_for_a_silent_nfs_server_is_released() {
    requires!(nfs());
    let server = Server::start();
    // After a server's last mount, the kernel would wait for the end of its session.
    let (mut killed, unmounted, _other) =
        (Pod::only_killed(31), Pod::only_killed(32), Pod::only_killed(34));
    killed.run();
    server.fall_silent();
    // The kernel closes each of its files before the process ends, and no signal reaches that.
    killed.container.as_mut().unwrap().kill().unwrap();
    // It asks the server for the mount point before it unmounts.
    let mut umount = Command::new("umount").arg(unmounted.point()).spawn().unwrap();

    let cause = killed.diagnose("dstate-process");
    killed.obey(&cause);
    assert!(ends(killed.container.as_mut().unwrap()), "{cause:#}");
    let cause = unmounted.diagnose("nfs-server-unreachable");
    unmounted.obey(&cause);
    assert!(ends(&mut umount), "{cause:#}");
}

#[test]
fn a_directory_that_its_nfs_server_has_forgotten_is_released() {
    requires!(nfs());
    let server = Server::start();
    let pod = Pod::new(33, "stat {}: stale NFS file handle");
    server.forget();
    let cause = pod.diagnose("nfs-stale-handle");
    pod.obey(&cause);
}
