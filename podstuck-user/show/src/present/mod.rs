//! Findings and summaries as people and programs read them. Pure: everything returns text.
//!
//! Names of files, processes and pods were chosen by others. No renderer puts one out without
//! [`podstuck_model::path::safe`] or JSON's own escapes.

mod elide;
pub mod json;
mod near;
pub mod style;
pub mod text;
pub mod words;

#[cfg(test)]
pub(crate) mod foreign;
#[cfg(test)]
mod hostile_tests;
#[cfg(any(test, feature = "sample"))]
pub mod sample;
#[cfg(test)]
mod shell_tests;
