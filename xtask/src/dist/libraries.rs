//! What a program is linked against: nothing, where it was built for others; a development build goes with its
//! libraries.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use lddtree::DependencyAnalyzer;

/// A library, or the loader: where it belongs, without the slash at its beginning, and where it is.
pub(super) type Library = (String, PathBuf);

/// All of them.
pub(super) fn of(program: &Path) -> Result<Vec<Library>> {
    let tree = DependencyAnalyzer::new("/".into())
        .analyze(program)
        .with_context(|| format!("looking for the libraries of {}", program.display()))?;
    let mut libraries = Vec::new();
    // A static program has no loader, whatever else it seems to need.
    let Some(loader) = &tree.interpreter else { return Ok(libraries) };
    libraries.push((loader.trim_start_matches('/').to_owned(), PathBuf::from(loader)));
    for library in tree.libraries.values() {
        if let Some(real) = &library.realpath {
            // Where every loader looks, whatever this machine's folders are called.
            libraries.push((format!("lib/{}", library.name), real.clone()));
        }
    }
    // The loader is one of the libraries, too.
    libraries.sort();
    libraries.dedup_by(|one, other| one.0 == other.0);
    Ok(libraries)
}
