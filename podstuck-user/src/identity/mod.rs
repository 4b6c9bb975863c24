//! From a path to pod, volume and container; from a process to the part it plays on the node.
//!
//! All paths are those of the node or of the caller's mount namespace. The host root (`/`, or
//! `/host` in a container that has the node's file system there) is put in front only where a
//! file is read.

pub mod cgroup;
pub mod cgroup_walk;
pub mod classify;
pub mod component;
pub mod layout;
pub mod names;
pub mod pod_record;
pub mod process;
pub mod roots;
pub mod uid;
pub mod wanted;

pub use cgroup::pod_of_cgroup;
pub use classify::classify;
pub use component::component_for;
pub use layout::{markers, target_root};
pub use names::{PodNames, log_dirs_for};
pub use process::ActorCache;
pub use roots::{kubelet_roots, on_host};
pub use wanted::WantedError;
