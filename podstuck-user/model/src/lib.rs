//! The data model that all stages share: calls, objects, processes, findings, series; the engine's inputs
//! ([`event`]) and queries ([`query`]), and causes ([`cause`]). No I/O.

pub mod blamed;
pub mod block_volume;
pub mod bounded;
pub mod call;
pub mod cause;
pub mod chain;
pub mod claim;
pub mod client;
pub mod cluster;
pub mod container;
pub mod crowd;
pub mod csi;
pub mod degraded;
pub mod deleted;
pub mod diagnosis;
pub mod disk;
pub mod dra;
pub mod errno;
pub mod event;
pub mod evidence;
pub mod exit;
pub mod file_system;
pub mod finding;
pub mod halted;
pub mod holder;
pub mod hung;
pub mod identity;
pub mod kernel_lock;
pub mod linked_root;
pub mod mounted;
pub mod mountinfo;
pub mod mounts;
pub mod node;
pub mod node_record;
pub mod object;
pub mod operation;
pub mod path;
pub mod pod_group;
pub mod pod_record;
pub mod query;
pub mod raw_path;
pub mod remaining;
pub mod remedy;
pub mod runtime;
pub mod said;
pub mod sandbox;
mod schema;
pub mod series;
pub mod shell;
pub mod space;
pub mod stuck;
pub mod summary;
pub mod thread;
pub mod time;
pub mod totals;
pub mod tracker_id;
pub mod waiting;
pub mod words;

/// Name and version of the form of everything that is written for programs.
pub const SCHEMA: &str = "podstuck/v1";

/// The serde default of a field that is true if absent.
fn yes() -> bool {
    true
}
