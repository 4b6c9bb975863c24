//! Options of what is made of runs that are over.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Output;

/// Options of `report`.
#[derive(Debug, Args)]
pub struct Report {
    /// A recording made with `--record`, or a directory written by `--export`
    pub file: PathBuf,
    /// A page for a browser, or text for a ticket
    #[arg(long, value_enum, default_value_t = Format::Html)]
    pub format: Format,
    /// Write to this file, also over an existing one; `-` for standard output
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
}

/// Form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One file that loads nothing and runs nothing
    Html,
    /// Text for a ticket; names from the node stand in fenced blocks
    Markdown,
}

/// Options of `compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// The first run: a recording made with `--record`, or a directory written by `--export`
    pub before: PathBuf,
    /// The second run
    pub after: PathBuf,
    /// How to print
    #[arg(long, value_enum, default_value_t = Output::Auto)]
    pub output: Output,
}
