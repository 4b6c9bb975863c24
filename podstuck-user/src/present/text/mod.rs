//! For people, at three in the morning: the verdict first, then what it rests on, then what to do.

mod diagnosis;
mod explain;
mod finding;
mod holders;
mod hung;
mod nouns;
mod progress;
mod start;
mod summary;
mod way_out;

pub use diagnosis::diagnosis;
pub use explain::{explain, explain_all};
pub use finding::{finding, update};
pub use holders::{holder, search};
pub use hung::hung;
pub use progress::progress;
pub use start::start;
pub use summary::summary;
