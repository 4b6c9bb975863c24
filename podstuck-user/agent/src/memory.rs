//! The state that an agent keeps across a restart, in one small file.

use std::{fs, io::Write, path::Path};

use anyhow::{Context, Result};

use crate::board::Memory;

/// Name of the file.
const FILE: &str = "events.json";

/// The state that the previous agent saved; empty if the file is missing or incomplete.
pub(crate) fn read(directory: &Path) -> Memory {
    let text = fs::read(directory.join(FILE)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Replaces the file atomically.
///
/// # Errors
/// Fails if the directory cannot be written.
pub(crate) fn write(directory: &Path, memory: &Memory) -> Result<()> {
    let to = directory.join(FILE);
    let failed = || format!("cannot write {}", to.display());
    let mut file = tempfile::NamedTempFile::new_in(directory).with_context(failed)?;
    file.write_all(&serde_json::to_vec(memory)?).with_context(failed)?;
    file.persist(&to).with_context(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{posted::Posted, stuck::Pod};

    #[test]
    fn what_was_written_is_read_and_what_is_broken_is_nothing() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(directory.path()), Memory::default());
        let pod = Pod { uid: "u".into(), namespace: "shop".into(), name: "cart-0".into() };
        let posted = Posted { name: "cart-0.1".into(), count: 2, at: None };
        let memory = Memory { pods: vec![(pod, "down".into(), posted)], node: Vec::new() };
        write(directory.path(), &memory).unwrap();
        assert_eq!(read(directory.path()), memory);
        fs::write(directory.path().join(FILE), "{\"pods\":[").unwrap();
        assert_eq!(read(directory.path()), Memory::default());
    }
}
