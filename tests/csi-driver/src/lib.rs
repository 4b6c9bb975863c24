//! A CSI driver of the tests' own: it publishes directories as a real one does, and fails on demand
//! as real ones do.
//!
//! kubelet's side is real in these tests, and its patience, its errors and its log follow from what a
//! driver answers. A published driver has no option to forget, to hang, or to unmount in the
//! wrong place.
//!
//! From the ground up: [`proto`] is the interface, [`klog`] the log; [`fault`] is what is to go wrong
//! and [`state`] what the driver believes; [`mounts`] are the system calls, [`in_flight`] the locks,
//! [`driver`] what each call does with all of them. [`node`], [`identity`] and [`registrar`] are the
//! services; [`frames`], [`connection`] and [`socket`] carry them.

pub mod connection;
pub mod driver;
pub mod fault;
pub mod frames;
pub mod identity;
pub mod in_flight;
pub mod klog;
pub mod mounts;
pub mod node;
pub mod proto;
pub mod registrar;
pub mod socket;
pub mod state;
pub mod volume;
