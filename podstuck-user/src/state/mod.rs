//! Bounded looks at the node. What could touch a dead file system happens in a helper process with
//! a deadline (`look`); what the kernel answers from memory is read here (`mounts`). `sample` looks
//! every few seconds, `stuck` follows threads, the others look when they are asked.

pub mod look;
pub mod mount_point;
pub mod mounts;
pub mod peek;
pub mod sample;
pub mod stuck;
pub mod thread;
