//! Log lines on standard error, for whoever asked for them.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;

/// Warnings always; more with `-v`, the probes' own lines (through `log`) with `-vv`.
pub fn start(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    let subscriber = tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(level);
    // A second start, as in tests, keeps the first.
    let _ = subscriber.with_target(false).with_ansi(std::io::stderr().is_terminal()).try_init();
}
