//! A copy of the workspace's source.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace::Workspace;
use podstuck_process as process;

/// Copies the files that are committed, or would be, into a folder.
pub(crate) fn copy_to(workspace: &Workspace, folder: &Path) -> Result<()> {
    for file in files(workspace)? {
        let (from, to) = (workspace.root.join(&file), folder.join(&file));
        // Removed in the working tree, but not in the commit.
        if !from.exists() {
            continue;
        }
        let parent = to.parent().context("a file lies in a folder")?;
        fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
        fs::copy(&from, &to).with_context(|| format!("copying {}", from.display()))?;
    }
    Ok(())
}

fn files(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let mut list = Command::new("git");
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]);
    let listed = process::output(list.current_dir(&workspace.root))?;
    Ok(listed.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect())
}
