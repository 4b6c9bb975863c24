//! `podstuck watch`: traces live, tells findings as they form.

use super::{
    Exit, Failure, away,
    trace::{self, Until},
};
use crate::cli::{Tracing, Watch};

/// Runs the command.
pub fn run(mut options: Watch, verbose: u8) -> Result<Exit, Failure> {
    let Tracing { export, record, node, .. } = &mut options.tracing;
    away::leave(export.iter_mut().chain(record).chain(away::of_node(node)))?;
    trace::run(&options.tracing, Until::Stopped(options.duration), verbose)
}
