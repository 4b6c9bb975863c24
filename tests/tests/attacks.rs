//! What a tenant does in a container, beside a pod that is stuck: what is true is found, kept and shown, no other pod
//! is accused, a printed command meets the pod's object, and the tool stays within its limits.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "attacks/crowd.rs"]
mod crowd;
#[path = "attacks/hanging.rs"]
mod hanging;
#[path = "attacks/look_alikes.rs"]
mod look_alikes;
#[path = "common/meter.rs"]
mod meter;
#[path = "attacks/names.rs"]
mod names;
#[path = "attacks/pretenders.rs"]
mod pretenders;
#[path = "attacks/shares.rs"]
mod shares;
#[path = "common/stuck_pod.rs"]
#[expect(dead_code, reason = "each uses a part of it")]
mod stuck_pod;
#[path = "common/tenant.rs"]
mod tenant;
#[path = "common/victim.rs"]
mod victim;
