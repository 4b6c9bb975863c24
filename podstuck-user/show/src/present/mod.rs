//! Findings and summaries as text and as JSON. Pure: every function returns text.
//!
//! Names of files, processes and pods were chosen by others. No renderer prints one without
//! [`podstuck_model::path::safe`] or JSON's own escapes.

mod elide;
pub mod json;
mod near;
mod quote;
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
