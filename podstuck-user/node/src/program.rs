//! Programs where distributions put them. Which one runs as root is not for the caller's `PATH` to say.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::identity::on_host;

/// The last is NixOS's.
const DIRECTORIES: [&str; 5] =
    ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/run/current-system/sw/bin"];

/// The program of this name, below a root directory. Its link, if it is one, may lead out of that.
pub fn find(root: &Path, name: &str) -> Option<PathBuf> {
    let paths = DIRECTORIES.iter().map(|directory| on_host(root, &Path::new(directory).join(name)));
    paths.into_iter().find(|path| fs::symlink_metadata(path).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_for_in_fixed_directories() {
        let root = tempfile::tempdir().unwrap();
        let find = |name| find(root.path(), name);
        assert_eq!(find("xargs"), None);
        for directory in ["tmp", "bin"] {
            fs::create_dir(root.path().join(directory)).unwrap();
        }
        fs::write(root.path().join("tmp/xargs"), "").unwrap();
        assert_eq!(find("xargs"), None);
        fs::write(root.path().join("bin/xargs"), "").unwrap();
        assert_eq!(find("xargs"), Some(root.path().join("bin/xargs")));
        assert!(super::find("/".as_ref(), "sh").is_some());
    }
}
