//! The directory names that start a target, and the probes' rule applied to the text of a path.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
    sync::LazyLock,
};

use podstuck_common::{
    component::name_hash,
    config::{ASIDE, Config, MARKERS, Marker},
    trail::Trail,
};

/// Where containers-storage moves a layer before it deletes it: `overlay/tempdirs/temp-dir-<number>/<number>-<layer>`
/// (since Podman 5.6; `storage/internal/tempdir`).
pub(super) const ASIDE_NAME: &str = "tempdirs";

/// Name, how many components after it belong to the target, whether a pod UID comes first.
const NAMES: [(&str, u32, bool); 7] = [
    // kubelet's pod directory layout: pods/<uid>/volumes/<plugin>/<volume>, and equally long paths
    // below volume-subpaths, volumeDevices, plugins and containers.
    ("pods", 3, true),
    // Docker's local volume driver, and Podman's: volumes/<name>/_data.
    ("volumes", 1, false),
    // Docker's overlay2 storage driver: overlay2/<layer>/{diff,merged,work}.
    ("overlay2", 1, false),
    // containers-storage of CRI-O and Podman: overlay/<layer>/{diff,merged,work}.
    ("overlay", 1 | ASIDE, false),
    // containerd's snapshotters: snapshots/<number>/{fs,work}.
    ("snapshots", 1, false),
    // containerd's task bundles, by namespace: Kubernetes' containers and Docker's.
    ("k8s.io", 1, false),
    ("moby", 1, false),
];

const _: () = assert!(NAMES.len() <= MARKERS);

/// The probes' configuration for a path below a proven directory.
pub(super) static PROVING: LazyLock<Config> = LazyLock::new(target_names);
/// The same where nothing can be proven.
static BY_TEXT: LazyLock<Config> = LazyLock::new(|| Config { by_text: 1, ..*PROVING });

/// The names by which the probes find targets, in a configuration in which nothing is wanted, slow or known.
pub fn target_names() -> Config {
    let mut markers = [Marker::default(); MARKERS];
    for (slot, (name, take, pod)) in markers.iter_mut().zip(NAMES) {
        *slot = Marker { hash: name_hash(name.as_bytes()), take, pod: u32::from(pod) };
    }
    Config { aside: name_hash(ASIDE_NAME.as_bytes()), markers, ..Config::EMPTY }
}

/// An absolute path without empty components, `.` and `..`; symbolic links are not resolved.
pub fn normalise(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => {
                out.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    out
}

/// The names of an absolute path, in order.
pub(super) fn names(path: &Path) -> Vec<&OsStr> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect()
}

/// The root of the target by the text of a path, and the path's trail. The root is the prefix whose rolling hash is
/// [`Trail::target`]. `None` for a path outside any target, and for a relative one, whose missing beginning would
/// change the hash.
pub fn target_root(path: &Path) -> Option<(PathBuf, Trail)> {
    if !path.is_absolute() {
        return None;
    }
    continue_to(&BY_TEXT, Trail::default(), Path::new("/"), &names(&normalise(path)))
}

/// Continues the trail of `path` with these names, to the root of a target.
pub(super) fn continue_to(
    config: &Config,
    mut trail: Trail,
    path: &Path,
    names: &[&OsStr],
) -> Option<(PathBuf, Trail)> {
    let mut text = path.to_owned();
    let mut root = None;
    for name in names {
        text.push(name);
        let before = trail.target;
        let bytes = name.as_bytes();
        trail.step(config, name_hash(bytes), u32::try_from(bytes.len()).ok()?, false);
        if trail.target != before {
            root = Some(text.clone());
        }
    }
    root.map(|root| (root, trail))
}

#[cfg(test)]
mod tests {
    use podstuck_common::component::path_hash;

    use super::*;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    #[test]
    fn every_marker_is_given_to_the_probes() {
        let markers = target_names().markers;
        let pods = markers.iter().find(|m| m.hash == name_hash(b"pods")).unwrap();
        assert_eq!((pods.take, pods.pod), (3, 1));
        for name in ["volumes", "overlay2", "overlay", "snapshots", "k8s.io", "moby"] {
            let marker = markers.iter().find(|m| m.hash == name_hash(name.as_bytes())).unwrap();
            assert_eq!((marker.take & !ASIDE, marker.pod), (1, 0), "{name}");
        }
    }

    #[test]
    fn the_root_is_the_prefix_that_the_target_hash_names() {
        let table: [(String, Option<String>); 13] = [
            (format!("/k/pods/{UID}/volumes/p/v/a/b"), Some(format!("/k/pods/{UID}/volumes/p/v"))),
            (format!("/k/pods/{UID}/volumes/p/v"), Some(format!("/k/pods/{UID}/volumes/p/v"))),
            (format!("/k/pods/{UID}/volumes/p"), Some(format!("/k/pods/{UID}"))),
            (format!("/k/pods/{UID}/etc-hosts"), Some(format!("/k/pods/{UID}"))),
            (format!("/k/pods/{UID}"), Some(format!("/k/pods/{UID}"))),
            (
                format!("//k/./x/../pods/{UID}/volumes//p/v/../w/f"),
                Some(format!("/k/pods/{UID}/volumes/p/w")),
            ),
            (
                "/var/lib/docker/volumes/data/_data/x".into(),
                Some("/var/lib/docker/volumes/data".into()),
            ),
            ("/c/snapshots/42/fs/etc".into(), Some("/c/snapshots/42".into())),
            ("/r/k8s.io/abc/rootfs".into(), Some("/r/k8s.io/abc".into())),
            ("/c/snapshots".into(), None),
            ("/srv/pods/readme/a".into(), None),
            ("/".into(), None),
            ("volumes/data/x".into(), None),
        ];
        for (path, expected) in table {
            let found = target_root(Path::new(&path));
            let text = found.as_ref().map(|(root, _)| root.as_path());
            assert_eq!(text, expected.as_deref().map(Path::new), "{path}");
            if let Some((root, trail)) = found {
                assert_eq!(trail.target, path_hash(root.as_os_str().as_bytes()), "{path}");
            }
        }
    }

    #[test]
    fn the_first_marker_on_the_way_wins() {
        let path = format!("/d/volumes/node/_data/lib/kubelet/pods/{UID}/volumes/p/v");
        let (root, trail) = target_root(Path::new(&path)).unwrap();
        assert_eq!((root.as_path(), trail.pod), (Path::new("/d/volumes/node"), 0));
    }

    #[test]
    fn hostile_names_are_bytes() {
        let path = Path::new(OsStr::from_bytes(b"/d/volumes/\xff\n\x1b/_data"));
        let (root, _) = target_root(path).unwrap();
        assert_eq!(root.as_os_str().as_bytes(), b"/d/volumes/\xff\n\x1b");
    }

    #[test]
    fn dots_cannot_climb_above_the_root() {
        assert_eq!(normalise(Path::new("/../../a/./b//../c")), Path::new("/a/c"));
    }
}
