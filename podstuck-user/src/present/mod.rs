//! Findings and summaries as people and programs read them. Pure: everything returns text.
//!
//! Names of files, processes and pods were chosen by others. No renderer puts one out without
//! [`crate::model::path::safe`] or JSON's own escapes.

mod elide;
pub mod json;
mod near;
pub mod style;
pub mod text;
pub(crate) mod words;

#[cfg(test)]
pub(crate) mod foreign;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod shell_tests;
