//! Folders that are made by the project's own commands.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Records in a folder what it was made of.
const STAMP: &str = "packages";

/// Creates a folder and those that it lies in, unless they exist.
///
/// # Errors
///
/// Fails if one cannot be created.
pub fn create(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

/// Removes a folder with all that it contains, if it exists.
///
/// # Errors
///
/// Fails if it exists and cannot be removed.
pub fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}

/// Creates an empty folder: what it contained is removed.
///
/// # Errors
///
/// Fails if it cannot be removed or created.
pub fn fresh(folder: &Path) -> Result<()> {
    remove(folder)?;
    create(folder)
}

/// Fills a folder, which is empty then, unless it was made of the same as `stamp` says.
///
/// # Errors
///
/// Fails if the folder cannot be written, or `make` fails.
pub fn unless_stamped(folder: &Path, stamp: &str, make: impl FnOnce() -> Result<()>) -> Result<()> {
    let file = folder.join(STAMP);
    if fs::read_to_string(&file).is_ok_and(|found| found == stamp) {
        return Ok(());
    }
    fresh(folder)?;
    make()?;
    // Written last, so that what was interrupted is repeated.
    fs::write(&file, stamp).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_filled_once_for_each_stamp_and_again_when_that_failed() {
        let folder = std::env::temp_dir().join(format!("podstuck-folder-{}", std::process::id()));
        let made = |stamp: &str, result: Result<()>| {
            let mut is_made = false;
            let outcome = unless_stamped(&folder, stamp, || {
                is_made = true;
                assert_eq!(fs::read_dir(&folder)?.count(), 0);
                result
            });
            (is_made, outcome.is_ok())
        };
        assert_eq!(made("1", Err(anyhow::anyhow!("interrupted"))), (true, false));
        assert_eq!(made("1", Ok(())), (true, true));
        assert_eq!(made("1", Ok(())), (false, true));
        assert_eq!(made("2", Ok(())), (true, true));
        remove(&folder).unwrap();
    }
}
