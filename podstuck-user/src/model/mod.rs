//! The words that all stages speak: calls, objects, people, findings, series. No I/O.

pub mod call;
pub mod diagnosis;
pub mod finding;
pub mod holder;
pub mod hung;
pub mod identity;
pub mod operation;
pub mod path;
pub mod series;
pub mod summary;
pub mod time;
