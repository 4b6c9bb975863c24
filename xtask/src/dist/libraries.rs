//! The libraries that a program is linked against: none for a release; a development build is packed with its
//! libraries.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use lddtree::DependencyAnalyzer;

/// A library or the loader: its path in the archive without the leading slash, and the file.
pub(super) type Library = (String, PathBuf);

/// The libraries of a program.
pub(super) fn of(program: &Path) -> Result<Vec<Library>> {
    let tree = DependencyAnalyzer::new("/".into())
        .analyze(program)
        .with_context(|| format!("looking for the libraries of {}", program.display()))?;
    let mut libraries = Vec::new();
    // A static program has no loader, whatever libraries the analysis reports.
    let Some(loader) = &tree.interpreter else { return Ok(libraries) };
    libraries.push((loader.trim_start_matches('/').to_owned(), PathBuf::from(loader)));
    for library in tree.libraries.values() {
        if let Some(real) = &library.realpath {
            // A folder that every loader searches, whatever this machine's folders are.
            libraries.push((format!("lib/{}", library.name), real.clone()));
        }
    }
    // The loader is also one of the libraries.
    libraries.sort();
    libraries.dedup_by(|one, other| one.0 == other.0);
    Ok(libraries)
}
