//! A mount namespace with a very large number of mounts.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    mounts::{Device, Mount, Mounts},
    raw_path,
};

/// The threshold. A node with 250 pods (kubelet's default limit is 110) and ten mounts for each has a quarter of it;
/// nodes that were slow because of their mounts had tens of thousands (systemd issue 16728, kubernetes issue
/// 120103). The kernel allows at most 100,000 (`fs.mount-max`).
pub const VERY_MANY: usize = 10_000;

/// A mount namespace with at least [`VERY_MANY`] mounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crowd {
    /// Its inode number.
    pub namespace: u32,
    /// A process in it.
    pub pid: u32,
    /// The file that the mounts were read from.
    pub source: String,
    /// Number of mounts.
    pub mounts: usize,
    /// The deepest directory that contains more than half of the mount points.
    #[serde(with = "raw_path")]
    pub below: PathBuf,
    /// Number of mount points below it.
    pub are_below: usize,
    /// The most frequent mount, in a few words.
    pub what: String,
    /// How often it is mounted.
    pub times: usize,
}

impl Crowd {
    /// `None` below [`VERY_MANY`] mounts.
    pub fn of(namespace: u32, table: &Mounts) -> Option<Self> {
        let all = &table.all;
        if all.len() < VERY_MANY {
            return None;
        }
        let (below, are_below) = most_are_below(all);
        let mut same: BTreeMap<(Device, &Path), (usize, &Mount)> = BTreeMap::new();
        for mount in all {
            same.entry((mount.device, &mount.root)).or_insert((0, mount)).0 += 1;
        }
        let (times, often) = same.into_values().max_by_key(|(times, _)| *times)?;
        Some(Self {
            namespace,
            pid: table.pid,
            source: table.source.clone(),
            mounts: all.len(),
            below: below.into(),
            are_below,
            what: often.describe(),
            times,
        })
    }
}

/// The deepest directory that contains more than half of the mount points, and their number. At most one directory
/// of each level qualifies.
fn most_are_below(all: &[Mount]) -> (&Path, usize) {
    let half = all.len() / 2;
    let mut found = (Path::new("/"), all.len());
    for depth in 1.. {
        let mut counts: BTreeMap<&Path, usize> = BTreeMap::new();
        for mount in all {
            let levels = mount.point.components().count();
            // The mount point itself does not count.
            let above = levels.checked_sub(depth + 1).filter(|above| *above > 0);
            if let Some(above) = above.and_then(|above| mount.point.ancestors().nth(above)) {
                *counts.entry(above).or_default() += 1;
            }
        }
        match counts.into_iter().max_by_key(|(_, count)| *count) {
            Some((directory, count)) if count > half => found = (directory, count),
            _ => return found,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(mounts: impl Iterator<Item = (String, String)>) -> Mounts {
        let mount = |(id, (point, root)): (u32, (String, String))| Mount {
            id,
            point: point.into(),
            root: root.into(),
            fs_type: "ext4".into(),
            source: "/dev/a".into(),
            ..Mount::default()
        };
        Mounts { all: (1..).zip(mounts).map(mount).collect(), source: "table".into(), pid: 7 }
    }

    #[test]
    fn the_fullest_directory_and_the_most_frequent_mount_are_named() {
        let leak = |at: usize| (format!("/srv/agent/runs/{at}/data"), "/agent".to_owned());
        let pod = |at: usize| (format!("/var/lib/kubelet/pods/{at}/volumes/v"), format!("/{at}"));
        let most = (0..VERY_MANY - 100).map(leak).chain((0..100).map(pod));
        let crowd = Crowd::of(4, &table(most)).unwrap();
        assert_eq!((crowd.mounts, crowd.are_below), (VERY_MANY, VERY_MANY - 100));
        assert_eq!(crowd.below, Path::new("/srv/agent/runs"));
        assert_eq!((crowd.times, crowd.pid, crowd.namespace), (VERY_MANY - 100, 7, 4));
        assert_eq!(crowd.what, "directory /agent of /dev/a (ext4), device 0:0");
        assert_eq!(Crowd::of(4, &table((1..VERY_MANY).map(leak))), None);
    }

    #[test]
    fn where_no_directory_has_most_it_is_the_root() {
        let at = |at: usize| (format!("/{}/{at}", ["a", "b", "c"][at % 3]), "/".to_owned());
        let crowd = Crowd::of(4, &table((0..VERY_MANY).map(at))).unwrap();
        assert_eq!((crowd.below.as_path(), crowd.are_below), (Path::new("/"), VERY_MANY));
        let stacked = |_| ("/one/place".to_owned(), "/".to_owned());
        let crowd = Crowd::of(4, &table((0..VERY_MANY).map(stacked))).unwrap();
        assert_eq!(crowd.below, Path::new("/one"));
    }
}
