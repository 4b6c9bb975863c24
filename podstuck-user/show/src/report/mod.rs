//! A run as a page that opens anywhere, and as Markdown for a ticket. Pure: a [`Model`] in, text out.
//!
//! A page loads nothing and runs nothing: its policy forbids both. Each figure has a table, too.

mod attempts;
mod collect;
mod escape;
mod figures;
mod markdown;
mod model;
mod page;
mod scale;
mod sections;
mod tables;

#[cfg(test)]
mod contrast_tests;
#[cfg(test)]
mod tests;

pub use attempts::Tried;
pub use collect::Collector;
pub use markdown::markdown;
pub use model::Model;
pub use page::page;

/// Name of the file in an export directory.
pub const FILE: &str = "report.html";
