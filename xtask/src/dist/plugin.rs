//! `kubectl podstuck`: a script, in an archive as krew takes it, with krew's manifest.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::archive::Archive;
use super::{Release, read, write};
use crate::checksum::sha256;

const SCRIPT: &str = include_str!("files/kubectl-podstuck");
const MANIFEST: &str = include_str!("files/krew.yaml");

/// Writes both; the files.
pub(super) fn make(release: &Release<'_>) -> Result<[PathBuf; 2]> {
    let image = format!("{}:{}", release.image, release.version);
    let script = SCRIPT.replace("@IMAGE@", &image).replace("@VERSION@", release.version);
    let mut archive = Archive::new(release.time);
    archive.file("kubectl-podstuck", 0o755, script.as_bytes())?;
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        archive.file(licence, 0o644, &read(&release.workspace.root.join(licence))?)?;
    }
    let packed = release.out.join(format!("kubectl-podstuck-{}.tar.gz", release.version));
    write(&packed, &release.gzip(&archive.finish()?)?)?;
    let name = packed.file_name().context("the archive has a name")?.to_string_lossy();
    let url = format!("{}/v{}/{name}", release.release_url.trim_end_matches('/'), release.version);
    let manifest = MANIFEST
        .replace("@VERSION@", release.version)
        .replace("@HOMEPAGE@", release.release_url)
        .replace("@URL@", &url)
        .replace("@SHA256@", &sha256(&packed)?);
    let file = release.out.join("podstuck.yaml");
    write(&file, manifest.as_bytes())?;
    Ok([packed, file])
}
