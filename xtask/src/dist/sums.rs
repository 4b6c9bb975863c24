//! Checksums of all files, in the format of `sha256sum --check`.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{Release, write};
use crate::checksum::sha256;

/// Writes them; returns the file.
pub(super) fn make(release: &Release<'_>, files: &[PathBuf]) -> Result<PathBuf> {
    let mut sums = String::new();
    for file in files {
        let name = file.file_name().context("an artefact has a name")?.to_string_lossy();
        // Writing to a string cannot fail.
        let _ = writeln!(sums, "{}  {name}", sha256(file)?);
    }
    let file = release.out.join("SHA256SUMS");
    write(&file, sums.as_bytes())?;
    Ok(file)
}
