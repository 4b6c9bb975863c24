//! What the tests of all crates share: being skipped, and running in a process of their own.

mod again;
mod skip;

pub use again::{again, is_started_again};
pub use skip::{SKIPS, skip, skip_here};

/// The test that runs: the test library names its threads so.
fn current() -> String {
    std::thread::current().name().unwrap_or("a thread without a name").to_owned()
}
