//! Bounded looks at the node. What could touch a dead file system happens in a helper process with
//! a deadline (`look`); what the kernel answers from memory is read here (`mounts`). `sample` looks
//! every few seconds, the others when they are asked.

pub mod look;
pub mod mounts;
pub mod sample;
