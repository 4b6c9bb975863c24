//! Finds the mount that a path is on, in the mount table of the process that named it. This touches no file system.

use std::{fs, path::Path};

use super::nfs_stats;
use crate::proc;
use podstuck_model::{
    file_system::is_fuse,
    hung::{MountPoint, NfsServer},
    mounts::Mount,
    path::safe,
};

/// The mount that a path is on.
pub fn of(pid: u32, path: &Path) -> Option<MountPoint> {
    let table = proc::mounts(pid)?;
    let mount = table.covering(path)?;
    Some(MountPoint { server: server_of(pid, mount), ..describe(mount) })
}

/// The FUSE mounts at or below a path, and the one that it is on.
pub fn fuse_at(pid: u32, path: &Path) -> Vec<MountPoint> {
    // A process that has ended has no table.
    let Some(table) = proc::mounts(pid) else { return Vec::new() };
    let on = table.covering(path).filter(|mount| mount.point != path);
    let below = table.all.iter().filter(|mount| mount.point.starts_with(path));
    let all = on.into_iter().chain(below);
    all.filter(|mount| is_fuse(&mount.fs_type)).map(describe).collect()
}

/// The file with the number of requests that a FUSE server has not answered.
pub fn waiting(minor: u32) -> String {
    format!("/sys/fs/fuse/connections/{minor}/waiting")
}

/// The number of requests that a FUSE server has not answered.
pub fn unanswered(minor: u32) -> Option<u64> {
    fs::read_to_string(waiting(minor)).ok()?.trim().parse().ok()
}

fn describe(mount: &Mount) -> MountPoint {
    let minor = mount.device.minor;
    let unanswered = is_fuse(&mount.fs_type).then(|| unanswered(minor));
    MountPoint {
        id: Some(mount.id),
        point: mount.point.clone(),
        fs_type: mount.fs_type.clone(),
        source: mount.source.clone(),
        minor,
        unanswered: unanswered.flatten(),
        server: None,
        fuse: None,
    }
}

/// The server of an NFS mount, and the bytes received from it, as a process sees the mount.
fn server_of(pid: u32, mount: &Mount) -> Option<NfsServer> {
    if !mount.fs_type.starts_with("nfs") {
        return None;
    }
    Some(NfsServer {
        address: safe(mount.super_option("addr")?.as_bytes()).into_owned(),
        port: mount.super_option("port").and_then(|port| port.parse().ok()),
        received: nfs_stats::received(pid, &mount.point),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_on_the_deepest_mount_above_it() {
        let mount = of(std::process::id(), Path::new("/proc/self/x")).unwrap();
        assert_eq!((mount.point.as_path(), mount.fs_type.as_str()), (Path::new("/proc"), "proc"));
        assert!(fuse_at(std::process::id(), Path::new("/proc")).is_empty());
    }

    #[test]
    fn the_options_of_an_nfs_mount_say_where_its_server_is() {
        let text = b"1 0 0:50 / /v rw,relatime shared:5 - nfs4 127.0.0.1:/ \
            rw,vers=4.1,rsize=1048576,hard,noresvport,proto=tcp,port=20249,timeo=600,sec=sys,\
            clientaddr=127.0.0.1,local_lock=none,addr=127.0.0.1\n\
            2 0 0:51 / /w rw - nfs4 10.0.0.5:/x rw,vers=4.2,proto=tcp,addr=10.0.0.5\n\
            3 0 0:52 / /x rw - ext4 /dev/a rw,port=20249,addr=127.0.0.1\n";
        let table = proc::parse_mounts(u32::MAX >> 1, text);
        let server = |point: &str| server_of(table.pid, table.covering(Path::new(point)).unwrap());
        let (local, remote) = (server("/v").unwrap(), server("/w").unwrap());
        assert_eq!((local.local_port(), local.is_elsewhere()), (Some(20249), false));
        assert_eq!((remote.local_port(), remote.is_elsewhere()), (None, true));
        assert_eq!((local.received, server("/x")), (None, None));
    }

    #[test]
    fn the_fuse_control_file_system_has_no_server() {
        assert!(is_fuse("fuse.s3fs") && is_fuse("fuseblk") && !is_fuse("fusectl"));
    }
}
