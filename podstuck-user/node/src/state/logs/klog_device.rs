//! kubelet's entries about a volume's device. kubelet releases it once for all pods, when none of them uses the volume.

use std::sync::LazyLock;

use regex::Regex;

use super::{fixed, klog::cut};
use podstuck_model::said::Complaint;

/// The prefix of an error about releasing a device (`GenerateUnmountDeviceFunc` and `GenerateUnmapDeviceFunc`).
static OF_DEVICE: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r#"(?s)^(?:GetDeviceMountRefs check|UnmountDevice|UnmapDevice(?:\.\w+)?(?: check)?) failed "#,
        r#"for volume "[^"]*" \(UniqueName: "[^"]*"\) on node "[^"]*"\s*: (.*)$"#
    ))
});
static DEVICE_DONE: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r#"^(?:UnmountDevice|UnmapDevice) succeeded for volume "[^"]*" "#,
        r#"\(UniqueName: "([^"\s]+)"\) on node ""#
    ))
});

/// The volume whose device was released, if the message says so.
pub(super) fn released(message: &str) -> Option<String> {
    Some(DEVICE_DONE.captures(message)?[1].to_owned())
}

/// An error about releasing a device, if the device is still in use. Others, a driver's for example, cannot be
/// assigned to a pod.
pub(super) fn error(error: &str) -> Option<String> {
    let error = cut(OF_DEVICE.captures(error)?.get(1)?.as_str()).to_owned();
    complaint(&error).map(|_| error)
}

/// By kubelet's text, the same in `GenerateUnmountDeviceFunc` and `GenerateUnmapDeviceFunc` since 1.13.
pub(super) fn complaint(error: &str) -> Option<Complaint> {
    let words = [
        ("is still mounted by other references", Complaint::DeviceMounted),
        ("is still referenced from other Pods", Complaint::DeviceMapped),
        (
            "the device is in use when it was no longer expected to be in use",
            Complaint::DeviceInUse,
        ),
    ];
    words.into_iter().find(|(words, _)| error.contains(words)).map(|(_, complaint)| complaint)
}
