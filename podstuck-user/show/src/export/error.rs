//! Errors of an export: each names its file.

use std::{io, path::PathBuf};

use podstuck_model::path::safe_path;

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The directory does not exist and cannot be created.
    #[error("cannot create the export directory {}", safe_path(path))]
    Directory {
        /// As given by `--export`.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Another run uses the directory, which describes one run.
    #[error(
        "another run writes to the export directory {}: end that one, or give this one a directory of \
         its own",
        safe_path(path)
    )]
    Busy {
        /// As given by `--export`.
        path: PathBuf,
    },
    /// A file cannot be written; its former content is still there, whole.
    #[error("cannot write {}", safe_path(path))]
    Write {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A finding is left out so that the tool does not fill the disk.
    #[error("{} has reached {limit} bytes: later findings are left out", safe_path(path))]
    Full {
        /// The file.
        path: PathBuf,
        /// Its greatest size in bytes.
        limit: u64,
    },
    /// The counts cannot be rendered in this format.
    #[error("cannot render {file}")]
    Render {
        /// Name of the file that was to be written.
        file: &'static str,
        /// Cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl ExportError {
    /// The error with the file's path below the directory as it was given.
    pub(super) fn below(mut self, dir: &std::path::Path) -> Self {
        if let Self::Write { path, .. } | Self::Full { path, .. } = &mut self
            && let Some(name) = path.file_name()
        {
            *path = dir.join(name);
        }
        self
    }

    /// For `map_err` on errors of a renderer's library.
    pub(super) fn render<E>(file: &'static str) -> impl Fn(E) -> Self
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        move |error| Self::Render { file, source: Box::new(error) }
    }
}
