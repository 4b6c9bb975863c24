//! `podstuck watch`: traces live, tells findings as they form.

use super::{
    Exit, Failure,
    trace::{self, Until},
};
use crate::cli::Watch;

/// Runs the command.
pub fn run(options: &Watch, verbose: u8) -> Result<Exit, Failure> {
    trace::run(&options.tracing, Until::Stopped(options.duration), verbose)
}
