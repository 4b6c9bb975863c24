//! `findings.jsonl`: grows by whole lines.
//!
//! It is appended to rather than rewritten: a run may have thousands of findings, and the ones before a crash matter
//! most. Each line is one `write` to a file opened for appending, which a kill cannot split; when the disk was too
//! full for all of it, the written part is truncated again.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use rustix::fs::{OFlags, fcntl_setfl};

use super::{error::ExportError, files::replace};

/// Name of the file.
pub(super) const FILE: &str = "findings.jsonl";

/// Limit of the size, in bytes: enough for tens of thousands of findings, too little to fill a disk.
const MAX_BYTES: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct FindingsFile {
    path: PathBuf,
    file: File,
    length: u64,
}

impl FindingsFile {
    /// Replaces a former run's file by an empty one.
    pub(super) fn create(dir: &Path) -> Result<Self, ExportError> {
        let path = dir.join(FILE);
        // Kept open rather than opened again: by then the name might be another user's link.
        let file = replace(dir, FILE, b"")?;
        fcntl_setfl(&file, OFlags::APPEND)
            .map_err(|e| ExportError::Write { path: path.clone(), source: e.into() })?;
        Ok(Self { path, file, length: 0 })
    }

    pub(super) fn append(&mut self, line: &str) -> Result<(), ExportError> {
        let length = self.length + line.len() as u64;
        if length > MAX_BYTES {
            return Err(ExportError::Full { path: self.path.clone(), limit: MAX_BYTES });
        }
        let fail = |source| ExportError::Write { path: self.path.clone(), source };
        let written = loop {
            match self.file.write(line.as_bytes()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        if !matches!(written, Ok(n) if n == line.len()) {
            self.file.set_len(self.length).map_err(fail)?;
        }
        match written {
            Ok(n) if n == line.len() => {
                self.length = length;
                Ok(())
            }
            Ok(_) => Err(fail(io::ErrorKind::StorageFull.into())),
            Err(error) => Err(fail(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};

    use super::*;

    #[test]
    fn lines_are_there_at_once_and_a_new_run_begins_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        fs::write(&path, "of the last run\n").unwrap();
        let mut file = FindingsFile::create(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
        file.append("{\"a\":1}\n").unwrap();
        file.append("{\"a\":2}\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"a\":1}\n{\"a\":2}\n");
    }

    #[test]
    fn a_full_file_says_so_and_stays_whole() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = FindingsFile::create(dir.path()).unwrap();
        file.append("{}\n").unwrap();
        file.length = MAX_BYTES - 2;
        let error = file.append("{}\n").unwrap_err();
        assert!(
            error.to_string().ends_with("has reached 67108864 bytes: later findings are left out")
        );
        assert_eq!(fs::read_to_string(dir.path().join(FILE)).unwrap(), "{}\n");
    }

    #[test]
    fn a_refused_write_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = FindingsFile::create(dir.path()).unwrap();
        file.file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let error = file.append("{}\n").unwrap_err();
        assert!(error.to_string().ends_with("/findings.jsonl"), "{error}");
    }
}
