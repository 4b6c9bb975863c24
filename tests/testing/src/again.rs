//! Tests of what belongs to a whole process, such as its signals: they start themselves again.
//!
//! So that the part that runs there is no test of its own, which others would count or call ignored.

use std::env;
use std::process::Command;

const STARTED_AGAIN: &str = "PODSTUCK_TEST_STARTED_AGAIN";

/// The calling test in a process of its own, in which [`is_started_again`]. What it prints is not
/// captured.
///
/// # Panics
///
/// When the system does not say which program this is.
#[allow(clippy::expect_used, reason = "a test stops at the first surprise")]
pub fn again() -> Command {
    let mut command = Command::new(env::current_exe().expect("the path of this program"));
    command.args(["--exact", &crate::current(), "--nocapture"]).env(STARTED_AGAIN, "1");
    command
}

/// Whether the calling test is to do what it starts in a process of its own.
pub fn is_started_again() -> bool {
    env::var_os(STARTED_AGAIN).is_some()
}
