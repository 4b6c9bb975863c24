//! From a path to pod, volume and container; from a process to the part it plays on the node.
//!
//! All paths are those of the node or of the caller's mount namespace. The host root (`/`, or
//! `/host` in a container that has the node's file system there) is put in front only where a
//! file is read.

pub(crate) mod cgroup;
pub(crate) mod cgroup_walk;
pub(crate) mod classify;
pub(crate) mod component;
pub(crate) mod containers;
pub(crate) mod data_roots;
pub(crate) mod distribution;
pub(crate) mod dns_name;
pub(crate) mod kubelet;
pub(crate) mod kubelet_trees;
pub(crate) mod layout;
#[cfg(test)]
mod layouts_tests;
pub(crate) mod living;
pub(crate) mod name_source;
pub(crate) mod names;
pub(crate) mod pod_record;
pub(crate) mod process;
pub(crate) mod root_views;
pub(crate) mod roots;
pub(crate) mod runtimes;
pub(crate) mod storage;
pub(crate) mod target_roots;
pub(crate) mod targets;
pub(crate) mod traces;
pub(crate) mod trust;
pub(crate) mod uid;
pub(crate) mod unit;
#[cfg(test)]
mod walk_tests;
pub(crate) mod wanted;

pub(crate) use component::component_for;
pub use layout::{target_names, target_root};
pub(crate) use name_source::NameSource;
pub(crate) use names::{Listed, PodNames};
pub(crate) use roots::{from_host, kubelet_roots, log_dirs_for, on_host};
pub(crate) use wanted::WantedError;
