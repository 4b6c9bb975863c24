//! The control group that all pods of the node are in, in each hierarchy.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{LOOK, NAME, wait_for};

const MOUNTED: &str = "/sys/fs/cgroup";

/// The name that kubelet is given.
pub(crate) fn root() -> String {
    format!("/{NAME}")
}

/// Makes it. A new group of version 1 has no processors and no memory to use until they are assigned.
pub(crate) fn make() -> Result<()> {
    for hierarchy in hierarchies() {
        let group = hierarchy.join(NAME);
        fs::create_dir_all(&group).with_context(|| format!("creating {}", group.display()))?;
        for name in ["cpuset.cpus", "cpuset.mems"] {
            if let Ok(value) = fs::read_to_string(hierarchy.join(name)) {
                let to = group.join(name);
                fs::write(&to, value).with_context(|| format!("writing {}", to.display()))?;
            }
        }
    }
    Ok(())
}

/// Each hierarchy of version 1, or the one of version 2.
fn hierarchies() -> Vec<PathBuf> {
    let top = Path::new(MOUNTED);
    if top.join("cgroup.procs").exists() {
        return vec![top.into()];
    }
    let all = fs::read_dir(top).into_iter().flatten().flatten().map(|entry| entry.path());
    // Names of several controllers are links to the hierarchy that they share.
    all.filter(|path| path.join("cgroup.procs").exists() && !path.is_symlink()).collect()
}

/// All groups below ours, the deepest first.
fn groups() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting: Vec<PathBuf> = hierarchies().into_iter().map(|h| h.join(NAME)).collect();
    while let Some(group) = waiting.pop() {
        let Ok(entries) = fs::read_dir(&group) else { continue };
        waiting.extend(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()));
        found.push(group);
    }
    found.sort_by_key(|group| std::cmp::Reverse(group.components().count()));
    found
}

/// Thaws all of them: what is frozen cannot end.
pub(crate) fn thaw() -> Result<()> {
    // The highest first: a group is frozen as long as one above it is.
    for group in groups().iter().rev() {
        for (name, value) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
            let file = group.join(name);
            if file.exists() {
                fs::write(&file, value).with_context(|| format!("thawing {}", group.display()))?;
            }
        }
    }
    Ok(())
}

/// Kills what is left in them, and removes them.
pub(crate) fn end() -> Result<()> {
    wait_for("the pods' processes to end", || {
        let pids: Vec<i32> = groups()
            .iter()
            .filter_map(|group| fs::read_to_string(group.join("cgroup.procs")).ok())
            .flat_map(|text| text.lines().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
            .collect();
        // It may have ended meanwhile.
        pids.iter().for_each(|pid| {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        });
        pids.is_empty()
    })?;
    // A group is busy for a moment after its last process has ended.
    for _ in 0..50 {
        groups().iter().for_each(|group| drop(fs::remove_dir(group)));
        if groups().is_empty() {
            return Ok(());
        }
        thread::sleep(LOOK);
    }
    bail!("control groups are left: {:?}", groups())
}
