//! From a path to pod, volume and container; from a process to the part it plays on the node.
//!
//! All paths are those of the node or of the caller's mount namespace. The host root (`/`, or
//! `/host` in a container that has the node's file system there) is put in front only where a
//! file is read.

pub(crate) mod cgroup;
pub(crate) mod cgroup_walk;
pub(crate) mod classify;
pub(crate) mod component;
pub(crate) mod layout;
pub(crate) mod names;
pub(crate) mod pod_record;
pub(crate) mod process;
pub(crate) mod roots;
pub(crate) mod uid;
pub(crate) mod wanted;

pub(crate) use component::component_for;
pub use layout::{markers, target_root};
pub(crate) use names::{PodNames, log_dirs_for};
pub(crate) use roots::{kubelet_roots, on_host};
pub(crate) use wanted::WantedError;
