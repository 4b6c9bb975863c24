//! What is known of a pod's runtime: what it says, and whether it runs at all.

pub(crate) mod causes;
pub(crate) mod docker;
pub(crate) mod image_volume;
pub(crate) mod sandbox;
pub(crate) mod says;
pub(crate) mod shim;
mod silent;
pub(crate) mod state;
