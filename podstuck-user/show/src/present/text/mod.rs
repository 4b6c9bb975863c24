//! Text for people, at three in the morning: the verdict first, then its evidence, then the remedies.

mod answer;
pub(crate) mod chain;
mod diagnosis;
mod explain;
mod finding;
mod holders;
mod hung;
mod list;
pub(crate) mod nouns;
mod progress;
mod start;
mod summary;
mod way_out;

pub use answer::{answer, gone, held};
pub use diagnosis::diagnosis;
pub use explain::{explain, explain_all};
pub(crate) use finding::{call, seen};
pub use finding::{finding, update};
pub use holders::{holder, search};
pub use hung::hung;
pub use list::{ListEnd, list_end, listed, name_width, so_far};
pub(crate) use nouns::text;
pub use progress::progress;
pub use start::start;
pub use summary::{Found, not_looked_at, summary};
pub(crate) use summary::{cost, not_looked_at_sentence, notes};
pub(crate) use way_out::{COMMAND, does};
