//! What is seen of the node beside the calls: whose a path and a process are (`identity`), bounded looks at what is
//! there (`state`), what a run is about (`scope`), and the answers to what the engine asks (`ask`). It decides nothing,
//! and knows nothing of the probes.

pub mod identity;

pub mod program;
pub mod state;

pub mod scope;

pub mod ask;
