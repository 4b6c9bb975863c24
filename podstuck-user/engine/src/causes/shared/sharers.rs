//! Other users of a file system that a remedy affects.

use std::{collections::BTreeSet, path::Path};

use crate::model::{
    mounts::Device,
    node::NodeSample,
    path::{safe, safe_path},
};

/// Places named.
const NAMED: usize = 8;

/// Pods and other places that have the same file system mounted, without the own pod; `None` if the sample does not show
/// that file system at all.
pub(crate) fn of(
    sample: &NodeSample,
    device: Device,
    own_pod: Option<&str>,
) -> Option<Vec<String>> {
    let mut all = sample.mounts.all().filter(|(_, _, mount)| mount.device == device).peekable();
    all.peek()?;
    let places: BTreeSet<String> = all.filter_map(|(_, _, m)| place(&m.point, own_pod)).collect();
    let rest = places.len().saturating_sub(NAMED);
    let more = (rest > 0).then(|| format!("and {rest} more"));
    Some(places.into_iter().take(NAMED).chain(more).collect())
}

/// `pod UID` for a mount point below a pod's directory, else the mount point itself; `None` for the own pod.
fn place(point: &Path, own_pod: Option<&str>) -> Option<String> {
    let mut names = point.iter().skip_while(|name| *name != "pods").skip(1);
    let pod = names.next().filter(|_| names.next().is_some_and(|name| name == "volumes"));
    match pod {
        Some(uid) if own_pod.is_some_and(|own| uid == own) => None,
        Some(uid) => Some(format!("pod {}", safe(uid.as_encoded_bytes()))),
        None => Some(safe_path(point).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_named_and_its_own_is_not() {
        let at = |point: &str| place(Path::new(point), Some("u-1"));
        assert_eq!(at("/var/lib/kubelet/pods/u-1/volumes/x/y"), None);
        assert_eq!(at("/var/lib/kubelet/pods/u-2/volumes/x/y").unwrap(), "pod u-2");
        assert_eq!(at("/mnt/\n").unwrap(), "/mnt/\\x0a");
        assert_eq!(at("/srv/pods/x").unwrap(), "/srv/pods/x");
    }
}
