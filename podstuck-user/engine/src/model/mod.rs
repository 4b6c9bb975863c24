//! The words that all stages speak: calls, objects, people, findings, series. No I/O.

pub mod call;
pub mod diagnosis;
pub mod evidence;
pub mod file_system;
pub mod finding;
pub mod holder;
pub mod hung;
pub mod identity;
pub mod mountinfo;
pub mod mounts;
pub mod node;
pub mod node_record;
pub mod object;
pub mod operation;
pub mod path;
pub mod pod_record;
pub mod raw_path;
pub mod remaining;
pub mod remedy;
pub mod said;
pub mod series;
pub mod space;
pub mod stuck;
pub mod summary;
pub mod thread;
pub mod time;
