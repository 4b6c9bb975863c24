//! What a test's run answered, kept for `cargo xtask freeze`, which compares it with what was answered before.

use std::path::Path;
use std::{env, fs};

/// Names the folder that answers are kept in; without it none is.
pub const FREEZE: &str = "PODSTUCK_FREEZE";

/// Keeps an answer under this name.
///
/// # Panics
/// If it cannot be kept: a comparison would miss it.
pub fn freeze(name: &str, answer: &str) {
    if let Some(folder) = env::var_os(FREEZE) {
        let file = Path::new(&folder).join(name);
        fs::write(&file, answer).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}
