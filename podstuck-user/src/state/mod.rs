//! Bounded looks at the node. What could touch a dead file system happens in a helper process with
//! a deadline (`look`, `holders`); what the kernel answers from memory is read here (`mounts`,
//! `namespaces`). `sample` looks every few seconds, the others when they are asked.

pub mod holders;
pub mod look;
mod mountinfo;
pub mod mounts;
pub mod namespaces;
pub mod sample;
mod swap;
