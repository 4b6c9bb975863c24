//! The kernel's NFS server in a network namespace of its own, and its failures. What `exportfs` and `rpc.mountd` would
//! answer the kernel is written into its caches beforehand (nfsd(7)).

use std::{
    fs,
    process::{Child, Command, Stdio, id},
    thread,
    time::Duration,
};

use podstuck_tests::root_and_btf;

pub(crate) const ADDRESS: &str = "10.99.7.2";
pub(crate) const CLIENT: &str = "10.99.7.1";

/// `$1` is a process with the client's network. The server ends when its `nfsd` is unmounted. The flags of the export
/// are those of linux/nfsd/export.h: any port, no check of subtrees, fsid=0. Versions before 4 take a portmapper.
const START: &str = "
    ip link set lo up
    ip link add server type veth
    ip link set veth0 name nfs-client
    ip link set nfs-client netns $1
    ip addr add 10.99.7.2/24 dev server
    ip link set server up
    mkdir -p /mnt
    mount -t tmpfs export /mnt
    mkdir /mnt/v
    mount -t nfsd nfsd /proc/fs/nfsd
    never=4102444800
    cd /proc/net/rpc
    echo nfsd 10.99.7.1 $never all >auth.unix.ip/channel
    echo all /mnt $never 9218 65534 65534 0 >nfsd.export/channel
    echo all 1 '\\x00000000' $never /mnt >nfsd.fh/channel
    cd /proc/fs/nfsd
    echo -2 -3 +4 +4.1 +4.2 >versions
    echo 10 >nfsv4leasetime
    echo 10 >nfsv4gracetime
    echo tcp 2049 >portlist
    echo 2 >threads
";

/// What these tests need.
pub(crate) fn nfs() -> Result<(), String> {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let is_missing = |name: &&str| !known.lines().any(|line| line.ends_with(&format!("\t{name}")));
    match ["nfs4", "nfsd"].into_iter().find(is_missing) {
        Some(missing) => Err(format!("no {missing} in this kernel: its NFS client or server")),
        None => root_and_btf().map_err(str::to_owned),
    }
}

/// Its process has the namespaces.
pub(crate) struct Server(Child);

impl Server {
    pub(crate) fn start() -> Self {
        // busybox knows no long options.
        let server = Command::new("unshare").args(["-n", "-m", "sleep", "600"]).spawn().unwrap();
        let server = Self(server);
        let name = format!("/proc/{}/comm", server.0.id());
        while fs::read_to_string(&name).unwrap() != "sleep\n" {
            thread::sleep(Duration::from_millis(10));
        }
        server.run(START);
        run(Command::new("ip").args(["addr", "add", &format!("{CLIENT}/24"), "dev", "nfs-client"]));
        run(Command::new("ip").args(["link", "set", "nfs-client", "up"]));
        server
    }

    /// From now on, no answer arrives, and no error.
    pub(crate) fn fall_silent(&self) {
        self.run("ip route add blackhole 10.99.7.1/32");
    }

    /// Another directory takes the place of the one that is mounted.
    pub(crate) fn forget(&self) {
        self.run("rm -r /mnt/v; mkdir /mnt/v");
    }

    /// Runs a script in its namespaces.
    fn run(&self, script: &str) {
        let target = self.0.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(["-t", &target, "-n", "-m", "sh", "-ec", script, "sh", &id().to_string()]);
        run(&mut command);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        // With the namespace both ends go, a moment later.
        let mut link = Command::new("ip");
        let _ = link.args(["link", "del", "nfs-client"]).stderr(Stdio::null()).status();
    }
}

fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}
