//! A control group of a pod, with a container's group in it, in which a test puts processes of its own.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test stops at the first surprise")]

use std::{
    fmt::Display,
    fs,
    path::{Path, PathBuf},
};

/// The container's group. The processes that are left in it when it is dropped live on in the group above.
pub struct PodsGroup(PathBuf);

impl PodsGroup {
    /// Puts these processes into a container of a pod. `test` tells tests in one process apart.
    pub fn with(test: &str, uid: &str, pids: &[impl Display]) -> Self {
        let tops = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        let top = tops.map(Path::new).into_iter().find(|top| top.join("cgroup.procs").exists());
        let name = format!("podstuck-{test}-{}/pod{uid}/{}", std::process::id(), "d0".repeat(32));
        let group = Self(top.unwrap().join(name));
        fs::create_dir_all(&group.0).unwrap();
        for pid in pids {
            fs::write(group.0.join("cgroup.procs"), pid.to_string()).unwrap();
        }
        group
    }
}

impl Drop for PodsGroup {
    fn drop(&mut self) {
        let top = self.0.ancestors().nth(3).unwrap();
        for pid in fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = fs::write(top.join("cgroup.procs"), pid);
        }
        for group in self.0.ancestors().take(3) {
            let _ = fs::remove_dir(group);
        }
    }
}
