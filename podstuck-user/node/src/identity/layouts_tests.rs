//! Every node layout that is known in the field: the settings of its daemons, and the resulting paths. A path in no table
//! yields nothing, and never a wrong name.

use std::{
    fs,
    path::{Path, PathBuf},
};

use podstuck_common::root::HOST_VIEW;

use super::{
    cgroup::{best_path, is_conmon, pod_of_cgroup},
    cgroup_walk::{find_pod_cgroup, pod_cgroups},
    classify::{classify, kubelet_root_of},
    data_roots::{RuntimeSettings, of_mount, of_runtime, usual},
    kubelet::Settings,
    roots::USUAL,
    target_roots::{TargetRoot, TargetRoots},
};
use podstuck_model::{
    identity::{Component, TargetKind},
    mounts::Mount,
};

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
const UNIT: &str = "0f0e0d0c_1111_2222_3333_444455556666";
/// kubelet's hash of a manifest.
const STATIC: &str = "0123456789abcdef0123456789abcdef";
const ID: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const NODE: &str = "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100";

/// The runtimes' names for a container's group, with the systemd driver and with cgroupfs.
const LEAVES: [(&str, &str, &str); 6] = [
    ("containerd", "cri-containerd-ID.scope", "ID"),
    ("CRI-O", "crio-ID.scope", "crio-ID"),
    ("CRI-O with crun", "crio-ID.scope/container", "crio-ID/container"),
    ("docker", "docker-ID.scope", "ID"),
    ("Podman", "libpod-ID.scope", "libpod-ID"),
    ("a container with systemd", "cri-containerd-ID.scope/init.scope", "ID/init.scope"),
];

/// Where a node's tree begins: at the top, below an administrator's `--cgroup-root`, for a nested node (kind, k3d,
/// minikube) seen from outside, and seen from another cgroup namespace.
const ABOVE: [(&str, &str, &str); 7] = [
    ("usual", "", ""),
    ("kind", "/kubelet.slice", "/kubelet"),
    ("started by an administrator", "/k8s.slice", "/k8s/nodes"),
    ("kind from outside", "/system.slice/docker-NODE.scope/kubelet.slice", "/docker/NODE/kubelet"),
    ("k3d from outside", "/system.slice/docker-NODE.scope", "/docker/NODE"),
    ("kind in Podman", "/machine.slice/libpod-NODE.scope/container", "/libpod_parent/libpod-NODE"),
    ("another namespace's", "/../..", "/../.."),
];

/// All groups of pods: the name of the tree, the path, and the UID.
fn groups() -> Vec<(String, String, &'static str)> {
    let mut found = Vec::new();
    for (above, sliced, plain) in ABOVE {
        let (sliced, plain) = (sliced.replace("NODE", NODE), plain.replace("NODE", NODE));
        // systemd repeats the parents in a slice's name.
        let before = match above {
            "kind" | "kind from outside" => "kubelet-",
            "started by an administrator" => "k8s-",
            _ => "",
        };
        for (uid, unit) in [(UID, UNIT), (STATIC, STATIC)] {
            for qos in ["", "burstable", "besteffort"] {
                let (slices, plains) = if qos.is_empty() {
                    (
                        format!("{before}kubepods.slice/{before}kubepods-pod{unit}.slice"),
                        format!("kubepods/pod{uid}"),
                    )
                } else {
                    let own = format!("{before}kubepods-{qos}");
                    let slices =
                        format!("{before}kubepods.slice/{own}.slice/{own}-pod{unit}.slice");
                    (slices, format!("kubepods/{qos}/pod{uid}"))
                };
                found.push((above.to_owned(), format!("{sliced}/{slices}"), uid));
                found.push((above.to_owned(), format!("{plain}/{plains}"), uid));
            }
        }
    }
    found
}

fn of(path: &str) -> Option<(String, Option<String>)> {
    pod_of_cgroup(path)
}

#[test]
fn each_groups_pod_and_container_are_found_whatever_created_it() {
    let mut tried = 0;
    for (above, group, uid) in groups() {
        assert_eq!(of(&group), Some((uid.into(), None)), "{above}: {group}");
        for (runtime, scope, plain) in LEAVES {
            let leaf = if group.ends_with(".slice") { scope } else { plain };
            let path = format!("{group}/{}", leaf.replace("ID", ID));
            assert_eq!(
                of(&path),
                Some((uid.into(), Some(ID.into()))),
                "{above}, {runtime}: {path}"
            );
            assert!(!is_conmon(&path), "{path}");
            tried += 1;
        }
        let conmon = format!("{group}/crio-conmon-{ID}.scope");
        assert_eq!(of(&conmon), Some((uid.into(), None)), "{conmon}");
        assert!(is_conmon(&conmon), "{conmon}");
    }
    assert_eq!(tried, 7 * 2 * 3 * 2 * 6);
}

/// kubelet uses one driver and the runtime the other.
#[test]
fn drivers_that_differ_make_a_name_with_colons() {
    for (above, group, uid) in
        groups().into_iter().filter(|(_, group, _)| group.ends_with(".slice"))
    {
        for prefix in ["cri-containerd", "crio", "docker", "libpod"] {
            let path = format!("{group}:{prefix}:{ID}");
            assert_eq!(of(&path), Some((uid.into(), Some(ID.into()))), "{above}: {path}");
            let name = group.rsplit('/').next().unwrap();
            let path = format!("/system.slice/containerd.service/{name}:{prefix}:{ID}");
            assert_eq!(of(&path), Some((uid.into(), Some(ID.into()))), "{path}");
        }
    }
}

/// `/proc/PID/cgroup` with version 1, with both (hybrid), and with version 2 alone.
#[test]
fn each_version_of_control_groups_says_the_same() {
    for (above, group, uid) in groups() {
        let path = format!("{group}/{ID}");
        let expected = Some((uid.to_owned(), Some(ID.to_owned())));
        let first = format!(
            "12:pids:{path}\n11:hugetlb:/\n9:cpu,cpuacct:{path}\n4:memory:{path}\n1:name=systemd:{path}\n"
        );
        let only_systemds = format!("3:cpu:/\n2:memory:/\n1:name=systemd:{path}\n");
        let hybrid = format!("{first}0::/system.slice/containerd.service\n");
        let hybrid_with_second = format!("9:cpu:/\n0::{path}\n");
        for text in [&first, &only_systemds, &hybrid, &hybrid_with_second, &format!("0::{path}\n")]
        {
            let best = best_path(text.as_bytes()).unwrap();
            assert_eq!(of(&best), expected, "{above}: {text}");
        }
    }
}

#[test]
fn what_is_no_pods_group_names_no_pod() {
    let of_user = "/user.slice/user-1000.slice/user@1000.service";
    for path in [
        "/".to_owned(),
        "/init.scope".into(),
        format!("/docker/{ID}"),
        format!("/system.slice/docker-{ID}.scope"),
        format!("/machine.slice/libpod-{ID}.scope/container"),
        format!("/machine.slice/libpod-conmon-{ID}.scope"),
        format!("/machine.slice/machine-libpod_pod_{ID}.slice/libpod-{ID}.scope"),
        format!("/libpod_parent/libpod-{ID}"),
        // Podman's own pods, which are not Kubernetes'.
        format!("/machine.slice/machine-libpod_pod_{NODE}.slice"),
        // Rootless Docker, Podman and k3s: users name these groups.
        format!("{of_user}/app.slice/docker.service/docker/{ID}"),
        format!("{of_user}/user.slice/libpod-{ID}.scope/container"),
        format!("{of_user}/app.slice/k3s-rootless.service/kubepods/burstable/pod{UID}/{ID}"),
        format!(
            "{of_user}/kubelet.slice/kubelet-kubepods-pod{UNIT}.slice/cri-containerd-{ID}.scope"
        ),
        // Similar names.
        format!("/kubepods/burstable/pod{}/{ID}", &UID[1..]),
        format!("/kubepods/burstable/pod{UID}0/{ID}"),
        format!("/kubepods/pod{UNIT}x/{ID}"),
        format!("/kubepods/{UID}/{ID}"),
        format!("/kubepods.slice/kubepods-pod{UNIT}/{ID}"),
        format!("/garden/pod-{UID}/{ID}"),
        format!("/lxc/{ID}"),
        format!("/nomad.slice/share.slice/{UID}.web.scope"),
    ] {
        assert_eq!(of(&path), None, "{path}");
    }
    // The pod is known; the last component is no container id.
    for leaf in ["web", "cri-containerd-web.scope", &ID[1..], &format!("{ID}0")] {
        let path = format!("/kubepods/pod{UID}/{leaf}");
        assert_eq!(of(&path), Some((UID.into(), None)), "{path}");
    }
}

/// The trees of version 1 with its controllers, of both, and of version 2.
#[test]
fn a_pods_groups_are_found_in_each_tree() {
    for (above, group, uid) in
        groups().into_iter().filter(|(above, ..)| above != "another namespace's")
    {
        let group = group.trim_start_matches('/');
        let trees: [&[&str]; 3] =
            [&["memory", "pids", "systemd"], &["memory", "systemd", "unified"], &[""]];
        for trees in trees {
            let top = tempfile::tempdir().unwrap();
            for tree in trees {
                let leaf = top.path().join(tree).join(group).join(format!("crio-{ID}.scope"));
                fs::create_dir_all(leaf.join(format!("kubepods/pod{STATIC}x"))).unwrap();
            }
            let mut found = pod_cgroups(top.path()).remove(uid).unwrap_or_default();
            found.sort();
            let expected: Vec<PathBuf> =
                trees.iter().map(|tree| top.path().join(tree).join(group)).collect();
            assert_eq!(found, expected, "{above}: {group}");
            let first = find_pod_cgroup(top.path(), uid).unwrap();
            assert!(expected.contains(&first), "{}", first.display());
        }
    }
}

/// A node: the settings of its daemons, and their directories.
struct Layout {
    name: &'static str,
    /// Command line of the kubelet, or of the program that contains it; empty without one.
    kubelet: &'static str,
    runtime: Component,
    daemon: &'static str,
    config: &'static str,
    /// kubelet's root, and the runtime's data and state.
    places: [&'static str; 3],
}

const LAYOUTS: [Layout; 17] = {
    use Component::{Containerd, CriO, Dockerd};
    const fn layout(
        name: &'static str,
        kubelet: &'static str,
        (runtime, daemon, config): (Component, &'static str, &'static str),
        places: [&'static str; 3],
    ) -> Layout {
        Layout { name, kubelet, runtime, daemon, config, places }
    }
    const K3S: &str = "containerd -c /var/lib/rancher/k3s/agent/etc/containerd/config.toml -a \
        /run/k3s/containerd/containerd.sock --state /run/k3s/containerd --root /data/k3s/agent/containerd";
    [
        layout(
            "kubeadm, kind, minikube",
            "/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml",
            (Containerd, "/usr/bin/containerd", "version = 2\n"),
            [USUAL, "/var/lib/containerd", "/run/containerd"],
        ),
        layout(
            "containerd by its configuration",
            "kubelet --root-dir /mnt/kubelet",
            (
                Containerd,
                "containerd -c /x",
                "root = '/ephemeral/containerd'\nstate = '/run/ephemeral'\n",
            ),
            ["/mnt/kubelet", "/ephemeral/containerd", "/run/ephemeral"],
        ),
        layout(
            "a kubelet elsewhere",
            "kubelet --root-dir=/data/k8s/kubelet",
            (Containerd, "containerd", ""),
            ["/data/k8s/kubelet", "/var/lib/containerd", "/run/containerd"],
        ),
        layout(
            "IBM Cloud",
            "kubelet --root-dir=/var/data/kubelet",
            (Containerd, "containerd --root /var/data/cripersistentstorage", ""),
            ["/var/data/kubelet", "/var/data/cripersistentstorage", "/run/containerd"],
        ),
        layout(
            "k3s, k3d",
            "/usr/local/bin/k3s server",
            (Containerd, "containerd", ""),
            [USUAL, "/var/lib/rancher/k3s/agent/containerd", "/run/k3s/containerd"],
        ),
        layout(
            "k3s with --data-dir",
            "/usr/local/bin/k3s agent",
            (Containerd, K3S, ""),
            [USUAL, "/data/k3s/agent/containerd", "/run/k3s/containerd"],
        ),
        layout(
            "RKE2",
            "kubelet --root-dir=/var/lib/kubelet",
            (Containerd, "containerd", ""),
            [USUAL, "/var/lib/rancher/rke2/agent/containerd", "/run/k3s/containerd"],
        ),
        layout(
            "MicroK8s",
            "kubelet --root-dir=/var/snap/microk8s/common/var/lib/kubelet",
            (Containerd, "containerd", ""),
            [
                "/var/snap/microk8s/common/var/lib/kubelet",
                "/var/snap/microk8s/common/var/lib/containerd",
                "/var/snap/microk8s/common/run/containerd",
            ],
        ),
        layout(
            "k0s",
            "k0s worker",
            (
                Containerd,
                "containerd --root=/var/lib/k0s/containerd --state=/run/k0s/containerd --config=/etc/k0s/containerd.toml",
                "",
            ),
            ["/var/lib/k0s/kubelet", "/var/lib/k0s/containerd", "/run/k0s/containerd"],
        ),
        layout(
            "k0s with --data-dir",
            "k0s controller --single --data-dir=/d/k0s",
            (Containerd, "containerd --root=/d/k0s/containerd --state=/run/k0s/containerd", ""),
            ["/d/k0s/kubelet", "/d/k0s/containerd", "/run/k0s/containerd"],
        ),
        layout(
            "docker",
            "",
            (Dockerd, "dockerd -H fd://", ""),
            ["", "/var/lib/docker", "/run/docker/containerd/daemon"],
        ),
        layout(
            "docker by its words",
            "",
            (Dockerd, "dockerd --data-root=/data/docker --exec-root /run/d", ""),
            ["", "/data/docker", "/run/d/containerd/daemon"],
        ),
        layout(
            "docker by its configuration",
            "kubelet --container-runtime=docker",
            (Dockerd, "dockerd", r#"{"data-root":"/home/data/docker","exec-root":"/run/e"}"#),
            [USUAL, "/home/data/docker", "/run/e/containerd/daemon"],
        ),
        layout(
            "docker 17, which says graph",
            "",
            (Dockerd, "dockerd", r#"{"graph":"/data/graph/docker"}"#),
            ["", "/data/graph/docker", "/run/docker/containerd/daemon"],
        ),
        layout(
            "CRI-O, Podman",
            "kubelet",
            (CriO, "crio", ""),
            [USUAL, "/var/lib/containers/storage", ""],
        ),
        layout(
            "CRI-O by its words",
            "kubelet",
            (CriO, "crio --root /srv/containers/storage", ""),
            [USUAL, "/srv/containers/storage", ""],
        ),
        layout(
            "CRI-O by its configuration",
            "kubelet",
            (CriO, "crio", "[crio]\nroot = '/srv/crio'\n"),
            [USUAL, "/srv/crio", ""],
        ),
    ]
};

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(String::from).collect()
}

/// The target of a path: its root, its kind, and its name.
type Made = (String, TargetKind, Option<String>);

impl Layout {
    /// Its target roots, by the settings of its daemons.
    fn roots(&self) -> TargetRoots {
        let kubelet =
            (!self.kubelet.is_empty()).then(|| Settings::of(&words(self.kubelet)).unwrap());
        let own = kubelet.map(|it| it.root.unwrap_or_else(|| USUAL.into()));
        let settings = RuntimeSettings {
            words: words(self.daemon),
            config: self.config.into(),
            ..RuntimeSettings::default()
        };
        let kubelets: Vec<PathBuf> = own.into_iter().collect();
        let mut all = TargetRoots::new(None);
        for root in usual(&kubelets).chain(of_runtime(self.runtime, &settings)) {
            all.add(root);
        }
        all
    }

    /// Paths in it, each with its target: the root, the kind, and the container, volume or layer.
    fn table(&self) -> Vec<(String, Made)> {
        use TargetKind::{ContainerBundle, ContainerLayer, DockerVolume, PodDirectory, PodVolume};
        let [kubelet, data, state] = self.places;
        let mut table = Vec::new();
        let mut row = |root: String, below: &str, kind, name: Option<&str>| {
            table.push((format!("{root}{below}"), (root, kind, name.map(String::from))));
        };
        if !kubelet.is_empty() {
            for uid in [UID, STATIC] {
                let pod = format!("{kubelet}/pods/{uid}");
                row(pod.clone(), "/etc-hosts", PodDirectory, None);
                row(
                    format!("{pod}/volumes/kubernetes.io~csi/pvc-1"),
                    "/mount/a",
                    PodVolume,
                    Some("pvc-1"),
                );
                row(format!("{pod}/volumes/kubernetes.io~empty-dir/d"), "", PodVolume, Some("d"));
                row(
                    format!("{pod}/volumeDevices/kubernetes.io~csi/pvc-2"),
                    "",
                    PodVolume,
                    Some("pvc-2"),
                );
                row(format!("{pod}/volume-subpaths/conf/nginx"), "/0", PodVolume, Some("conf"));
                row(format!("{pod}/containers/nginx/8f3a"), "", PodDirectory, Some("nginx"));
            }
        }
        match self.runtime {
            Component::Containerd => {
                let snapshots = format!("{data}/io.containerd.snapshotter.v1.overlayfs/snapshots");
                row(format!("{snapshots}/42"), "/fs/etc", ContainerLayer, Some("42"));
                row(format!("{snapshots}/rm-42"), "/fs", ContainerLayer, Some("42"));
                let bundles = format!("{state}/io.containerd.runtime.v2.task/k8s.io");
                row(format!("{bundles}/{ID}"), "/rootfs", ContainerBundle, Some(ID));
                row(format!("{bundles}/.{ID}"), "", ContainerBundle, Some(ID));
            }
            Component::Dockerd => {
                row(format!("{data}/overlay2/{ID}"), "/diff/d", ContainerLayer, Some(ID));
                row(
                    format!("{data}/overlay2/{ID}-init"),
                    "",
                    ContainerLayer,
                    Some(&format!("{ID}-init")),
                );
                row(format!("{data}/volumes/{ID}"), "/_data/a/b", DockerVolume, Some(ID));
                row(format!("{data}/volumes/web"), "/_data", DockerVolume, Some("web"));
                let bundles = format!("{state}/io.containerd.runtime.v2.task/moby");
                row(format!("{bundles}/{ID}"), "/rootfs", ContainerBundle, Some(ID));
            }
            _ => {
                row(format!("{data}/overlay/{ID}"), "/merged", ContainerLayer, Some(ID));
                let aside = format!("{data}/overlay/tempdirs/temp-dir-3/1-{ID}");
                row(aside, "/diff/d", ContainerLayer, Some(ID));
                row(format!("{data}/volumes/{ID}"), "/_data/f", DockerVolume, Some(ID));
            }
        }
        table
    }
}

#[test]
fn each_layout_leads_to_pods_volumes_layers_and_containers() {
    for layout in LAYOUTS {
        let roots = layout.roots();
        for (path, (root, kind, name)) in layout.table() {
            let found = roots.locate_in(HOST_VIEW, Path::new(&path)).map(|(root, _)| root);
            assert_eq!(found.as_deref(), Some(Path::new(&root)), "{}: {path}", layout.name);
            let target = classify(Path::new(&root));
            assert_eq!(target.kind, kind, "{}: {root}", layout.name);
            let volume = target.volume.map(|volume| volume.name);
            let own = volume.or(target.container);
            assert_eq!(own, name, "{}: {root}", layout.name);
            let has_uid = target.pod.map(|pod| pod.uid);
            let of_pod = matches!(kind, TargetKind::PodDirectory | TargetKind::PodVolume);
            assert_eq!(has_uid.is_some(), of_pod, "{}: {root}", layout.name);
        }
    }
}

/// Agents see the same paths below a directory of their own.
#[test]
fn a_prefix_changes_no_name() {
    for layout in LAYOUTS {
        for (_, (root, kind, _)) in layout.table() {
            for prefix in ["/host", "/rootfs", "/host/root", "/var/lib/docker/volumes/node/_data"] {
                let is_pod = matches!(kind, TargetKind::PodDirectory | TargetKind::PodVolume);
                let seen = classify(&Path::new(prefix).join(root.trim_start_matches('/')));
                let plain = classify(Path::new(&root));
                assert_eq!((seen.kind, seen.pod), (plain.kind, plain.pod), "{prefix}{root}");
                let above = kubelet_root_of(&Path::new(prefix).join(root.trim_start_matches('/')));
                assert_eq!(above.is_some(), is_pod, "{prefix}{root}");
            }
        }
    }
}

/// The directories of a daemon that does not run, or hides its command line, are found by its containers' mounts.
#[test]
fn mounts_show_the_directories_of_a_runtime_without_settings() {
    let mounted = |point: String, upper: String| {
        of_mount(&Mount {
            point: point.into(),
            fs_type: "overlay".into(),
            super_options: format!("rw,lowerdir=/l,upperdir={upper},workdir=/w"),
            ..Mount::default()
        })
    };
    for (upper, root) in [
        ("/x/y/io.containerd.snapshotter.v1.overlayfs/snapshots/7/fs".to_owned(), "/x/y"),
        (format!("/x/overlay2/{ID}/diff"), "/x"),
        (format!("/x/overlay/{ID}/diff"), "/x"),
        ("/x/snapshots/7/fs".into(), "/x"),
    ] {
        let (found, holds) = mounted("/m".into(), upper.clone()).unwrap();
        assert_eq!(found, Path::new(root), "{upper}");
        let mut roots = TargetRoots::new(None);
        roots.add(TargetRoot::of_host(root, holds));
        let located = roots.locate_in(HOST_VIEW, Path::new(&upper)).map(|(root, _)| root);
        assert_eq!(located.as_deref(), Path::new(&upper).parent(), "{upper}");
    }
    assert_eq!(mounted("/m".into(), "/home/me/upper".into()), None);
}

/// The path belongs to no daemon: it is shown as it is, without a name.
#[test]
fn an_unknown_layout_is_unknown_and_keeps_its_path() {
    let roots = LAYOUTS.iter().map(Layout::roots);
    let roots: Vec<TargetRoots> = roots.collect();
    for path in [
        format!("/srv/other/pods/{UID}/volumes/kubernetes.io~csi/pvc-1/mount"),
        format!("/srv/other/overlay2/{ID}/diff"),
        format!("/srv/other/io.containerd.runtime.v2.task/k8s.io/{ID}/rootfs"),
        // Rootless: what a user's own daemons keep is not the node's.
        format!("/home/me/.local/share/docker/overlay2/{ID}/diff"),
        format!("/home/me/.local/share/containers/storage/overlay/{ID}/diff"),
        format!("/run/user/1000/docker/containerd/daemon/io.containerd.runtime.v2.task/moby/{ID}"),
        format!("/home/me/.rancher/k3s/agent/kubelet/pods/{UID}/etc-hosts"),
        "/var/lib/docker/image/overlay2/layerdb".into(),
        format!("/var/lib/docker/containers/{ID}/mounts/shm"),
        format!("/var/lib/docker/btrfs/subvolumes/{ID}"),
        format!("/var/lib/docker/devicemapper/mnt/{ID}/rootfs"),
        format!("/var/lib/containers/storage/vfs/dir/{ID}"),
        "/var/lib/kubelet/plugins/kubernetes.io/csi/d/0f/globalmount".into(),
    ] {
        for roots in &roots {
            assert_eq!(roots.locate_in(HOST_VIEW, Path::new(&path)), None, "{path}");
        }
    }
    for path in [
        "/var/lib/docker/overlay2/l",
        "/var/lib/kubelet/pods/not-a-uid/volumes/p",
        "/var/lib/containers/storage/overlay/l",
        "/srv/volumes/web",
        "/backup/snapshots/7",
        "/var/lib/lxc/web",
        "/k/io.containerd.metadata.v1.bolt/meta.db",
    ] {
        let target = classify(Path::new(path));
        assert_eq!((target.kind, target.root.as_path()), (TargetKind::Other, Path::new(path)));
        assert!(
            target.pod.is_none() && target.container.is_none() && target.volume.is_none(),
            "{path}"
        );
    }
}
