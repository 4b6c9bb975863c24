//! The interfaces as Rust, made by `build.rs` of the files in `proto/`.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated; the files in proto/ are what is to be read"
)]

/// What kubelet says to a CSI driver.
pub mod csi {
    tonic::include_proto!("csi.v1");
}

/// How a driver makes itself known to kubelet.
pub mod registration {
    tonic::include_proto!("pluginregistration");
}
