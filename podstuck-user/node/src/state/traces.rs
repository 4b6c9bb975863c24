//! Who pods are, by the traces that they leave on the node: tokens that are still mounted, their
//! `etc-hosts`, and what runtimes keep of their containers.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ffi::OsString,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::sample::data_of;
use crate::identity::{
    cgroup::container_id,
    cgroup_walk::pod_cgroups,
    on_host,
    traces::{Trace, of_container, of_etc_hosts, of_token, pod_of_container},
    uid::is_pod_uid,
};
use podstuck_confine::{
    alive::{self, Occasion},
    helper::{Question, Teller, ask_in_parts},
};
use podstuck_model::{mountinfo, query::NoAnswer};

/// Each of these files is a few kilobytes, a container's some tens.
const LONGEST: u64 = 1 << 20;
/// Containers that are looked at: several times what a full node has.
const CONTAINERS: usize = 4096;
/// A directory with a container's specification in it, by containerd's versions.
const TASKS: [&str; 2] =
    ["io.containerd.runtime.v2.task/k8s.io", "io.containerd.runtime.v1.linux/k8s.io"];
/// Default state directories of containerd: its own, and those in k3s and RKE2, MicroK8s and k0s.
const CONTAINERD: [&str; 4] = [
    "/run/containerd",
    "/run/k3s/containerd",
    "/var/snap/microk8s/common/run/containerd",
    "/run/k0s/containerd",
];
/// Where CRI-O (containers/storage) does, and the name of the file in each container's directory.
const CRI_O: [&str; 2] = [
    "/var/lib/containers/storage/overlay-containers",
    "/run/containers/storage/overlay-containers",
];
/// Sees the node's mounts.
const INIT: u32 = 1;
const DOCKER: &str = "/var/lib/docker/containers";
const GROUPS: &str = "/sys/fs/cgroup";

/// Who the pods below kubelet's roots are. Takes two seconds where a file does not answer; what was found
/// before is returned, and why it is not all.
pub fn read(host_root: &Path, kubelet_roots: &[PathBuf]) -> (Vec<Trace>, Option<String>) {
    let mut found = Vec::new();
    let why_not = |root: &&PathBuf| {
        let place = on_host(host_root, root);
        alive::why_not(std::process::id(), &place, Occasion::Unknown)
    };
    let roots = kubelet_roots.iter().filter(|root| why_not(root).is_none());
    let roots = roots.map(|root| Some(root.clone().into()));
    // A helper for each: one that does not answer hides no other.
    let mut failed = Vec::new();
    // The runtimes first: their files are on no volume.
    for root in [None].into_iter().chain(roots) {
        let question = ReadTraces { host_root: host_root.into(), root };
        let answer = ask_in_parts(question, |part: Vec<Trace>| found.extend(part));
        failed.extend(answer.err().map(|failure| NoAnswer::from(failure).to_string()));
    }
    failed.dedup();
    (found, Some(failed.join("; ")).filter(|failed| !failed.is_empty()))
}

/// UIDs of the pods of these containers and sandboxes, by the runtimes' files and their control groups: the helper's
/// side.
pub(super) fn pods_of(
    host_root: &Path,
    runtime: u32,
    ids: &HashSet<String>,
) -> HashMap<String, String> {
    let found = container_files(host_root, runtime).into_iter().filter_map(|file| {
        let mut names = file.iter().rev().filter_map(|name| name.to_str());
        let id = names.find(|name| ids.contains(*name))?.to_owned();
        Some((id, pod_of_container(&contents(&file)?)?))
    });
    let mut found: HashMap<String, String> = found.collect();
    let others: HashSet<&str> =
        ids.iter().map(String::as_str).filter(|id| !found.contains_key(*id)).collect();
    if !others.is_empty() {
        found.extend(pods_by_group(&on_host(host_root, Path::new(GROUPS)), &others));
    }
    found
}

/// By the groups right below a pod's own, which the runtime makes: a container can create groups only deeper. An id
/// in the groups of two pods counts for neither.
fn pods_by_group(groups: &Path, ids: &HashSet<&str>) -> HashMap<String, String> {
    let mut found: HashMap<String, BTreeSet<String>> = HashMap::new();
    for (uid, groups) in pod_cgroups(groups) {
        for name in groups.iter().flat_map(|group| names(group)) {
            if let Some(id) = name.to_str().and_then(container_id).filter(|id| ids.contains(*id)) {
                found.entry(id.to_owned()).or_default().insert(uid.clone());
            }
        }
    }
    let one = |(id, mut uids): (String, BTreeSet<String>)| {
        let uid = uids.pop_first()?;
        uids.is_empty().then_some((id, uid))
    };
    found.into_iter().filter_map(one).collect()
}

/// The question to the helper.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct ReadTraces {
    host_root: PathBuf,
    /// kubelet's; none for the runtimes' files.
    root: Option<OsString>,
}

impl Question for ReadTraces {
    type Step = OsString;
    type Part = Vec<Trace>;
    type Answer = ();

    fn answer(self, tell: &mut Teller<OsString, Vec<Trace>>) -> Result<()> {
        let Some(root) = &self.root else {
            for file in container_files(&self.host_root, INIT) {
                tell.at(&file.clone().into())?;
                let trace = contents(&file).and_then(|text| of_container(&text));
                tell.part(&trace.into_iter().collect())?;
            }
            return Ok(());
        };
        let pods = on_host(&self.host_root, Path::new(root)).join("pods");
        tell.at(&pods.clone().into())?;
        for uid in names(&pods).filter_map(|name| name.into_string().ok()) {
            if is_pod_uid(uid.as_bytes()) {
                let pod = pods.join(&uid);
                tell.at(&pod.clone().into())?;
                tell.part(&of_pod(&pod, &uid))?;
            }
        }
        Ok(())
    }
}

/// What a pod's own directory says.
fn of_pod(pod: &Path, uid: &str) -> Vec<Trace> {
    let text = |path: &Path| String::from_utf8(contents(path)?).ok();
    let projected = pod.join("volumes/kubernetes.io~projected");
    let tokens = names(&projected).filter_map(|volume| text(&projected.join(volume).join("token")));
    let mut found: Vec<Trace> = tokens.filter_map(|token| of_token(&token)).collect();
    found.extend(text(&pod.join("etc-hosts")).and_then(|text| of_etc_hosts(&text, uid)));
    // A volume may hold another's token.
    found.retain(|trace| trace.uid == uid);
    found
}

/// The files in which runtimes keep whose a container is, by what a process sees mounted.
fn container_files(host_root: &Path, pid: u32) -> Vec<PathBuf> {
    let tasks = CONTAINERD.iter().flat_map(|state| TASKS.map(|task| Path::new(state).join(task)));
    let mut tasks: BTreeSet<PathBuf> = tasks.collect();
    // Others are known by what is mounted in them.
    let table = PathBuf::from(format!("/proc/{pid}/mountinfo"));
    let table = fs::read(on_host(host_root, &table)).unwrap_or_default();
    let mounts = mountinfo::parse(&table);
    let bundles = mounts.iter().filter_map(|mount| mount.point.parent()?.parent());
    tasks
        .extend(bundles.filter(|dir| TASKS.iter().any(|task| dir.ends_with(task))).map(Into::into));
    let of = |directory: &Path, file: &'static str| {
        let directory = on_host(host_root, directory);
        names(&directory).map(move |name| directory.join(name).join(file)).collect::<Vec<_>>()
    };
    let mut files: Vec<PathBuf> = tasks.iter().flat_map(|task| of(task, "config.json")).collect();
    files.extend(CRI_O.iter().flat_map(|storage| of(Path::new(storage), "userdata/config.json")));
    files.extend(of(Path::new(DOCKER), "config.v2.json"));
    let data = data_of(Path::new(&format!("/proc/{pid}"))).map(|data| data.join("containers"));
    if let Some(elsewhere) = data.filter(|data| data != Path::new(DOCKER)) {
        files.extend(of(&elsewhere, "config.v2.json"));
    }
    files.truncate(CONTAINERS);
    files
}

fn names(directory: &Path) -> impl Iterator<Item = OsString> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name())
}

/// Of a file; whatever else has its name may block who opens it.
fn contents(path: &Path) -> Option<Vec<u8>> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    File::open(path).ok()?.take(LONGEST).read_to_end(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};

    use super::*;
    use crate::{identity::name_source::NameSource, state::scratch::write};

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
    const OTHER: &str = "1f0e0d0c-1111-2222-3333-444455556666";

    fn token(uid: &str) -> String {
        let claims = format!(
            r#"{{"kubernetes.io":{{"namespace":"shop","pod":{{"name":"cart","uid":"{uid}"}}}}}}"#
        );
        format!("e30.{}.x", BASE64_URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn only_a_pods_own_directory_identifies_it() {
        let dir = tempfile::tempdir().unwrap();
        let pod = dir.path().join(UID);
        let volume =
            |name: &str| pod.join("volumes/kubernetes.io~projected").join(name).join("token");
        write(volume("kube-api-access-x"), &token(UID));
        write(volume("another"), &token(OTHER));
        write(volume("odd"), "nonsense");
        write(pod.join("etc-hosts"), "# Kubernetes-managed hosts file.\n10.0.0.5\tcart\n");
        let found = of_pod(&pod, UID);
        let sources: Vec<NameSource> = found.iter().map(|trace| trace.source).collect();
        assert_eq!(sources, [NameSource::Token, NameSource::EtcHosts]);
        assert!(found.iter().all(|trace| trace.uid == UID && trace.name == "cart"), "{found:?}");
        assert!(of_pod(&dir.path().join(OTHER), OTHER).is_empty());
    }

    /// A sandbox whose logs and files are gone.
    #[test]
    fn a_control_group_says_whose_a_sandbox_is() {
        let dir = tempfile::tempdir().unwrap();
        let id = |digit: char| digit.to_string().repeat(64);
        let slice = format!("kubepods.slice/kubepods-pod{}.slice", OTHER.replace('-', "_"));
        for group in [
            format!("memory/kubepods/burstable/pod{UID}/{}", id('a')),
            format!("memory/kubepods/burstable/pod{UID}/{}/{}", id('a'), id('b')),
            format!("{slice}/crio-{}.scope", id('c')),
            format!("memory/kubepods/burstable/pod{UID}/{}", id('d')),
            format!("{slice}/{}", id('d')),
        ] {
            fs::create_dir_all(dir.path().join(group)).unwrap();
        }
        let ids = ['a', 'b', 'c', 'd'].map(id);
        let ids = ids.iter().map(String::as_str).collect();
        let expected = HashMap::from([(id('a'), UID.to_owned()), (id('c'), OTHER.to_owned())]);
        assert_eq!(pods_by_group(dir.path(), &ids), expected);
        let host = dir.path().join("host");
        fs::create_dir_all(host.join(format!("sys/fs/cgroup/kubepods/pod{UID}/{}", id('a'))))
            .unwrap();
        assert_eq!(pods_of(&host, INIT, &[id('a')].into()), [(id('a'), UID.to_owned())].into());
    }

    #[test]
    fn dockerds_files_are_found_where_it_keeps_its_data() {
        let dir = tempfile::tempdir().unwrap();
        let (data, host) = (dir.path().join("data"), dir.path().join("host"));
        write(data.join("volumes/metadata.db"), "");
        let file = data.join("containers/a/config.v2.json");
        write(on_host(&host, &file), "{}");
        let database = File::open(data.join("volumes/metadata.db")).unwrap();
        let mut dockerd =
            std::process::Command::new("sleep").arg("60").stdin(database).spawn().unwrap();
        let found = container_files(&host, dockerd.id());
        dockerd.kill().unwrap();
        dockerd.wait().unwrap();
        assert_eq!(found, [on_host(&host, &file)]);
    }

    #[test]
    fn the_runtimes_files_are_found_also_where_only_a_mount_tells() {
        let dir = tempfile::tempdir().unwrap();
        let host = dir.path();
        let files = [
            "run/containerd/io.containerd.runtime.v2.task/k8s.io/a/config.json",
            "run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/b/config.json",
            "odd/state/io.containerd.runtime.v2.task/k8s.io/c/config.json",
            "var/lib/docker/containers/d/config.v2.json",
            "run/containers/storage/overlay-containers/e/userdata/config.json",
        ];
        files.iter().for_each(|file| write(host.join(file), "{}"));
        let mount = "36 35 98:0 / /odd/state/io.containerd.runtime.v2.task/k8s.io/c/rootfs rw - overlay o rw\n";
        write(host.join("proc/1/mountinfo"), mount);
        let mut found = container_files(host, INIT);
        let mut expected = files.map(|file| host.join(file));
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    }
}
