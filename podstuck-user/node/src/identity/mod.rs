//! Maps a path to its pod, volume and container, and a process to its component on the node.
//!
//! All paths are those of the node or of the caller's mount namespace. The host root (`/`, or `/host` in a container with
//! the node's file system there) is prepended only where a file is read.

pub mod cgroup;
pub(crate) mod cgroup_walk;
pub mod classify;
pub mod component;
pub mod containers;
pub mod data_roots;
pub mod distribution;
pub(crate) mod dns_name;
pub mod kubelet;
pub mod kubelet_trees;
pub mod layout;
#[cfg(test)]
mod layouts_tests;
pub mod living;
pub(crate) mod name_source;
pub mod names;
pub mod pod_record;
pub mod process;
pub mod root_views;
pub mod roots;
pub mod runtimes;
pub mod storage;
pub mod target_roots;
pub mod targets;
pub mod traces;
pub mod trust;
pub mod uid;
pub mod unit;
pub mod wanted;

pub use component::component_for;
pub use layout::{target_names, target_root};
pub use name_source::NameSource;
pub use names::{Listed, PodNames};
pub(crate) use roots::from_host;
pub use roots::{kubelet_roots, log_dirs_for, on_host};
pub use wanted::WantedError;
