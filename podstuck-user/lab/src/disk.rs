//! Selects a file system on which a case can be played.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rustix::fs::statvfs;
use tempfile::{NamedTempFile, TempDir};

use super::{
    Options, Unsupported,
    attribute::{self, Attribute},
    case::Case,
    mass_files::{self, DEFAULT_ENTRIES},
};

/// Requirements for the file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    attribute: Option<Attribute>,
    inodes: u64,
    bytes: u64,
}

impl Needs {
    /// The requirements of a case.
    pub(super) fn of(case: &Case, options: &Options) -> Self {
        let entries =
            if case.has_mass_files() { options.entries.unwrap_or(DEFAULT_ENTRIES) } else { 0 };
        // A directory occupies one block; the remaining bytes are for names and inodes.
        let bytes = u64::from(mass_files::directories(entries)) * 4096 + u64::from(entries) * 512;
        Self {
            attribute: case.attribute(),
            inodes: u64::from(entries) + 1000,
            bytes: bytes + (16 << 20),
        }
    }

    /// Why this directory does not meet the requirements; `None` if it does.
    fn unmet_by(self, directory: &Path) -> Option<String> {
        let space = match statvfs(directory) {
            Ok(space) => space,
            Err(errno) => return Some(errno.to_string()),
        };
        let free = space.f_bavail * space.f_frsize;
        if free < self.bytes {
            return Some(format!("{} MiB free, {} needed", free >> 20, self.bytes >> 20));
        }
        // File systems that allocate inodes dynamically report 0.
        if space.f_files != 0 && space.f_favail < self.inodes {
            return Some(format!("{} inodes free, {} needed", space.f_favail, self.inodes));
        }
        self.attribute.and_then(|wanted| try_attribute(directory, wanted).err())
    }
}

fn try_attribute(directory: &Path, wanted: Attribute) -> Result<(), String> {
    let file = NamedTempFile::new_in(directory).map_err(|error| error.to_string())?;
    let result = attribute::set(file.path(), wanted).and_then(|()| attribute::clear(file.path()));
    result.map_err(|error| format!("no `chattr +{}`: {}", wanted.letter(), error.root_cause()))
}

/// Creates a directory where the requirements are met: in `$TMPDIR`, `/var/tmp` or `/tmp`.
pub(super) fn make_directory(needs: Needs) -> Result<TempDir> {
    let from_environment = env::var_os("TMPDIR").filter(|text| !text.is_empty()).map(PathBuf::from);
    let places = from_environment.into_iter().chain(["/var/tmp".into(), "/tmp".into()]);
    let mut refused = Vec::new();
    for place in places {
        // Resolves links, because tracers report the resolved path.
        let unmet = match fs::canonicalize(&place) {
            Ok(place) => match needs.unmet_by(&place) {
                None => return make_in(&place),
                Some(unmet) => unmet,
            },
            Err(error) => error.to_string(),
        };
        refused.push(format!("{}: {unmet}", place.display()));
    }
    let reasons = refused.join("; ");
    Err(Unsupported(format!(
        "no place for this case ({reasons}). Set TMPDIR to a directory on ext4, XFS or btrfs with \
         enough space"
    ))
    .into())
}

fn make_in(place: &Path) -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("podstuck-lab-")
        .tempdir_in(place)
        .with_context(|| format!("cannot create a directory in {}", place.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_too_small_is_refused_with_the_reason() {
        let needs = Needs { attribute: None, inodes: 1, bytes: u64::MAX };
        let unmet = needs.unmet_by(Path::new("/tmp")).unwrap();
        assert!(unmet.contains("MiB free"), "{unmet}");
    }

    #[test]
    fn proc_has_no_attributes() {
        assert!(try_attribute(Path::new("/proc"), Attribute::Immutable).is_err());
    }
}
