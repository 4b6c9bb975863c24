//! What the tests of all crates share: being skipped, running in a process of their own, a server
//! that answers as an API server does, and samples of the model's types.

mod again;
#[cfg(feature = "api-server")]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
pub mod api_server;
mod hearing;
mod own_words;
pub mod samples;
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]
mod schema;
mod service;
mod skip;

pub use again::{again, is_started_again};
pub use hearing::hear_terminal;
pub use own_words::own_words;
pub use schema::Schema;
#[cfg(feature = "api-server")]
pub use service::roots_directory;
pub use service::service;
pub use skip::{SKIPS, skip, skip_here};

/// The test that runs: the test library names its threads so.
fn current() -> String {
    std::thread::current().name().unwrap_or("a thread without a name").to_owned()
}
