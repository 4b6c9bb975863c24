//! The names of rows of rates, escaped.

use crate::present::text::nouns;
use podstuck_model::{
    identity::{Target, TargetKind},
    path::{safe, safe_path},
};

/// The pod, or the container when no pod is known.
pub(super) fn pod_label(target: &Target) -> String {
    match (&target.pod, &target.container) {
        (Some(pod), _) => nouns::pod_short(pod),
        (None, Some(id)) => {
            format!("container {}", nouns::container(id, target.container_name.as_deref()))
        }
        (None, None) => "(no pod)".into(),
    }
}

/// The volume, with its pod before it.
pub(super) fn volume_label(target: &Target) -> String {
    let what = match (&target.volume, target.kind) {
        (Some(volume), _) => safe(volume.name.as_bytes()).into_owned(),
        (None, TargetKind::PodDirectory) => "pod directory".into(),
        (None, TargetKind::ContainerBundle) => "container bundle".into(),
        (None, TargetKind::ContainerLayer) => "container layer".into(),
        (None, _) => safe_path(&target.root).into_owned(),
    };
    match &target.pod {
        Some(pod) => format!("{} {what}", nouns::pod_short(pod)),
        None => what,
    }
}
