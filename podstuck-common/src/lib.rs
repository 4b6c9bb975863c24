//! The interface between the kernel's probes and user space: records, map keys, the latency buckets, the rule that
//! finds a target in a path, and the settings applied at load time.
//!
//! All code is pure and `no_std`, so that the same code runs on both sides and is tested on the host.
#![cfg_attr(not(test), no_std)]

#[cfg(target_endian = "big")]
compile_error!("path hashes read names as little-endian words; see `component.rs`");

pub mod bucket;
pub mod component;
pub mod config;
pub mod count;
pub mod entry_point;
pub mod in_flight;
pub mod kept;
pub mod lock;
pub mod lru;
pub mod record;
pub mod root;
pub mod trail;
