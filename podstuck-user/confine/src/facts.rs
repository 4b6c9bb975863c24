//! Facts about this kernel, for `doctor` and the `start` record.

use std::fs;

use nix::sys::utsname::uname;

/// Release of the running kernel, as `uname -r` prints it.
pub fn release() -> String {
    uname().map(|names| names.release().to_string_lossy().into_owned()).unwrap_or_default()
}

/// The version in a release, as `(6, 12)`.
pub fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The node's name: kubelet takes the host name unless `--hostname-override` sets another.
pub fn node_name() -> String {
    uname().map(|names| names.nodename().to_string_lossy().into_owned()).unwrap_or_default()
}

/// How control groups are mounted, which decides whether a cgroup id names a pod.
pub fn cgroup_layout() -> &'static str {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let has = |kind: &str| mounts.lines().any(|l| l.split(' ').nth(2) == Some(kind));
    match (has("cgroup"), has("cgroup2")) {
        (false, true) => "v2",
        (true, true) => "hybrid (v1 controllers beside v2)",
        (true, false) => "v1",
        (false, false) => "none mounted",
    }
}
