//! What kubelet says of a volume's device, once for all pods: it lets it go when none of them uses the volume.

use std::sync::LazyLock;

use regex::Regex;

use super::{fixed, klog::cut};
use podstuck_model::said::Complaint;

/// What stands before the error proper, of a device that no pod uses any more (`GenerateUnmountDeviceFunc` and
/// `GenerateUnmapDeviceFunc`).
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

/// The volume whose device was let go, if that is what a message says.
pub(super) fn released(message: &str) -> Option<String> {
    Some(DEVICE_DONE.captures(message)?[1].to_owned())
}

/// An error of letting a device go, if it is that somebody still uses it. Of others, a driver's for example, it
/// is not known which pod they matter to.
pub(super) fn error(error: &str) -> Option<String> {
    let error = cut(OF_DEVICE.captures(error)?.get(1)?.as_str()).to_owned();
    complaint(&error).map(|_| error)
}

/// By kubelet's words, the same in `GenerateUnmountDeviceFunc` and `GenerateUnmapDeviceFunc` since 1.13.
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
