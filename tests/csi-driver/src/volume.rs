//! What a volume is made of: a directory of the driver's, memory, or a process.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use tonic::Status;

/// The attribute of a volume, in `volumeAttributes`, that says what it is made of.
pub const BACKING: &str = "backing";

/// Handles that begin so are made of memory, too.
pub const MEMORY_PREFIX: &str = "tmpfs-";

/// What a volume is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A directory, bound to where it is wanted: on the device of the driver's state, which is
    /// usually kubelet's. kubelet until 1.29 takes such a mount for a directory.
    Directory(PathBuf),
    /// A tmpfs, which has a device of its own.
    Memory,
    /// A FUSE file system, which a process serves as long as it lives.
    Fuse,
}

impl Backing {
    /// What a call asks for.
    ///
    /// # Errors
    ///
    /// For a handle that is not a file's name, and for a backing that is unknown.
    pub fn of(
        volumes: &Path,
        handle: &str,
        attributes: &HashMap<String, String>,
    ) -> Result<Self, Status> {
        let directory = directory(volumes, handle)?;
        match attributes.get(BACKING).map(String::as_str) {
            Some("tmpfs") => Ok(Self::Memory),
            Some("fuse") => Ok(Self::Fuse),
            None if handle.starts_with(MEMORY_PREFIX) => Ok(Self::Memory),
            None | Some("directory") => Ok(Self::Directory(directory)),
            Some(other) => Err(Status::invalid_argument(format!(
                "{BACKING} is {other:?}, none of \"directory\", \"tmpfs\" and \"fuse\""
            ))),
        }
    }
}

/// Where the files of a volume are.
///
/// # Errors
///
/// For a handle that is not a file's name: it would be a path to somewhere else.
pub fn directory(volumes: &Path, handle: &str) -> Result<PathBuf, Status> {
    let mut components = Path::new(handle).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(name)), None) if name == handle => Ok(volumes.join(name)),
        _ => Err(Status::invalid_argument(format!("volume id {handle:?} is not a file's name"))),
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn of(handle: &str, backing: Option<&str>) -> Result<Backing, Code> {
        let attributes = backing.map(|value| (BACKING.to_owned(), value.to_owned()));
        let attributes = attributes.into_iter().collect();
        Backing::of(Path::new("/state/volumes"), handle, &attributes).map_err(|error| error.code())
    }

    #[test]
    fn the_attribute_decides_before_the_handle() {
        let directory = |name| Ok(Backing::Directory(Path::new("/state/volumes").join(name)));
        assert_eq!(of("v1", None), directory("v1"));
        assert_eq!(of("v1", Some("tmpfs")), Ok(Backing::Memory));
        assert_eq!(of("v1", Some("fuse")), Ok(Backing::Fuse));
        assert_eq!(of("tmpfs-1", None), Ok(Backing::Memory));
        assert_eq!(of("tmpfs-1", Some("directory")), directory("tmpfs-1"));
        assert_eq!(of("v1", Some("disk")), Err(Code::InvalidArgument));
    }

    #[test]
    fn a_handle_does_not_lead_elsewhere() {
        for handle in ["", ".", "..", "/", "/etc", "a/b", "../a", "a/"] {
            assert_eq!(of(handle, None), Err(Code::InvalidArgument), "{handle:?}");
        }
    }
}
