//! `podstuck diagnose`: one question, "why is this stuck?", one answer.

use super::{
    Exit, Failure,
    trace::{self, Until},
};
use crate::cli::Diagnose;

/// Runs the command.
pub fn run(options: &Diagnose, verbose: u8) -> Result<Exit, Failure> {
    trace::run(&options.tracing, Until::Firm(options.timeout), verbose)
}
