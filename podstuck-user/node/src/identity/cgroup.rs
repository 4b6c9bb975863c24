//! Finds the pod and container of a process by the path of its control group.

use std::{fs, path::Path};

use podstuck_model::path::safe;

use super::uid::{is_long_id, parse_pod_uid};

/// Pod UID and container id in the path of a control group.
///
/// kubelet names a pod's group `pod<uid>` (cgroupfs driver) or `...-pod<uid with underscores>.slice`
/// (systemd driver) below a root that the administrator may move, or the group of a node in a container.
/// The first such component counts: a container can create any group below its own. So the pods of a node
/// within a pod count as that pod. The runtimes' leaf below it, which contains the container's id, is
/// `<id>`, `crio-<id>`, `cri-containerd-<id>.scope`, `docker-<id>.scope`, ...
pub(crate) fn pod_of_cgroup(cgroup: &str) -> Option<(String, Option<String>)> {
    let (uid, below) = split_at_pod(cgroup)?;
    let container = below.iter().filter(|c| !is_conmon_name(c)).find_map(|c| container_id(c));
    Some((uid, container.map(str::to_owned)))
}

/// Whether this is the group of CRI-O's monitor of a container: within the pod's group, but part of
/// the runtime.
pub(super) fn is_conmon(cgroup: &str) -> bool {
    split_at_pod(cgroup).is_some_and(|(_, below)| below.first().is_some_and(|c| is_conmon_name(c)))
}

/// The UID of the first component that names a pod, and the components below it. Where the drivers
/// of kubelet and runtime differ, one directory is called `<slice>:<prefix>:<id>`: a colon
/// separates as well.
fn split_at_pod(cgroup: &str) -> Option<(String, Vec<&str>)> {
    // The kernel adds this for a zombie whose group is gone.
    let cgroup = cgroup.strip_suffix(" (deleted)").unwrap_or(cgroup);
    let names: Vec<&str> = cgroup.split(['/', ':']).collect();
    let of_node = names.iter().enumerate().take_while(|(_, name)| !is_users(name));
    let (at, uid) = of_node.into_iter().find_map(|(at, name)| Some((at, pod_uid(name)?)))?;
    Some((uid, names.get(at + 1..).unwrap_or_default().to_vec()))
}

/// Whether systemd delegates the group to a user, who names the groups below it.
pub(super) fn is_users(name: &str) -> bool {
    name.starts_with("user@")
}

/// The UID in a component that is a pod's own group.
pub(super) fn pod_uid(name: &str) -> Option<String> {
    let uid = match name.strip_suffix(".slice") {
        Some(slice) => slice.rsplit_once("-pod").map(|(_, uid)| uid).or(slice.strip_prefix("pod")),
        None => name.strip_prefix("pod"),
    };
    uid.and_then(parse_pod_uid)
}

/// The container id in a component that is a container's own group.
pub(crate) fn container_id(name: &str) -> Option<&str> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let id = name.rsplit_once('-').map_or(name, |(_, id)| id);
    is_long_id(id.as_bytes()).then_some(id)
}

fn is_conmon_name(name: &str) -> bool {
    name.starts_with("crio-conmon-")
}

/// The path in the version 2 hierarchy, from the contents of `/proc/<pid>/cgroup`.
pub(super) fn v2_path(contents: &[u8]) -> Option<&[u8]> {
    contents.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"0::"))
}

/// The control group of a process, given its directory: see [`best_path`]. `None` when it has ended.
pub(crate) fn group_of(process: &Path) -> Option<String> {
    best_path(&fs::read(process.join("cgroup")).ok()?)
}

/// The most specific path in the contents of `/proc/<pid>/cgroup`: one that names a pod, else the version 2 path, else
/// the path of the first hierarchy in use. No library parses the bytes: a container that may create groups could make
/// it fail by a name that is not UTF-8.
pub(super) fn best_path(contents: &[u8]) -> Option<String> {
    let v2 = v2_path(contents);
    let all: Vec<&[u8]> = v2.into_iter().chain(v1_paths(contents)).collect();
    let text = |path: &[u8]| safe(path).into_owned();
    all.iter()
        .map(|path| text(path))
        .find(|path| split_at_pod(path).is_some())
        .or_else(|| all.iter().find(|path| **path != b"/").map(|path| text(path)))
        .or_else(|| all.first().map(|path| text(path)))
}

fn v1_paths(contents: &[u8]) -> impl Iterator<Item = &[u8]> {
    contents
        .split(|b| *b == b'\n')
        .filter(|line| !line.starts_with(b"0::"))
        .filter_map(|line| line.splitn(3, |b| *b == b':').nth(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
    const UNIT: &str = "0f0e0d0c_1111_2222_3333_444455556666";
    const STATIC: &str = "0123456789abcdef0123456789abcdef";
    const ID: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    const NODE: &str = "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100";

    #[test]
    fn fuzz_cgroup() {
        podstuck_fuzz::fuzz("cgroup", |input| {
            let path = best_path(input);
            let _ = path.as_deref().map(|path| (pod_of_cgroup(path), is_conmon(path)));
            let _ = v2_path(input);
        });
    }

    #[test]
    fn every_form_of_a_pods_group() {
        let slice =
            format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNIT}.slice");
        type Pod<'a> = Option<(&'a str, Option<&'a str>)>;
        let table: [(String, Pod<'_>); 34] = [
            // cgroupfs driver
            (format!("/kubepods/pod{UID}/{ID}"), Some((UID, Some(ID)))),
            (format!("/kubepods/burstable/pod{UID}/{ID}"), Some((UID, Some(ID)))),
            (format!("/kubepods/besteffort/pod{UID}/{ID}"), Some((UID, Some(ID)))),
            (format!("/kubepods/besteffort/pod{STATIC}/{ID}"), Some((STATIC, Some(ID)))),
            (format!("/kubepods/burstable/pod{UID}/crio-{ID}"), Some((UID, Some(ID)))),
            (format!("/kubepods/burstable/pod{UID}/crio-{ID}/container"), Some((UID, Some(ID)))),
            (format!("/kubepods/pod{UID}"), Some((UID, None))),
            // systemd driver
            (
                format!("/kubepods.slice/kubepods-pod{UNIT}.slice/cri-containerd-{ID}.scope"),
                Some((UID, Some(ID))),
            ),
            (format!("/{slice}/cri-containerd-{ID}.scope"), Some((UID, Some(ID)))),
            (format!("/{slice}/crio-{ID}.scope"), Some((UID, Some(ID)))),
            (format!("/{slice}/crio-{ID}.scope/container"), Some((UID, Some(ID)))),
            (format!("/{slice}/crio-conmon-{ID}.scope"), Some((UID, None))),
            (format!("/{slice}/docker-{ID}.scope"), Some((UID, Some(ID)))),
            (format!("/{slice}/docker-{ID}.scope/init/{NODE}"), Some((UID, Some(ID)))),
            (format!("/{slice}"), Some((UID, None))),
            (
                format!(
                    "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{STATIC}.slice/cri-containerd-{ID}.scope"
                ),
                Some((STATIC, Some(ID))),
            ),
            // a cgroup root of the administrator's
            (format!("/kubelet/kubepods/burstable/pod{UID}/{ID}"), Some((UID, Some(ID)))),
            (
                format!(
                    "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{UNIT}.slice/cri-containerd-{ID}.scope"
                ),
                Some((UID, Some(ID))),
            ),
            // a node within a container, seen from outside
            (
                format!("/system.slice/docker-{NODE}.scope/{slice}/cri-containerd-{ID}.scope"),
                Some((UID, Some(ID))),
            ),
            (format!("/docker/{NODE}/kubelet/kubepods/pod{UID}/{ID}"), Some((UID, Some(ID)))),
            // a node within a pod, or a pod that pretends to be one
            (format!("/kubepods/pod{UID}/{ID}/kubepods/pod{STATIC}/{NODE}"), Some((UID, Some(ID)))),
            (format!("/{slice}/cri-containerd-{ID}.scope/pod{STATIC}/x"), Some((UID, Some(ID)))),
            (
                format!("/{slice}/crio-{ID}.scope/kubepods-pod{STATIC}.slice:crio:{NODE}"),
                Some((UID, Some(ID))),
            ),
            // from within a cgroup namespace, and of a zombie
            (
                format!("/../../kubepods-pod{UNIT}.slice/cri-containerd-{ID}.scope"),
                Some((UID, Some(ID))),
            ),
            (format!("/kubepods/pod{UID}/{ID} (deleted)"), Some((UID, Some(ID)))),
            (format!("/kubepods.slice/kubepods-pod{UNIT}.slice (deleted)"), Some((UID, None))),
            // drivers that differ
            (
                format!("/system.slice/kubepods-burstable-pod{UNIT}.slice:cri-containerd:{ID}"),
                Some((UID, Some(ID))),
            ),
            (format!("/kubepods-besteffort-pod{UNIT}.slice:crio:{ID}"), Some((UID, Some(ID)))),
            // no pod
            (format!("/docker/{ID}"), None),
            (format!("/system.slice/docker-{ID}.scope"), None),
            ("/system.slice/kubelet.service".into(), None),
            ("/user.slice/podman-kubepods/podcast".into(), None),
            // what users create in their own groups
            (format!("/user.slice/user-9.slice/user@9.service/kubepods/pod{UID}/{ID}"), None),
            (String::new(), None),
        ];
        for (path, expected) in table {
            let found = pod_of_cgroup(&path);
            let found = found.as_ref().map(|(uid, id)| (uid.as_str(), id.as_deref()));
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn conmon_is_known_by_the_group_that_crio_created_for_it() {
        assert!(is_conmon(&format!(
            "/kubepods.slice/kubepods-pod{UNIT}.slice/crio-conmon-{ID}.scope"
        )));
        assert!(!is_conmon(&format!("/k/pod{UID}/crio-{ID}/crio-conmon-{ID}")));
        assert!(!is_conmon("/system.slice/crio-conmon-x.scope"));
        // Groups that a container creates below its own.
        assert!(!is_conmon(&format!("/k/pod{UID}/{ID}/pod{STATIC}/crio-conmon-{ID}")));
        assert!(!is_conmon(&format!("/k/pod{UID}/{ID}/kubepods-pod{UNIT}.slice/crio-conmon-x")));
    }

    #[test]
    fn the_most_specific_line_is_taken() {
        let pod = format!("/kubepods/pod{UID}/{ID}");
        let table: [(String, Option<&str>); 8] = [
            (format!("0::{pod}\n"), Some(&pod)),
            ("0::/system.slice/kubelet.service\n".into(), Some("/system.slice/kubelet.service")),
            ("0::/\n".into(), Some("/")),
            (format!("9:name=systemd:/x\n8:pids:{pod}\n0::/\n"), Some(&pod)),
            (format!("8:cpu,cpuacct:{pod}\n0::/system.slice/containerd.service\n"), Some(&pod)),
            ("9:cpu:/\n4:memory:/a:b\n0::/\n".into(), Some("/a:b")),
            ("9:name=systemd:/x\n0::/y\n".into(), Some("/y")),
            (String::new(), None),
        ];
        for (contents, expected) in table {
            assert_eq!(best_path(contents.as_bytes()).as_deref(), expected, "{contents}");
        }
    }

    #[test]
    fn a_hostile_name_does_not_hide_the_pod() {
        let mut line = format!("0::/kubepods/pod{UID}/{ID}/").into_bytes();
        line.extend(b"\xff\x1b\n");
        let path = best_path(&line).unwrap();
        assert_eq!(path, format!(r"/kubepods/pod{UID}/{ID}/\xff\x1b"));
        assert_eq!(pod_of_cgroup(&path), Some((UID.into(), Some(ID.into()))));
    }
}
