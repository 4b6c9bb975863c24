//! How full file systems are: the helper's side. `statfs` of a dead file system may never return.

use std::{ffi::OsString, os::linux::fs::MetadataExt, path::Path};

use anyhow::Result;
use rustix::fs::{OFlags, StatVfsMountFlags, statvfs};
use serde::{Deserialize, Serialize};

use super::seen_by::{Place, Root, shown};
use podstuck_confine::helper::{Budget, Question, Teller};
use podstuck_confine::role::Role;
use podstuck_model::{degraded::Feed, space::Capacity};

/// How full the file systems are that these paths lie on: for each path one part, `None` when there
/// is no such path.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MeasureSpace {
    pub(super) places: Vec<Place>,
}

impl Question for MeasureSpace {
    const BUDGET: Budget = Budget::Space;
    const FEEDS: Option<Feed> = Some(Feed::Space);
    const ROLE: Role = Role::HelperBeneath;
    type Step = OsString;
    type Part = Option<Capacity>;
    type Answer = ();

    fn answer(self, tell: &mut Teller<OsString, Option<Capacity>>) -> Result<()> {
        for place in &self.places {
            tell.at(&shown(place))?;
            let held = Root::of_place(place)
                .and_then(|root| root.open(Path::new(&place.1), OFlags::empty()));
            tell.part(&held.ok().and_then(|held| measure(&held.path())))?;
        }
        Ok(())
    }
}

fn measure(path: &Path) -> Option<Capacity> {
    let device = std::fs::metadata(path).ok()?.st_dev();
    let found = statvfs(path).ok()?;
    Some(Capacity {
        device,
        bytes: found.f_blocks.saturating_mul(found.f_frsize),
        free: found.f_bfree.saturating_mul(found.f_frsize),
        available: found.f_bavail.saturating_mul(found.f_frsize),
        inodes: found.f_files,
        inodes_available: found.f_favail,
        read_only: found.f_flag.contains(StatVfsMountFlags::RDONLY),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_a_capacity() {
        let capacity = measure(Path::new("/tmp")).unwrap();
        assert!(
            capacity.bytes >= capacity.free
                && capacity.free >= capacity.available
                && !capacity.read_only
        );
        assert_eq!(measure(Path::new("/nonexistent")), None);
    }
}
