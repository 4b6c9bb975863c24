//! The run of `watch`, `diagnose` and the list: its preparation (`setup`), its work (`trace`, `session`), and its
//! output (`presenter`, `reporter`).

pub(crate) mod api_reader;
pub(crate) mod attribute;
pub(crate) mod driver_logs;
pub(crate) mod known_roots;
pub(crate) mod lasting;
pub(crate) mod lister;
pub(crate) mod log_reader;
pub(crate) mod on_screen;
pub(crate) mod presenter;
pub(crate) mod printer;
pub(crate) mod probing;
pub(crate) mod record_news;
pub(crate) mod reporter;
pub(crate) mod rooting;
pub(crate) mod session;
pub(crate) mod setup;
pub(crate) mod starting;
pub(crate) mod trace;
pub(crate) mod unknown_roots;
pub(crate) mod wanted;
