//! Log lines on standard error, for whoever asked for them.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Warnings always; more with `-v`, the probes' own lines with `-vv`. The loader's lines help only
/// its authors.
pub fn start(verbose: u8) {
    let filter = match verbose {
        0 => "warn",
        1 => "info,aya=warn,aya_obj=warn",
        _ => "debug,aya=warn,aya_obj=warn",
    };
    let subscriber = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(EnvFilter::new(filter))
        .with_target(false)
        // Told on standard error as well, which panics where the terminal is gone.
        .log_internal_errors(false);
    // A second start, as in tests, keeps the first.
    let _ = subscriber.try_init();
}
