//! What goes wrong around the tool while it watches: nothing that was promised is lost, and the end comes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "faults/clock.rs"]
mod clock;
#[path = "faults/disk.rs"]
mod disk;
#[path = "faults/ends.rs"]
mod ends;
#[path = "faults/many_waiting.rs"]
mod many_waiting;
#[path = "common/meter.rs"]
mod meter;
#[path = "common/pods_group.rs"]
mod pods_group;
#[path = "faults/scarce.rs"]
mod scarce;
#[path = "faults/silent.rs"]
mod silent;
#[path = "faults/silent_before.rs"]
mod silent_before;
#[path = "faults/silent_disks.rs"]
mod silent_disks;
#[path = "faults/silent_logs.rs"]
mod silent_logs;
#[path = "faults/silent_roots.rs"]
mod silent_roots;
#[path = "faults/silent_volume.rs"]
mod silent_volume;
#[path = "common/stuck_pod.rs"]
mod stuck_pod;
