//! `podstuck watch`: traces live, prints findings as they form.

use super::away;
use crate::cli::{Tracing, Watch};
use crate::{
    live::trace::{self, Until},
    outcome::{Exit, Failure},
};

/// Runs the command.
pub fn run(mut options: Watch, verbose: u8) -> Result<Exit, Failure> {
    options.tracing.pin = options.pin.take();
    options.tracing.low_overhead = options.low_overhead;
    let Tracing { export, record, node, api, pin, .. } = &mut options.tracing;
    let of_all = away::of_node(node).chain(away::of_api(api));
    away::leave(export.iter_mut().chain(record).chain(pin).chain(of_all))?;
    trace::run(&options.tracing, Until::Stopped(options.duration), verbose)
}
