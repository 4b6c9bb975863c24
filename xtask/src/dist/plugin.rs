//! `kubectl podstuck`: an archive with the program for each architecture, and the manifest for krew.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::archive::Archive;
use super::{Built, Release, read, write};
use crate::checksum::sha256;

const MANIFEST: &str = include_str!("files/krew.yaml");
const PLATFORM: &str = include_str!("files/krew-platform.yaml");

/// Writes everything; returns the files.
pub(super) fn make(release: &Release<'_>, built: &[Built]) -> Result<Vec<PathBuf>> {
    let mut made = Vec::new();
    let mut platforms = String::new();
    for built in built {
        let packed = pack(release, built)?;
        let name = packed.file_name().context("the archive has a name")?.to_string_lossy();
        let url = release.release_url.trim_end_matches('/');
        let url = format!("{url}/v{}/{name}", release.version);
        let platform = PLATFORM
            .replace("@ARCHITECTURE@", built.architecture.of_debian())
            .replace("@URL@", &url)
            .replace("@SHA256@", &sha256(&packed)?);
        platforms.push_str(&platform);
        made.push(packed);
    }
    let manifest = MANIFEST
        .replace("@VERSION@", release.version)
        .replace("@HOMEPAGE@", release.release_url)
        .replace("@PLATFORMS@\n", &platforms);
    let file = release.out.join("podstuck.yaml");
    write(&file, manifest.as_bytes())?;
    made.push(file);
    Ok(made)
}

fn pack(release: &Release<'_>, built: &Built) -> Result<PathBuf> {
    let mut archive = Archive::new(release.time);
    archive.file("kubectl-podstuck", 0o755, &read(&built.plugin)?)?;
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        archive.file(licence, 0o644, &read(&release.workspace.root.join(licence))?)?;
    }
    let architecture = built.architecture.of_debian();
    let name = format!("kubectl-podstuck-{}-linux-{architecture}.tar.gz", release.version);
    let packed = release.out.join(name);
    write(&packed, &release.gzip(&archive.finish()?)?)?;
    Ok(packed)
}
