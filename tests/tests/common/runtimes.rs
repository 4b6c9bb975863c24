//! A containerd and a dockerd of our own, on a file system of their own, without a network. All
//! that they start and mount ends with them.

#[path = "programs.rs"]
mod programs;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

pub(crate) use self::programs::{
    busybox, chattr, has_programs, is_of_another_release, oci_runtime, output, program, share,
};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_tests::{Disk, EXT4, skip, slowdown};

/// Longer than a daemon takes to start or to end.
const LIMIT: Duration = Duration::from_secs(30);
/// Name of the image.
const IMAGE: &str = "docker.io/library/bb:1";
/// Directories outside our own that the runtimes leave behind.
const LEFT: [&str; 7] = [
    "/run/containerd/fifo",
    "/run/containerd/runc/k8s.io",
    "/run/containerd/runc",
    "/run/containerd/s",
    "/run/containerd",
    "/run/docker/plugins",
    "/run/docker",
];

/// Waits until something is so.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT * slowdown();
    while !is_so() {
        assert!(Instant::now() < end, "waited too long: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Mounts an ext4 for this many files on a directory, which is made.
pub(crate) fn disk(point: &Path, inodes: u32) -> Disk {
    // A directory takes a block.
    let bytes = (4 << 30) + u64::from(inodes) * 8192;
    Disk::mount(point, bytes, &[EXT4, &["-N", &inodes.to_string()]].concat(), "")
}

/// Both daemons, and everything they need.
pub(crate) struct Runtimes {
    top: PathBuf,
    name: String,
    /// The directories of [`LEFT`] that were not there before.
    ours: Vec<&'static str>,
    /// containerd and dockerd.
    daemons: Vec<Child>,
    /// What they keep is on it. The last to go.
    disk: Option<Disk>,
}

impl Runtimes {
    /// Starts them with an image; `None`, with the test noted as skipped, where that is impossible.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with_inodes(200_000)
    }

    /// The same on a disk for `inodes` files.
    pub(crate) fn start_with_inodes(inodes: u32) -> Option<Self> {
        if !has_programs(&["dockerd", "docker", "containerd", "ctr", &oci_runtime()]) {
            return None;
        }
        let name = format!("podstuck-test-{}", std::process::id());
        let ours = LEFT.into_iter().filter(|dir| !Path::new(dir).exists()).collect();
        // As on every node on which a container has run: where `runc` keeps its state, whatever containerd's configuration.
        fs::create_dir_all("/run/containerd/runc").unwrap();
        let top = Path::new("/run").join(&name);
        let mut runtimes = Self { top, name, ours, daemons: Vec::new(), disk: None };
        runtimes.make_disk(inodes);
        runtimes.start_containerd();
        runtimes.start_dockerd();
        runtimes.import_image();
        Some(runtimes)
    }

    /// The directory that all their files are in, and the only one.
    pub(crate) fn top(&self) -> &Path {
        &self.top
    }

    /// Process id of dockerd.
    pub(crate) fn dockerd(&self) -> u32 {
        self.daemons[1].id()
    }

    /// Docker's client.
    pub(crate) fn docker(&self, args: &[&str]) -> Command {
        let mut command = program("docker");
        command.env("DOCKER_HOST", format!("unix://{}", self.at("docker.sock"))).args(args);
        command
    }

    /// Runs a command that a finding proposes, as it is printed, where it is about this dockerd.
    pub(crate) fn obey(&self, finding: &serde_json::Value, nth: usize) -> String {
        let mut shell = program("sh");
        shell.env("DOCKER_HOST", format!("unix://{}", self.at("docker.sock"))).arg("-c");
        shell.arg(finding["remedies"][nth]["command"].as_str().unwrap());
        output(shell)
    }

    /// containerd's client, in the namespace of Kubernetes.
    pub(crate) fn ctr(&self, args: &[&str]) -> Command {
        let mut command = program("ctr");
        command.args(["--address", &self.at("containerd.sock"), "--namespace", "k8s.io"]);
        command.args(args);
        command
    }

    /// A container of Docker's that sleeps, with a volume at `/data`.
    pub(crate) fn run_docker(&self, name: &str) {
        let args = ["run", "-d", "--name", name, "--network", "none", "-v", "/data", "bb:1"];
        output(self.docker(&args));
    }

    /// A fact about a container of Docker's.
    pub(crate) fn inspect(&self, name: &str, format: &str) -> String {
        output(self.docker(&["inspect", "--format", format, name]))
    }

    /// Where the volume of a container of Docker's is.
    pub(crate) fn volume(&self, name: &str) -> PathBuf {
        self.inspect(name, "{{(index .Mounts 0).Source}}").into()
    }

    /// A container of containerd's that sleeps; its root file system.
    pub(crate) fn run_ctr(&self, name: &str) -> PathBuf {
        let cgroup = format!("/{}/{name}", self.name);
        self.run_in(&cgroup, name);
        let bundles = "containerd/io.containerd.runtime.v2.task/k8s.io";
        self.top.join(bundles).join(name).join("rootfs")
    }

    /// The same in the group of a pod, as kubelet has it made; its id is a real one.
    pub(crate) fn run_ctr_in_pod(&self, uid: &str, id: &str) -> PathBuf {
        let cgroup = format!("{}/{id}", self.cgroup_of_pod(uid));
        self.run_in(&cgroup, id);
        let bundles = "containerd/io.containerd.runtime.v2.task/k8s.io";
        self.top.join(bundles).join(id).join("rootfs")
    }

    fn run_in(&self, cgroup: &str, id: &str) {
        let runtime = oci_runtime();
        let of = ["run", "--detach", "--runc-binary", &runtime, "--cgroup", cgroup, IMAGE, id];
        output(self.ctr(&of));
    }

    /// Process id of containerd.
    pub(crate) fn containerd(&self) -> u32 {
        self.daemons[0].id()
    }

    /// Ends the process of a container of containerd's.
    pub(crate) fn kill_ctr(&self, name: &str) {
        output(self.ctr(&["task", "kill", "--signal", "SIGKILL", name]));
        until("the task has stopped", || output(self.ctr(&["task", "list"])).contains("STOPPED"));
    }

    /// Removes a container of containerd's that has ended.
    pub(crate) fn delete_ctr(&self, name: &str) {
        // The client repeats the exit status of the container, which was killed.
        let _ = self.ctr(&["task", "delete", name]).output();
        output(self.ctr(&["container", "delete", name]));
    }

    /// The same after an attempt that has failed; whether it is removed. With crun it is not: containerd has it
    /// delete first, and crun has nothing left to delete, so that the unmount is not tried again (crun 1.28,
    /// containerd 2.1).
    pub(crate) fn delete_ctr_again(&self, name: &str) -> bool {
        if oci_runtime() != "crun" {
            self.delete_ctr(name);
            return true;
        }
        let _ = self.ctr(&["task", "delete", name]).output();
        let deleted = self.ctr(&["container", "delete", name]).output().unwrap();
        let said = String::from_utf8_lossy(&deleted.stderr).into_owned();
        assert!(said.contains("cannot open directory"), "{said}");
        skip("in part: with crun, containerd tries no unmount again that has failed");
        false
    }

    fn at(&self, name: &str) -> String {
        self.top.join(name).to_str().unwrap().to_owned()
    }

    fn make_disk(&mut self, inodes: u32) {
        fs::create_dir_all(&self.top).unwrap();
        if is_of_another_release() {
            let none = None::<&str>;
            mount(Some(&self.top), &self.top, none, MsFlags::MS_BIND, none).unwrap();
            share(&self.top);
        }
        self.disk = Some(disk(&self.top.join("data"), inodes));
    }

    /// containerd, also after it was killed.
    pub(crate) fn start_containerd(&mut self) {
        self.start_containerd_with(2, "disabled_plugins = ['io.containerd.grpc.v1.cri']\n", "");
    }

    /// The same with what kubelet asks, where it can mount images as volumes. Pods have the node's network; nothing
    /// is made outside our own directory.
    pub(crate) fn restart_containerd_with_cri(&mut self) {
        self.kill_containerd();
        let more = format!(
            "[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = '{IMAGE}'\n\
             [plugins.'io.containerd.cri.v1.runtime']\nrestrict_oom_score_adj = true\n\
             [plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '{}'\n",
            self.at("cni"),
        );
        self.start_containerd_with(3, "disabled_plugins = ['io.containerd.nri.v1.nri']\n", &more);
    }

    /// Whether its containerd can mount images as volumes: 2.1 is the first.
    pub(crate) fn has_image_volumes(&self) -> bool {
        let said = output(self.ctr(&["version"]));
        let mut versions = said.lines().filter_map(|line| line.trim().strip_prefix("Version:"));
        let server = versions.next_back().unwrap().trim().trim_start_matches('v');
        let mut numbers = server.split(['.', '~', '-', '+']).map_while(|part| part.parse().ok());
        let number: (u32, u32) = (numbers.next().unwrap(), numbers.next().unwrap());
        number >= (2, 1)
    }

    /// The group of a pod.
    pub(crate) fn cgroup_of_pod(&self, uid: &str) -> String {
        format!("/{}/pod{uid}", self.name)
    }

    fn start_containerd_with(&mut self, version: u32, disabled: &str, more: &str) {
        let (socket, config) = (self.at("containerd.sock"), self.at("containerd.toml"));
        let text = format!(
            "version = {version}\nroot = '{}'\nstate = '{}'\n\
             {disabled}[grpc]\naddress = '{socket}'\n{more}",
            self.at("data/containerd"),
            self.at("containerd"),
        );
        fs::write(&config, text).unwrap();
        let mut daemon = program("containerd");
        daemon.args(["--config", &config]);
        self.spawn(0, daemon, "containerd.log");
        until("containerd answers", || self.ctr(&["version"]).output().unwrap().status.success());
    }

    /// Kills dockerd and leaves what it has started.
    pub(crate) fn kill_dockerd(&mut self) {
        Self::end(&mut self.daemons[1]);
    }

    /// Kills containerd and leaves its shims.
    pub(crate) fn kill_containerd(&mut self) {
        Self::end(&mut self.daemons[0]);
    }

    /// Has dockerd read its configuration again, which is this.
    pub(crate) fn reload_dockerd(&self, config: &str) {
        fs::write(self.at("daemon.json"), config).unwrap();
        kill(Pid::from_raw(self.dockerd().cast_signed()), Signal::SIGHUP).unwrap();
    }

    /// The shim of a container of Docker's, which its first process is a child of; and that process.
    pub(crate) fn shim_of_docker(&self, name: &str) -> (u32, u32) {
        let init: u32 = self.inspect(name, "{{.State.Pid}}").parse().unwrap();
        let stat = fs::read_to_string(format!("/proc/{init}/stat")).unwrap();
        let parent = stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap();
        (parent.parse().unwrap(), init)
    }

    fn end(daemon: &mut Child) {
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// dockerd, also after it was killed.
    pub(crate) fn start_dockerd(&mut self) {
        self.start_dockerd_with(&[]);
    }

    /// The same with more words.
    pub(crate) fn start_dockerd_with(&mut self, more: &[&str]) {
        // It does not start beside one that has its id by now.
        let _ = fs::remove_file(self.at("docker.pid"));
        let mut daemon = program("dockerd");
        daemon.args(["--data-root", &self.at("data/docker"), "--exec-root", &self.at("docker")]);
        daemon.args(["--pidfile", &self.at("docker.pid"), "--storage-driver", "overlay2"]);
        daemon.args(["--host", &format!("unix://{}", self.at("docker.sock"))]);
        daemon.args(["--containerd", &self.at("containerd.sock")]);
        daemon.args(["--bridge=none", "--iptables=false", "--ip6tables=false"]);
        daemon.args(["--exec-opt", "native.cgroupdriver=cgroupfs"]);
        daemon.args(["--cgroup-parent", &format!("/{}", self.name)]);
        daemon.args(["--config-file", &self.at("daemon.json")]).args(more);
        let runtime = oci_runtime();
        if runtime != "runc" {
            daemon.args(["--add-runtime", &format!("{runtime}={runtime}")]);
            daemon.args(["--default-runtime", &runtime]);
        }
        fs::write(self.at("daemon.json"), "{}").unwrap();
        self.spawn(1, daemon, "dockerd.log");
        until("dockerd answers", || self.docker(&["version"]).output().unwrap().status.success());
    }

    fn spawn(&mut self, place: usize, mut daemon: Command, log: &str) {
        let log = fs::File::create(self.at(log)).unwrap();
        daemon.stdout(log.try_clone().unwrap()).stderr(log);
        let daemon = daemon.spawn().unwrap();
        match self.daemons.get_mut(place) {
            Some(ended) => *ended = daemon,
            None => self.daemons.push(daemon),
        }
    }

    /// An image of busybox alone, for both.
    pub(crate) fn import_image(&self) {
        let layer = busybox(&self.top);
        let mut import =
            self.docker(&["import", "-c", "CMD [\"/bin/sleep\",\"9999\"]", "-", "bb:1"]);
        let mut import = import.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        import.stdin.take().unwrap().write_all(&layer).unwrap();
        assert!(import.wait().unwrap().success(), "docker import");
        let saved = self.at("bb.tar");
        output(self.docker(&["save", "--output", &saved, "bb:1"]));
        output(self.ctr(&["image", "import", &saved]));
    }

    /// Shims outlive the daemons; ours are known by their socket.
    fn shims(&self) -> Vec<Pid> {
        let is_ours = |pid: &i32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let socket = self.at("containerd.sock");
            let mut words = words.split(|b| *b == 0);
            let program = words.next().map(String::from_utf8_lossy).unwrap_or_default();
            program.contains("containerd-shim") && words.any(|word| word == socket.as_bytes())
        };
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(is_ours).map(Pid::from_raw).collect()
    }

    /// Mounts below our directory, the deepest first.
    fn mounts(&self) -> Vec<PathBuf> {
        let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let points = text.lines().filter_map(|line| line.split(' ').nth(1).map(PathBuf::from));
        let mut ours: Vec<PathBuf> = points.filter(|p| p.starts_with(&self.top)).collect();
        ours.sort();
        ours.reverse();
        ours
    }
}

/// Waits for a process for a while, and ends it.
fn end(process: &mut Child) {
    let end = Instant::now() + LIMIT;
    while matches!(process.try_wait(), Ok(None)) && Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
    }
    let _ = process.kill();
    let _ = process.wait();
}

impl Drop for Runtimes {
    fn drop(&mut self) {
        // Whatever fails here, the next step is tried: a test may have ended anywhere.
        let _ = self.docker(&["ps", "-aq"]).output().map(|all| {
            let ids = String::from_utf8_lossy(&all.stdout).into_owned();
            let mut remove = self.docker(&["rm", "-f", "-v"]);
            let remove =
                remove.args(ids.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null());
            let remove = remove.spawn();
            // It waits for as long as what keeps the container does.
            let _ = remove.map(|mut it| end(&mut it));
        });
        for daemon in self.daemons.iter_mut().rev() {
            let pid = Pid::from_raw(daemon.id().cast_signed());
            let _ = kill(pid, Signal::SIGCONT);
            let _ = kill(pid, Signal::SIGTERM);
            end(daemon);
        }
        for pid in self.shims() {
            let _ = kill(pid, Signal::SIGKILL);
        }
        for point in self.mounts() {
            let _ = umount2(&point, MntFlags::MNT_DETACH);
        }
        let _ = fs::remove_dir_all(&self.top);
        let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        for cgroup in hierarchies.map(|h| h.path()).chain([PathBuf::from("/sys/fs/cgroup")]) {
            let ours = cgroup.join(&self.name);
            for pod in fs::read_dir(&ours).into_iter().flatten().flatten() {
                let _ = fs::remove_dir(pod.path());
            }
            let _ = fs::remove_dir(ours);
        }
        for dir in &self.ours {
            let _ = fs::remove_dir(dir);
        }
    }
}
