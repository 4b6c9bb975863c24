//! Parses a runtime's file about a container. No file is read here.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use crate::identity::{cgroup::pod_of_cgroup, uid::is_pod_uid};
use podstuck_model::{identity::Pod, path::safe, runtime::LogDriver};

/// Name of the directory with a volume's data, of Docker's and Podman's local driver.
const DATA: &str = "_data";

/// A container as a runtime's file describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// Its name in Kubernetes, else in the runtime, escaped.
    pub name: Option<String>,
    /// Its pod; the pod's name where the file has it.
    pub pod: Option<Pod>,
    /// Whether it is the sandbox, which only keeps its pod's namespaces.
    pub(crate) is_sandbox: bool,
    /// Directories of volumes that are mounted in it.
    pub volumes: Vec<PathBuf>,
    /// Names of volumes, where the file has no paths (Docker).
    pub(crate) volume_names: Vec<String>,
    /// Its state, in Docker's file or CRI-O's.
    pub(crate) state: Option<DockerState>,
    /// Its log driver, from another file of Docker's.
    pub(crate) log_driver: Option<LogDriver>,
}

/// A container's state as dockerd wrote it (`container.State` in moby).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct DockerState {
    pub running: bool,
    /// It has ended and is to be started again; dockerd also sets `running` then.
    pub(crate) restarting: bool,
    /// Its removal was begun; also set after it has failed.
    pub(crate) removal_in_progress: bool,
    /// Its removal has failed.
    pub dead: bool,
    pub pid: u32,
    /// When it ended last; the year 1 if it never ran.
    #[serde(deserialize_with = "time")]
    pub(crate) finished_at: Option<Timestamp>,
    #[serde(deserialize_with = "time")]
    pub(crate) started_at: Option<Timestamp>,
}

/// An invalid time is `None`, and does not fail the whole file.
fn time<'de, D: Deserializer<'de>>(text: D) -> Result<Option<Timestamp>, D::Error> {
    Ok(Option::<String>::deserialize(text)?.and_then(|text| text.parse().ok()))
}

impl DockerState {
    /// Whether its removal was requested.
    pub(crate) fn is_to_go(self) -> bool {
        self.removal_in_progress || self.dead
    }
}

type Labels = HashMap<String, String>;

/// An OCI specification (containerd, CRI-O, Podman), or Docker's own `config.v2.json`.
#[derive(Deserialize)]
struct Written {
    annotations: Option<Labels>,
    linux: Option<Linux>,
    #[serde(default)]
    mounts: Vec<Mount>,
    #[serde(rename = "Config")]
    docker: Option<Docker>,
    #[serde(rename = "Name")]
    name: Option<String>,
    #[serde(rename = "State")]
    state: Option<DockerState>,
    #[serde(rename = "MountPoints", default)]
    mount_points: HashMap<String, MountPoint>,
}

#[derive(Deserialize)]
struct Linux {
    #[serde(rename = "cgroupsPath")]
    group: Option<String>,
}

#[derive(Deserialize)]
struct Mount {
    source: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Docker {
    #[serde(rename = "Labels")]
    labels: Option<Labels>,
}

#[derive(Deserialize)]
#[serde(default, rename_all = "PascalCase")]
#[derive(Default)]
struct MountPoint {
    r#type: String,
    name: String,
    driver: String,
}

/// Labels for the pod: containerd's; CRI-O's and dockershim's.
const POD: [[&str; 3]; 2] = [
    [
        "io.kubernetes.cri.sandbox-namespace",
        "io.kubernetes.cri.sandbox-name",
        "io.kubernetes.cri.sandbox-uid",
    ],
    ["io.kubernetes.pod.namespace", "io.kubernetes.pod.name", "io.kubernetes.pod.uid"],
];
const NAME: [&str; 2] = ["io.kubernetes.cri.container-name", "io.kubernetes.container.name"];
/// Labels and their values for a sandbox: containerd's, CRI-O's and dockershim's.
const SANDBOX: [(&str, &str); 3] = [
    ("io.kubernetes.cri.container-type", "sandbox"),
    ("io.kubernetes.cri-o.ContainerType", "sandbox"),
    ("io.kubernetes.docker.type", "podsandbox"),
];

/// Parses such a file; `None` where it is not one.
pub(crate) fn describe(text: &[u8]) -> Option<Described> {
    let written: Written = serde_json::from_slice(text).ok()?;
    let empty = Labels::new();
    let of_docker = written.docker.as_ref().and_then(|docker| docker.labels.as_ref());
    let labels = written.annotations.as_ref().or(of_docker).unwrap_or(&empty);
    let own = written.name.as_deref().map(|name| name.trim_start_matches('/'));
    let name = NAME.iter().find_map(|name| labels.get(*name)).map(String::as_str).or(own);
    let volumes = written.mounts.iter().filter_map(|mount| mount.source.as_deref());
    let of_docker = written.mount_points.values();
    let is_local = |it: &&MountPoint| it.r#type == "volume" && it.driver == "local";
    Some(Described {
        name: name.filter(|name| !name.is_empty()).map(|name| safe(name.as_bytes()).into_owned()),
        pod: pod(labels, written.linux.as_ref()),
        is_sandbox: SANDBOX.iter().any(|(key, value)| labels.get(*key).is_some_and(|v| v == value)),
        volumes: volumes.filter_map(volume).map(Path::to_owned).collect(),
        volume_names: of_docker.filter(is_local).map(|it| it.name.clone()).collect(),
        state: written.state,
        log_driver: None,
    })
}

/// CRI-O's `state.json`, with the runtime specification's state (internal/oci/container.go, `ContainerState`).
#[derive(Deserialize)]
struct CrioState {
    status: String,
    #[serde(default)]
    pid: i64,
}

/// A container's state as CRI-O wrote it.
pub(crate) fn crio_state(text: &[u8]) -> Option<DockerState> {
    let CrioState { status, pid } = serde_json::from_slice(text).ok()?;
    let (running, pid) = (status == "running", u32::try_from(pid).unwrap_or_default());
    Some(DockerState { running, pid, ..DockerState::default() })
}

/// Docker's `hostconfig.json`.
#[derive(Deserialize)]
struct HostConfig {
    #[serde(rename = "LogConfig")]
    log: LogConfig,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LogConfig {
    r#type: String,
    config: Option<BTreeMap<String, String>>,
}

/// The container's log driver. Its options can contain tokens: only the address is kept.
pub(crate) fn log_driver(text: &[u8]) -> Option<LogDriver> {
    let HostConfig { log: LogConfig { r#type: name, config } } =
        serde_json::from_slice(text).ok()?;
    let is_place =
        |key: &str| ["-address", "-url", "-endpoint"].iter().any(|end| key.ends_with(end));
    let places = config.into_iter().flatten().filter(|(key, _)| is_place(key));
    let address = places.map(|(_, place)| without_user(&place)).find(|place| !place.is_empty());
    let name = safe(name.as_bytes()).into_owned();
    (!name.is_empty()).then_some(LogDriver { name, address })
}

/// An address without user name, password and what follows the port.
fn without_user(place: &str) -> String {
    let (scheme, rest) =
        place.split_once("://").map_or(("", place), |(scheme, rest)| (scheme, rest));
    let is_path = scheme.starts_with("unix");
    let end = if is_path { rest } else { rest.split(['/', '?']).next().unwrap_or_default() };
    let end = end.rsplit('@').next().unwrap_or_default();
    let whole = if scheme.is_empty() { end.to_owned() } else { format!("{scheme}://{end}") };
    safe(whole.as_bytes()).into_owned()
}

/// The directory of the volume whose data this is.
fn volume(source: &Path) -> Option<&Path> {
    source.parent().filter(|_| source.is_absolute() && source.ends_with(DATA))
}

/// The pod by labels. Older runtimes (containerd 1.6) have no label for the UID, but the control group contains it.
fn pod(labels: &Labels, linux: Option<&Linux>) -> Option<Pod> {
    let label = |name: &str| labels.get(name).cloned();
    let group = || pod_of_cgroup(linux?.group.as_ref()?).map(|(uid, _)| uid);
    let uid = POD.iter().find_map(|[.., uid]| label(uid)).or_else(group);
    let uid = uid.filter(|uid| is_pod_uid(uid.as_bytes()))?;
    let whole = |[namespace, name, _]: &[&str; 3]| Some((label(namespace)?, label(name)?));
    let (namespace, name) = POD.iter().find_map(whole).unzip();
    Some(Pod { uid, namespace, name })
}

/// A container in the list that containers-storage keeps (`overlay-containers/containers.json`).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Stored {
    pub id: String,
    /// Its writable layer.
    pub layer: String,
    #[serde(default)]
    pub names: Vec<String>,
}

/// All containers in that list.
pub(crate) fn stored(text: &[u8]) -> Vec<Stored> {
    serde_json::from_slice(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    fn pod(name: Option<(&str, &str)>) -> Option<Pod> {
        let (namespace, name) = name.map(|(ns, name)| (ns.into(), name.into())).unzip();
        Some(Pod { uid: UID.into(), namespace, name })
    }

    #[test]
    fn only_the_address_of_a_log_driver_is_kept() {
        let of = |config: &str| {
            log_driver(format!(r#"{{"Binds":null,"LogConfig":{config}}}"#).as_bytes())
                .map(|it| (it.name, it.address))
        };
        let fluentd =
            r#"{"Type":"fluentd","Config":{"fluentd-address":"127.0.0.1:24224","tag":"a"}}"#;
        assert_eq!(of(fluentd), Some(("fluentd".into(), Some("127.0.0.1:24224".into()))));
        let splunk = r#"{"Type":"splunk","Config":{"splunk-token":"s3","splunk-url":"https://u:p@h:8088/x?k=s3"}}"#;
        assert_eq!(of(splunk), Some(("splunk".into(), Some("https://h:8088".into()))));
        let socket = r#"{"Type":"fluentd","Config":{"fluentd-address":"unix:///run/f.sock"}}"#;
        assert_eq!(of(socket), Some(("fluentd".into(), Some("unix:///run/f.sock".into()))));
        assert_eq!(of(r#"{"Type":"json-file","Config":null}"#), Some(("json-file".into(), None)));
        assert_eq!([of(r#"{"Type":"","Config":{}}"#), of("null"), of("[]")], [None, None, None]);
    }

    #[test]
    fn fuzz_container() {
        podstuck_fuzz::fuzz("container", |input| {
            let _ = (describe(input), stored(input), log_driver(input));
        });
    }

    #[test]
    fn each_runtimes_file_names_the_pod_of_a_container() {
        let cri = "io.kubernetes.cri";
        let containerd = format!(
            r#"{{"ociVersion":"1","annotations":{{"{cri}.sandbox-namespace":"shop",
            "{cri}.sandbox-name":"cart-0","{cri}.sandbox-uid":"{UID}","{cri}.container-name":"web",
            "{cri}.container-type":"container"}},"linux":{{"cgroupsPath":"/x"}}}}"#
        );
        let described = describe(containerd.as_bytes()).unwrap();
        assert_eq!(
            (described.pod, described.name, described.is_sandbox),
            (pod(Some(("shop", "cart-0"))), Some("web".into()), false)
        );
        let group = format!("kubepods-pod{}.slice:cri-containerd:abc", UID.replace('-', "_"));
        let older = containerd.replace(&format!(r#""{cri}.sandbox-uid":"{UID}""#), r#""a":"b""#);
        assert_eq!(describe(older.as_bytes()).unwrap().pod, None);
        let older = older.replace("/x", &group);
        assert_eq!(describe(older.as_bytes()).unwrap().pod, pod(Some(("shop", "cart-0"))));
        let plain = format!(r#"{{"linux":{{"cgroupsPath":"{group}"}}}}"#);
        assert_eq!(describe(plain.as_bytes()).unwrap().pod, pod(None));
        let sandbox = containerd.replace(r#""container""#, r#""sandbox""#);
        assert!(describe(sandbox.as_bytes()).unwrap().is_sandbox);

        let of = "io.kubernetes.pod";
        let labels = format!(
            r#"{{"{of}.namespace":"shop","{of}.name":"cart-0","{of}.uid":"{UID}",
            "io.kubernetes.container.name":"web","io.kubernetes.docker.type":"container"}}"#
        );
        let docker = format!(
            r#"{{"ID":"x","Name":"/k8s_web_cart-0_shop_{UID}_0","Config":{{"Labels":{labels}}},
            "State":{{"Running":false,"Dead":true,"RemovalInProgress":true,"Pid":0,"ExitCode":137}},
            "MountPoints":{{"/d":{{"Type":"volume","Name":"v1","Driver":"local"}},
            "/n":{{"Type":"volume","Name":"v2","Driver":"nfs"}},"/b":{{"Type":"bind","Name":""}}}}}}"#
        );
        let described = describe(docker.as_bytes()).unwrap();
        assert_eq!(
            (described.pod, described.name),
            (pod(Some(("shop", "cart-0"))), Some("web".into()))
        );
        assert_eq!(described.volume_names, ["v1"]);
        assert!(described.state.is_some_and(|state| state.is_to_go() && !state.running));
        let crio = format!(
            r#"{{"annotations":{labels},"linux":{{}},"mounts":[{{"destination":"/proc","source":"proc"}},
            {{"source":"/s/volumes/v3/_data"}},{{"source":"/etc/hosts"}},{{"destination":"/dev"}}]}}"#
        );
        let described = describe(crio.as_bytes()).unwrap();
        assert_eq!(described.pod, pod(Some(("shop", "cart-0"))));
        assert_eq!(described.volumes, [Path::new("/s/volumes/v3")]);
    }

    #[test]
    fn dockers_own_have_its_name_and_no_pod() {
        let docker = br#"{"Name":"/web","Config":{"Labels":{}},"State":{"Running":true,"Pid":7}}"#;
        let described = describe(docker).unwrap();
        assert_eq!((described.name.as_deref(), described.pod), (Some("web"), None));
        assert_eq!(
            described.state.map(|it| (it.running, it.pid, it.is_to_go())),
            Some((true, 7, false))
        );
        for other in ["{}", r#"{"Config":{"Labels":{}}}"#, r#"{"annotations":{"a":"b"}}"#] {
            assert_eq!(describe(other.as_bytes()), Some(Described::default()), "{other}");
        }
        assert_eq!(describe(b""), None);
        for (text, is_known) in
            [("0001-01-01T00:00:00Z", true), ("2024-05-01T10:00:00.5+02:00", true), ("", false)]
        {
            let file = format!(r#"{{"State":{{"Restarting":true,"FinishedAt":"{text}"}}}}"#);
            let state = describe(file.as_bytes()).unwrap().state.unwrap();
            assert_eq!((state.restarting, state.finished_at.is_some()), (true, is_known), "{text}");
        }
        let hostile = br#"{"Name":"/a\u001b[2J"}"#;
        assert_eq!(describe(hostile).unwrap().name.as_deref(), Some(r"a\x1b[2J"));
    }

    #[test]
    fn containers_storage_lists_its_layers() {
        let text = br#"[{"id":"c","names":["web"],"image":"i","layer":"l","metadata":"{}"},{"id":"d","layer":"m"}]"#;
        let found = stored(text);
        assert_eq!(
            found[0],
            Stored { id: "c".into(), layer: "l".into(), names: vec!["web".into()] }
        );
        assert_eq!((found[1].id.as_str(), found.len()), ("d", 2));
        assert!(stored(b"{").is_empty());
    }
}
