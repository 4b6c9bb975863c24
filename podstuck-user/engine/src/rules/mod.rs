//! Rules: what facts mean. Each is a pure function from what a tracker has seen and was answered to
//! what is said about it.

pub(crate) mod bulk_delete;
pub(crate) mod bulk_delete_estimate;
pub(crate) mod bulk_delete_looks;
pub(crate) mod claim;
pub(crate) mod crossed_mount;
pub(crate) mod csi_driver;
pub(crate) mod dead_mount;
pub(crate) mod disk_full;
pub(crate) mod file_system;
pub(crate) mod holders;
pub(crate) mod hung_call;
pub(crate) mod hung_call_cause;
pub(crate) mod kubelet_lost;
pub(crate) mod left_mounted;
pub(crate) mod moments;
pub(crate) mod mount_in_use;
pub(crate) mod mount_point;
pub(crate) mod nested_mount;
pub(crate) mod not_attempted;
pub(crate) mod not_attempted_words;
pub(crate) mod not_empty;
pub(crate) mod orphan;
pub(crate) mod pinned_device;
pub(crate) mod pod_record;
pub(crate) mod refused;
pub(crate) mod runtime_says;
pub(crate) mod sharers;
pub(crate) mod standing;
pub(crate) mod swap_file;
pub(crate) mod unit;
pub(crate) mod unkillable;
pub(crate) mod wait_channel;
