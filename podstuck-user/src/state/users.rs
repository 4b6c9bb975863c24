//! Processes that have something open below a directory, or are in it, by the text of their links.
//! The links are read, never followed.

use std::{fs, path::Path};

use crate::model::path::safe;

/// Users that are named. One is enough to go and ask.
const NAMED: usize = 8;

/// A process that uses something below a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Process id.
    pub pid: u32,
    /// Its name. Safe to show.
    pub comm: String,
    /// What it has there, as in `its working directory`.
    pub how: &'static str,
}

/// Who is below a directory, as far as the paths are those of our mount namespace. `owner` is left
/// out: it is the one who deletes.
pub fn below(directory: &Path, owner: u32) -> Vec<User> {
    let mut users = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if pid == owner || pid == std::process::id() {
            continue;
        }
        if let Some(how) = uses(&entry.path(), directory) {
            let comm = fs::read(entry.path().join("comm")).unwrap_or_default();
            users.push(User { pid, comm: safe(comm.trim_ascii_end()).into_owned(), how });
        }
        if users.len() == NAMED {
            break;
        }
    }
    users
}

fn uses(process: &Path, directory: &Path) -> Option<&'static str> {
    let is_below = |link: &Path| fs::read_link(link).is_ok_and(|to| to.starts_with(directory));
    if is_below(&process.join("cwd")) {
        return Some("its working directory");
    }
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    open.map(|entry| entry.path()).any(|link| is_below(&link)).then_some("an open file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_in_a_directory_is_found() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(below(dir.path(), 0), []);
        let mut child =
            std::process::Command::new("sleep").arg("60").current_dir(dir.path()).spawn().unwrap();
        let found = below(dir.path(), 0);
        let of_owner = below(dir.path(), child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        let how = "its working directory";
        assert_eq!(found, [User { pid: found[0].pid, comm: found[0].comm.clone(), how }]);
        assert_eq!(found[0].pid, child.id());
        assert_eq!(of_owner, []);
    }
}
