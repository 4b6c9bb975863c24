//! Directories of kubelets and runtimes that contain what they delete: the defaults, those in their settings, and those
//! that the host's mounts show.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use toml_edit::Document;

use super::{
    classify::{BUNDLE_PARENTS, kubelet_root_of},
    layout::names,
    storage::{CRIO, drop_ins_of_crio, of_crio},
    target_roots::{Holds, TargetRoot},
};
use podstuck_model::{identity::Component, mounts::Mount};

/// Defaults of Docker (`--data-root`), of containers-storage (CRI-O, Podman), and of two snapshotters that run
/// beside containerd.
const DATA: [&str; 4] = [
    "/var/lib/docker",
    "/var/lib/containers/storage",
    "/var/lib/containerd-nydus",
    "/var/lib/containerd-soci",
];
/// Defaults of containerd (`root`, `state`), of dockerd's state and of the containerd that it starts, of k3s and RKE2,
/// which share a state, of MicroK8s and k0s, and of a snapshotter with one more level of directories.
const PLUGIN_DATA: [&str; 13] = [
    "/var/lib/containerd",
    "/run/containerd",
    "/var/lib/docker/containerd/daemon",
    "/run/docker",
    "/run/docker/containerd/daemon",
    "/var/lib/rancher/k3s/agent/containerd",
    "/var/lib/rancher/rke2/agent/containerd",
    "/run/k3s/containerd",
    "/var/snap/microk8s/common/var/lib/containerd",
    "/var/snap/microk8s/common/run/containerd",
    "/var/lib/k0s/containerd",
    "/run/k0s/containerd",
    "/var/lib/containerd-stargz-grpc",
];

/// The given kubelet roots, and the defaults of runtimes.
pub fn usual(kubelet_roots: &[PathBuf]) -> impl Iterator<Item = TargetRoot> {
    let pods = kubelet_roots.iter().map(|root| TargetRoot::of_host(root, Holds::Pods));
    let data = DATA.map(|path| TargetRoot::of_host(path, Holds::Data));
    let plugins = PLUGIN_DATA.map(|path| TargetRoot::of_host(path, Holds::PluginData));
    pods.chain(data).chain(plugins)
}

/// The settings of a runtime: its command line and its configuration files.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RuntimeSettings {
    pub(crate) words: Vec<String>,
    /// Text of its configuration; empty without one.
    pub config: String,
    /// Texts of CRI-O's drop-ins, or of the imports of containerd's configuration, in the order in which they apply.
    pub(crate) drop_ins: Vec<String>,
    /// The configuration of containers-storage, which CRI-O uses.
    pub storage: String,
    /// Why a file may not have been read.
    pub unread: Option<String>,
}

impl RuntimeSettings {
    /// The value of the first of these flags, as in `--flag value` and `--flag=value`.
    pub(super) fn flag(&self, flags: &[&str]) -> Option<PathBuf> {
        let mut words = self.words.iter().skip(1);
        while let Some(word) = words.next() {
            match word.split_once('=') {
                Some((flag, value)) if flags.contains(&flag) => return Some(value.into()),
                None if flags.contains(&word.as_str()) => return words.next().map(PathBuf::from),
                _ => {}
            }
        }
        None
    }

    /// A top-level key of containerd's configuration. The last file with a value counts (`mergeConfig` in containerd's
    /// cmd/containerd/server/config).
    fn of_toml(&self, key: &str) -> Option<PathBuf> {
        let of = |text: &String| {
            let config = Document::parse(text.as_str()).ok()?;
            config.get(key)?.as_str().filter(|path| !path.is_empty()).map(PathBuf::from)
        };
        self.drop_ins.iter().rev().chain([&self.config]).find_map(of)
    }

    /// A key of dockerd's configuration.
    fn of_json(&self, key: &str) -> Option<PathBuf> {
        let config: serde_json::Value = serde_json::from_str(&self.config).ok()?;
        config.get(key)?.as_str().map(PathBuf::from)
    }
}

/// The configuration file of a runtime with this command line.
pub(crate) fn config_of(runtime: Component, words: &[String]) -> Option<PathBuf> {
    let settings = RuntimeSettings { words: words.to_vec(), ..RuntimeSettings::default() };
    match runtime {
        Component::Containerd => {
            let file = settings.flag(&["--config", "-c"]);
            Some(file.unwrap_or_else(|| "/etc/containerd/config.toml".into()))
        }
        Component::Dockerd => {
            let file = settings.flag(&["--config-file"]);
            Some(file.unwrap_or_else(|| "/etc/docker/daemon.json".into()))
        }
        Component::CriO => Some(settings.flag(&["--config", "-c"]).unwrap_or_else(|| CRIO.into())),
        _ => None,
    }
}

/// The directory of its drop-ins.
pub(crate) fn drop_ins_of(runtime: Component, words: &[String]) -> Option<PathBuf> {
    let settings = RuntimeSettings { words: words.to_vec(), ..RuntimeSettings::default() };
    (runtime == Component::CriO).then(|| drop_ins_of_crio(&settings))
}

/// The paths that a file of containerd's configuration imports; their last component may be a pattern
/// (`resolveImports` in the same package).
pub(crate) fn imports_of(file: &Path, text: &str) -> Vec<PathBuf> {
    let Ok(config) = Document::parse(text) else { return Vec::new() };
    let imports = config.get("imports").and_then(|imports| imports.as_array());
    let paths = imports.into_iter().flatten().filter_map(|path| path.as_str());
    let directory = file.parent().unwrap_or(Path::new("/"));
    paths.map(|path| directory.join(path)).collect()
}

/// The directories in a runtime's settings.
pub fn of_runtime(runtime: Component, settings: &RuntimeSettings) -> Vec<TargetRoot> {
    let of = |path: PathBuf, holds| TargetRoot::of_host(path, holds);
    let mut roots = Vec::new();
    match runtime {
        Component::Dockerd => {
            let data = settings.flag(&["--data-root", "-g", "--graph"]);
            // `graph` up to Docker 17.05.
            let of_file = || settings.of_json("data-root").or_else(|| settings.of_json("graph"));
            if let Some(data) = data.or_else(of_file) {
                let containerd = data.join("containerd/daemon");
                roots.extend([of(data, Holds::Data), of(containerd, Holds::PluginData)]);
            }
            let state = settings.flag(&["--exec-root"]);
            if let Some(state) = state.or_else(|| settings.of_json("exec-root")) {
                let containerd = state.join("containerd/daemon");
                roots.extend([state, containerd].map(|path| of(path, Holds::PluginData)));
            }
        }
        Component::Containerd => {
            let root = settings.flag(&["--root"]).or_else(|| settings.of_toml("root"));
            let state = settings.flag(&["--state"]).or_else(|| settings.of_toml("state"));
            let both = [root, state].into_iter().flatten();
            roots.extend(both.map(|path| of(path, Holds::PluginData)));
        }
        Component::CriO => roots.extend(of_crio(settings)),
        _ => {}
    }
    roots.retain(|root| root.path != Path::new("/"));
    roots
}

/// The directory that a mount of the host's, or of a kubelet's mount namespace, shows.
pub(crate) fn of_mount(mount: &Mount) -> Option<(PathBuf, Holds)> {
    // Users may mount their own anywhere.
    if mount.is_a_users() {
        return None;
    }
    if let Some(root) = kubelet_root_of(&mount.point) {
        return Some((root, Holds::Pods));
    }
    of_bundle(&mount.point).or_else(|| of_layer(mount))
}

/// The state directory of a containerd whose shim has mounted a container's root file system at `point`.
fn of_bundle(point: &Path) -> Option<(PathBuf, Holds)> {
    let names = names(point);
    let [above @ .., plugin, _namespace, _id, last] = names.as_slice() else { return None };
    let is_bundle = *last == "rootfs" && BUNDLE_PARENTS.iter().any(|parent| *plugin == *parent);
    is_bundle.then(|| (path(above), Holds::PluginData))
}

/// The data directory of a runtime whose container has this root file system.
fn of_layer(mount: &Mount) -> Option<(PathBuf, Holds)> {
    if mount.fs_type != "overlay" {
        return None;
    }
    let mut options = mount.super_options.split(',');
    let upper = options.find_map(|option| option.strip_prefix("upperdir="))?;
    let names = names(Path::new(upper));
    match names.as_slice() {
        [above @ .., plugin, snapshots, _number, fs]
            if *snapshots == "snapshots"
                && *fs == "fs"
                && plugin.as_bytes().starts_with(b"io.containerd.snapshotter.") =>
        {
            Some((path(above), Holds::PluginData))
        }
        [above @ .., snapshots, _number, fs] if *snapshots == "snapshots" && *fs == "fs" => {
            Some((path(above), Holds::Data))
        }
        [above @ .., driver, _layer, diff]
            if (*driver == "overlay2" || *driver == "overlay") && *diff == "diff" =>
        {
            Some((path(above), Holds::Data))
        }
        _ => None,
    }
}

fn path(names: &[&OsStr]) -> PathBuf {
    Path::new("/").join(names.iter().collect::<PathBuf>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(point: &str, options: &str) -> Option<(PathBuf, Holds)> {
        let mount = Mount {
            point: point.into(),
            fs_type: "overlay".into(),
            super_options: options.into(),
            ..Mount::default()
        };
        of_mount(&mount)
    }

    #[test]
    fn mounts_of_the_host_say_where_runtimes_are() {
        let bundle = "/srv/run/io.containerd.runtime.v2.task/k8s.io/abc/rootfs";
        assert_eq!(of(bundle, ""), Some(("/srv/run".into(), Holds::PluginData)));
        let uid = "0f0e0d0c-1111-2222-3333-444455556666";
        let volume = format!("/srv/k/pods/{uid}/volumes/p/v");
        assert_eq!(of(&volume, ""), Some(("/srv/k".into(), Holds::Pods)));
        let layer =
            |upper: &str| of("/m", &format!("rw,lowerdir=/a:/b,upperdir={upper},workdir=/w"));
        assert_eq!(
            layer("/srv/c/io.containerd.snapshotter.v1.overlayfs/snapshots/7/fs"),
            Some(("/srv/c".into(), Holds::PluginData))
        );
        assert_eq!(layer("/srv/nydus/snapshots/7/fs"), Some(("/srv/nydus".into(), Holds::Data)));
        assert_eq!(layer("/srv/d/overlay2/abc/diff"), Some(("/srv/d".into(), Holds::Data)));
        assert_eq!(layer("/srv/s/overlay/abc/diff"), Some(("/srv/s".into(), Holds::Data)));
        assert_eq!(layer("/home/me/upper"), None);
        assert_eq!(of("/srv/rootfs", ""), None);
        let of_user = Mount {
            point: volume.clone().into(),
            fs_type: "fuse.sshfs".into(),
            super_options: "user_id=1000".into(),
            ..Mount::default()
        };
        assert_eq!(of_mount(&of_user), None, "it only reads like a pod's");
    }

    /// `root` and `state` of the distributions' containerd.
    #[test]
    fn runtimes_of_distributions_are_where_they_usually_are() {
        let all: Vec<TargetRoot> = usual(&[]).collect();
        for (root, state) in [
            ("/var/lib/rancher/k3s/agent/containerd", "/run/k3s/containerd"),
            ("/var/lib/rancher/rke2/agent/containerd", "/run/k3s/containerd"),
            (
                "/var/snap/microk8s/common/var/lib/containerd",
                "/var/snap/microk8s/common/run/containerd",
            ),
            ("/var/lib/k0s/containerd", "/run/k0s/containerd"),
        ] {
            for path in [root, state] {
                let wanted = TargetRoot::of_host(path, Holds::PluginData);
                assert!(all.contains(&wanted), "{path}");
            }
        }
    }

    #[test]
    fn fuzz_runtime_config() {
        podstuck_fuzz::fuzz("runtime_config", |input| {
            let config = String::from_utf8_lossy(input).into_owned();
            let settings = RuntimeSettings { config, ..RuntimeSettings::default() };
            of_runtime(Component::Containerd, &settings);
            imports_of(Path::new("/etc/containerd/config.toml"), &settings.config);
            of_runtime(Component::Dockerd, &settings);
            of_runtime(Component::CriO, &settings);
        });
    }

    #[test]
    fn roots_are_read_from_a_runtimes_settings() {
        let words = |line: &str| -> Vec<String> { line.split(' ').map(String::from).collect() };
        let of = |runtime, line: &str, config: &str| {
            let settings = RuntimeSettings {
                words: words(line),
                config: config.into(),
                ..RuntimeSettings::default()
            };
            of_runtime(runtime, &settings).into_iter().map(|root| root.path).collect::<Vec<_>>()
        };
        let by_flags = |runtime, line| of(runtime, line, "");
        assert_eq!(
            by_flags(Component::Dockerd, "dockerd --data-root=/d --exec-root /e -H unix:///s"),
            ["/d", "/d/containerd/daemon", "/e", "/e/containerd/daemon"].map(PathBuf::from)
        );
        assert_eq!(
            by_flags(Component::Containerd, "containerd --root /r --state=/s -c /x"),
            ["/r", "/s"].map(PathBuf::from)
        );
        assert!(by_flags(Component::Containerd, "containerd").is_empty());
        assert!(by_flags(Component::Containerd, "containerd --root /").is_empty());
        let toml = "version = 2\nroot = '/r'\nstate = \"/s\"\n[plugins.x]\nroot = '/no'\n";
        let both = ["/r", "/s"].map(PathBuf::from);
        assert_eq!(of(Component::Containerd, "containerd", toml), both);
        assert_eq!(
            of(Component::Containerd, "containerd --state /own", toml),
            ["/r", "/own"].map(PathBuf::from)
        );
        assert!(of(Component::Containerd, "containerd", "root = [").is_empty());
        let drop_ins = ["root = '/first'", "root = '/last'", "root = ''"].map(String::from).into();
        let settings =
            RuntimeSettings { config: toml.into(), drop_ins, ..RuntimeSettings::default() };
        let roots = of_runtime(Component::Containerd, &settings).into_iter().map(|root| root.path);
        assert_eq!(roots.collect::<Vec<_>>(), ["/last", "/s"].map(PathBuf::from));
        let json = r#"{"data-root":"/d","hosts":[]}"#;
        assert_eq!(
            of(Component::Dockerd, "dockerd", json),
            ["/d", "/d/containerd/daemon"].map(PathBuf::from)
        );
        let config = |runtime, line| config_of(runtime, &words(line));
        assert_eq!(config(Component::Containerd, "containerd -c /x"), Some("/x".into()));
        let usual = Some("/etc/docker/daemon.json".into());
        assert_eq!(config(Component::Dockerd, "dockerd"), usual);
    }
}
