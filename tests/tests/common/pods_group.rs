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
        Self::of(test, uid, &"d0".repeat(32), pids)
    }

    /// The same with the container's id.
    pub fn of(test: &str, uid: &str, id: &str, pids: &[impl Display]) -> Self {
        let tops = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        let top = tops.map(Path::new).into_iter().find(|top| top.join("cgroup.procs").exists());
        let name = format!("podstuck-{test}-{}/pod{uid}/{id}", std::process::id());
        let group = Self(top.unwrap().join(name));
        fs::create_dir_all(&group.0).unwrap();
        pids.iter().for_each(|pid| group.add(pid));
        group
    }

    /// Puts another process into it.
    pub fn add(&self, pid: impl Display) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
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
