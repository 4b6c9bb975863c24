//! Removals that are refused, each of another object in another directory.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use anyhow::{Context, Result, bail};
use nix::unistd::{Uid, setresuid};

/// The overflow user and group id.
const NOBODY: u32 = 65534;

/// In `count` directories of root's: another user may not remove anything there.
pub(crate) fn everywhere(top: &Path, count: u64) -> Result<()> {
    let file = |number: u64| top.join(format!("d{number}")).join("f");
    for number in 0..count {
        let file = file(number);
        let directory = file.parent().context("no directory")?;
        fs::create_dir_all(directory)?;
        fs::set_permissions(directory, Permissions::from_mode(0o755))?;
        fs::write(&file, "")?;
    }
    let nobody = Uid::from_raw(NOBODY);
    setresuid(nobody, nobody, nobody).context("becoming nobody")?;
    for number in 0..count {
        if fs::remove_file(file(number)).is_ok() {
            bail!("it was removed");
        }
    }
    Ok(())
}
