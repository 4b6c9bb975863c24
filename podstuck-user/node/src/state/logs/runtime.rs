//! Which container, sandbox or pod an entry of a runtime's log is about. Entries also contain names of pods and images,
//! commands and their output, which can contain any text: an id counts only where the runtime itself writes it.

use std::sync::LazyLock;

use regex::Regex;

use super::{entries::Entry, fixed};
use crate::identity::uid::{is_long_id, is_pod_uid};
use podstuck_model::{said::Report, sandbox};

/// Fields that contain only the id of a container or a sandbox.
const FIELDS: [&str; 8] = [
    "id",
    "container",
    "containerID",
    "container_id",
    "sandbox",
    "sandboxID",
    "sandbox_id",
    "podsandboxid",
];

/// The subject of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Named {
    /// A container or a sandbox, by its id.
    Id(String),
    /// A pod, by its UID.
    Pod(String),
}

/// Beginnings of messages: containerd's (internal/cri/instrument, plugins/services/tasks), dockerd's
/// (daemon/server, daemon/stop.go), and CRI-O's (internal/oci, server).
static MESSAGE: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r#"^(?:(?:Stop|Remove)(?:PodSandbox|Container) for "([0-9a-f]{64})" failed$"#,
        r"|get state for ([0-9a-f]{64})$",
        r"|Handler for (?:POST|DELETE) /v[0-9.]+/containers/([0-9a-f]{64})(?:/stop|/kill)?(?:\?\S*)? returned error: ",
        r"|(?:Stopping|Killing|Removing|Unable to (?:stop|delete)) container ([0-9a-f]{64})\b",
        r"|Container ([0-9a-f]{64}) failed to exit ",
        // Its own event, as Go and, from 1.7 on, protobuf print it (internal/cri/server/events.go).
        r#"|Failed to handle (?:backOff )?event (?:&TaskExit\{ContainerID:|container_id:")([0-9a-f]{64})[,"])"#
    ))
});
/// Beginnings of errors, after the prefixes of the runtime's own layers, which quote nothing.
static ERROR: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"^(?:rpc error: code = [A-Za-z]+ desc = |[a-z][A-Za-z ]{2,60}: )*",
        r"(?:failed to unmount target /\S*/io\.containerd\.runtime\.v[12]\.(?:task|linux)/[^/\s]+/([0-9a-f]{64})/rootfs: ",
        r#"|(?:failed to (?:forcibly )?(?:stop|kill|delete|destroy network for|remove network namespace for) |an error occurs during waiting for )"#,
        r#"(?:sandbox container|sandbox|container|task) "([0-9a-f]{64})""#,
        r"|failed to remove pod sandbox ([0-9a-f]{64}): )"
    ))
});
/// kubelet asks for this status all the time, and it also fails for a sandbox that is being created: it counts only
/// where a part of the sandbox is busy (containerd's internal/cri/instrument).
static STATUS: LazyLock<Regex> =
    LazyLock::new(|| fixed(r#"^PodSandboxStatus for "([0-9a-f]{64})" failed$"#));
/// CRI-O names a sandbox by its pod's name, namespace and UID (server/naming.go).
static CRI_O: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r"^[A-Za-z :=]{0,120}\bpod sandbox k8s_[a-z0-9.-]+_[a-z0-9-]+_([0-9a-f-]+)_\d+\([0-9a-f]{64}\)",
    )
});

/// Warnings at every container's end, and answers to a question about a container that is gone.
static USUAL: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"^(?:cleaning up after shim disconnected$|cleanup warnings? |",
        r#"(?:Container|PodSandbox)Stat(?:us|s) for "[^"]*" failed$)"#
    ))
});

/// The first subject that an entry names, whatever its text, unless the entry is a usual one. A runtime's own text
/// precedes what it quotes. An id in the name of an image does not count.
pub(super) fn mentioned(entry: &Entry) -> Option<Named> {
    if USUAL.is_match(entry.field("msg")) {
        return None;
    }
    let ends = |c: char| c.is_whitespace() || "\"'=(),[]{}".contains(c);
    let texts = [entry.field("msg"), entry.field("error")].into_iter().chain(entry.others());
    let words = texts.flat_map(|text| text.split(ends));
    words.map(|word| word.trim_matches(['\\', ':', ';', '.'])).find_map(of_word)
}

fn of_word(word: &str) -> Option<Named> {
    let uid = |uid: &str| is_pod_uid(uid.as_bytes()).then(|| Named::Pod(uid.to_owned()));
    let id = |id: &str| is_long_id(id.as_bytes()).then(|| Named::Id(id.to_owned()));
    if word.starts_with("k8s_") {
        return word.split('_').find_map(uid);
    }
    if let Some(path) = word.strip_prefix('/') {
        let of_volume =
            path.split_once("pods/").and_then(|(_, rest)| uid(rest.split('/').next()?));
        return of_volume.or_else(|| path.split('/').find_map(id));
    }
    id(word)
}

/// The step that a runtime reports, and its container or sandbox.
pub(super) fn reported(entry: &Entry) -> Option<(Named, Report)> {
    if let Some(id) = deleted(entry) {
        return Some((Named::Id(id.to_owned()), Report::TaskDeleted));
    }
    let found = REPORT.captures(entry.field("msg"))?;
    let reports = [
        ("killed", Report::Killed),
        ("stops", Report::SandboxStops),
        ("stopping", Report::SandboxStops),
        ("stopped", Report::SandboxStopped),
        ("success", Report::SandboxStopped),
    ];
    let mut reports = reports.into_iter();
    reports.find_map(|(name, report)| Some((Named::Id(found.name(name)?.as_str().into()), report)))
}

/// containerd kills a container whose grace period is over (internal/cri/server, `stopContainer`), and logs when it is
/// asked to stop a sandbox and when it has stopped it (internal/cri/instrument), as CRI-O does
/// (server/sandbox_stop.go).
static REPORT: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r#"^(?:Kill container "(?<killed>[0-9a-f]{64})""#,
        r#"|StopPodSandbox for "(?<success>[0-9a-f]{64})" returns successfully"#,
        r#"|StopPodSandbox for "(?<stops>[0-9a-f]{64})""#,
        r"|Stopping pod sandbox: (?<stopping>[0-9a-f]{64})",
        r"|Stopped pod sandbox: (?<stopped>[0-9a-f]{64}))$"
    ))
});

/// The container whose task is deleted: dockerd logs that it ignores the event (moby 20.10 and later,
/// libcontainerd/remote). It has requested the deletion itself, after the container's end.
fn deleted(entry: &Entry) -> Option<&str> {
    let says = |name, value| entry.field(name) == value;
    let is_event = says("msg", "ignoring event") && says("module", "libcontainerd");
    let id = entry.field("container");
    (is_event && says("topic", "/tasks/delete") && is_long_id(id.as_bytes())).then_some(id)
}

/// The container, sandbox or pod that an entry is about.
pub(super) fn named(entry: &Entry) -> Option<Named> {
    let (message, error) = (entry.field("msg"), entry.field("error"));
    let first = |form: &Regex, text: &str| {
        let found = form.captures(text)?;
        found.iter().skip(1).flatten().next().map(|found| found.as_str().to_owned())
    };
    let of_pod = first(&CRI_O, message).or_else(|| first(&CRI_O, error));
    if let Some(uid) = of_pod.filter(|uid| is_pod_uid(uid.as_bytes())) {
        return Some(Named::Pod(uid));
    }
    let of_field = || {
        let values = FIELDS.iter().map(|name| entry.field(name));
        values.into_iter().find(|value| is_long_id(value.as_bytes())).map(str::to_owned)
    };
    let of_status = || first(&STATUS, message).filter(|_| sandbox::busy(error).is_some());
    let id = first(&MESSAGE, message).or_else(of_status).or_else(of_field);
    id.or_else(|| first(&ERROR, error)).or_else(|| first(&ERROR, message)).map(Named::Id)
}

/// The container or sandbox that an entry's error names: an operation on a sandbox may fail at a container.
pub(super) fn named_beside(entry: &Entry) -> Option<String> {
    let found = ERROR.captures(entry.field("error"))?;
    found.iter().skip(1).flatten().next().map(|id| id.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f0e0d0c-1111-4222-8333-444455556666";

    fn of(message: &str, rest: &str) -> Option<Named> {
        let line = format!("time=\"2026-01-01T00:00:00Z\" level=error msg={message:?} {rest}");
        named(&Entry::parse(&line).unwrap().1)
    }

    /// As cited in the issues of containerd, moby and CRI-O, and as recorded with containerd 1.6.
    #[test]
    fn an_id_counts_where_the_runtime_writes_it() {
        let id = "a".repeat(64);
        let task = "/run/containerd/io.containerd.runtime.v2.task/k8s.io";
        let lines = [
            (format!("StopPodSandbox for \"{id}\" failed"), String::new()),
            (format!("RemoveContainer for \"{id}\" failed"), "error=x".into()),
            (
                "failed to cleanup rootfs mount".into(),
                format!(
                    "error=\"failed to unmount target {task}/{id}/rootfs: device or resource busy\""
                ),
            ),
            ("cleaning up after shim disconnected".into(), format!("id={id} namespace=k8s.io")),
            ("Container failed to exit within 10s of signal 15".into(), format!("container={id}")),
            (
                format!("PodSandboxStatus for \"{id}\" failed"),
                "error=\"failed to get sandbox ip: check network namespace closed: remove netns: unlinkat \
                 /var/run/netns/cni-a: device or resource busy\""
                    .into(),
            ),
            (
                "x".into(),
                format!("error=\"failed to remove network namespace for sandbox \\\"{id}\\\": y\""),
            ),
            (
                "x".into(),
                format!("error=\"failed to remove pod sandbox {id}: unlinkat /x/shm: busy\""),
            ),
            (format!("get state for {id}"), "error=\"context deadline exceeded: unknown\"".into()),
            (
                format!(
                    "Handler for POST /v1.41/containers/{id}/stop?t=30 returned error: cannot stop"
                ),
                String::new(),
            ),
            // As in containerd's issues 9240 and 11353.
            (
                format!(
                    "Failed to handle backOff event container_id:\"{id}\"  id:\"{id}\"  pid:19929  exited_at:{{seconds:1738926507}} \
                     for {id}"
                ),
                "error=\"failed to handle container TaskExit event: failed to stop container: context deadline exceeded\""
                    .into(),
            ),
            // As in cilium's issue 29647: the error has prefixes of several layers.
            (
                "Failed to handle backOff event &TaskExit{} for x".into(),
                format!(
                    "error=\"failed to handle container TaskExit event: failed to stop container: failed rootfs umount: failed \
                     to unmount target {task}/{id}/rootfs: device or resource busy: unknown\""
                ),
            ),
            (
                "StopContainer for \"9758a90e48241\" failed".into(),
                format!("error=\"failed to kill container \\\"{id}\\\": context canceled\""),
            ),
            (
                "x".into(),
                format!(
                    "error=\"rpc error: code = Canceled desc = failed to stop sandbox container \
                     \\\"{id}\\\" in \\\"SANDBOX_READY\\\" state\""
                ),
            ),
        ];
        for (message, rest) in lines {
            assert_eq!(of(&message, &rest), Some(Named::Id(id.clone())), "{message}");
        }
        let sandbox = format!(
            "failed to destroy network for pod sandbox k8s_web_shop_{UID}_0({id}): error removing pod"
        );
        assert_eq!(of(&sandbox, ""), Some(Named::Pod(UID.into())));
    }

    /// As dockerd 20.10 has written it.
    #[test]
    fn a_deleted_task_is_found_in_dockerds_log() {
        let id = "a".repeat(64);
        let line = |level: &str, rest: &str| {
            format!(
                "time=\"2026-11-28T01:03:17.191338306Z\" level={level} msg=\"ignoring event\" {rest}"
            )
        };
        let of = |line: &str| reported(&Entry::parse(line).unwrap().1);
        let deleted = format!(
            "container={id} module=libcontainerd namespace=moby topic=/tasks/delete type=\"*events.TaskDelete\""
        );
        assert_eq!(of(&line("info", &deleted)), Some((Named::Id(id), Report::TaskDeleted)));
        assert_eq!(of(&line("info", &deleted.replace("delete", "exit"))), None);
        assert_eq!(of(&line("info", &deleted.replace("aaaa", "/"))), None);
    }

    /// As in containerd's issues 6080 and 13416 and cri-o's 1883, and in other words.
    #[test]
    fn any_complaint_that_names_a_container_or_a_volume_counts() {
        let of = |message: &str, rest: &str| {
            let line =
                format!("time=\"2026-01-01T00:00:00Z\" level=warning msg={message:?} {rest}");
            mentioned(&Entry::parse(&line).unwrap().1)
        };
        let id = "a".repeat(64);
        let by_id = Some(Named::Id(id.clone()));
        let by_uid = Some(Named::Pod(UID.into()));
        let other = "b".repeat(64);
        assert_eq!(of(&format!("container \"{id}\": no shim for {other}"), ""), by_id);
        assert_eq!(of("unknown", &format!("error=\"rmdir /run/x/{id}/rootfs: busy\"")), by_id);
        assert_eq!(of("unknown", &format!("cgroup=/kubepods/pod{UID}/{id}")), by_id);
        assert_eq!(of(&format!("cannot umount /k/pods/{UID}/volumes/a~b/c: busy"), ""), by_uid);
        assert_eq!(of(&format!("Failed to umount k8s_main_web_shop_{UID}_0: x"), ""), by_uid);
        for nothing in [
            format!("PullImage \"docker.io/{id}\" failed"),
            format!("image sha256:{id}"),
            format!("ContainerStatus for \"{id}\" failed"),
            format!("cleanup warnings time=x id={id}"),
            format!("pod {UID}x"),
        ] {
            assert_eq!(of(&nothing, ""), None, "{nothing}");
        }
    }

    #[test]
    fn an_id_that_others_write_does_not_count() {
        let id = "a".repeat(64);
        for (message, rest) in [
            (
                format!("ExecSync for \"{}\" failed", "b".repeat(63)),
                format!("error=\"exec: StopPodSandbox for \\\"{id}\\\" failed\""),
            ),
            (
                format!("ExecSync for \"x\" failed: StopContainer for \"{id}\" failed"),
                String::new(),
            ),
            (
                "PullImage \"x\" failed".into(),
                format!("image=docker.io/{id} error=\"failed to kill {id}\""),
            ),
            (format!("PodSandboxStatus for \"{id}\" failed"), "error=\"not found\"".into()),
            (format!("cleanup warnings time=x id={id}"), String::new()),
            (
                "x".into(),
                format!(
                    "error=\"exec \\\"a: failed to stop container: \\\": failed to kill container \\\"{id}\\\"\""
                ),
            ),
            ("x".into(), format!("id={id}0 container=sha256:{id}")),
            (format!("pod sandbox k8s_web_shop_0-0_0({id})"), String::new()),
        ] {
            assert_eq!(of(&message, &rest), None, "{message}");
        }
    }
}
