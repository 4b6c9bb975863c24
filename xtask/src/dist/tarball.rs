//! The program with its pages, completions and licences, to be unpacked in any folder.

use std::path::PathBuf;

use anyhow::Result;

use super::archive::Archive;
use super::completions::Completion;
use super::pages::Page;
use super::{Built, Release, read, write};

/// Files of the workspace that are included.
const DOCUMENTS: [&str; 5] =
    ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", "LICENSE-GPL-2.0"];

/// Writes it; returns the file.
pub(super) fn make(
    release: &Release<'_>,
    built: &Built,
    pages: &[Page],
    completions: &[Completion],
) -> Result<PathBuf> {
    let name = format!("podstuck-{}-linux-{}", release.version, built.architecture.of_debian());
    let mut archive = Archive::new(release.time);
    archive.directory(&name, 0o755)?;
    archive.file(&format!("{name}/podstuck"), 0o755, &read(&built.program)?)?;
    for document in DOCUMENTS {
        let text = read(&release.workspace.root.join(document))?;
        archive.file(&format!("{name}/{document}"), 0o644, &text)?;
    }
    archive.directory(&format!("{name}/man"), 0o755)?;
    for page in pages {
        archive.file(&format!("{name}/man/{}", page.name), 0o644, page.text.as_bytes())?;
    }
    archive.directory(&format!("{name}/completions"), 0o755)?;
    for completion in completions {
        let file = format!("{name}/completions/podstuck.{}", completion.shell);
        archive.file(&file, 0o644, completion.text.as_bytes())?;
    }
    let file = release.out.join(format!("{name}.tar.gz"));
    write(&file, &release.gzip(&archive.finish()?)?)?;
    Ok(file)
}
