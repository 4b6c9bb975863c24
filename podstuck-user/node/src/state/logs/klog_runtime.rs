//! Entries of kubelet's log about the runtime: a pod that could not be killed, with the runtime's error, and a
//! runtime that does not answer.

use std::sync::LazyLock;

use regex::Regex;

use super::{fixed, go_text::value};
use crate::identity::uid::is_pod_uid;

static OLD: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r#"(?s)^Error syncing pod ([0-9a-f-]+) \("[a-z0-9.-]+_[a-z0-9-]+\([0-9a-f-]+\)"\), skipping: (.*)$"#,
    )
});
static POD: LazyLock<Regex> =
    LazyLock::new(|| fixed(r#"^ pod="[a-z0-9-]+/[a-z0-9.-]+" podUID="?([0-9a-f-]+)"?(?: |$)"#));
/// In the form of each kubelet version (`Kubelet.syncLoop`).
static UNHEALTHY: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r#"^(?:"Skipping pod synchronization" err="|skipping pod synchronization - )(\[?(?:container runtime is down|PLEG is not healthy: )[^"\n]*)"#,
    )
});

/// `GenericPLEG.Relist`, each second while the runtime's list of pods cannot be read, in the form of each version.
const UNLISTED: [&str; 2] =
    ["\"GenericPLEG: Unable to retrieve pods\" err=", "GenericPLEG: Unable to retrieve pods: "];

/// Requests to the runtime that are about no container (pkg/kubelet/cri/remote), in the form of each version. A runtime that
/// hangs answers none of these, either (Azure/AKS#5878).
static OF_NONE: LazyLock<Regex> = LazyLock::new(|| {
    const CALLS: &str = "ListContainers|ListPodSandbox|ListImages|ImageFsInfo|Status|Version|ListContainerStats|\
                         ListPodSandboxStats";
    fixed(&format!(
        r#"(?s)^(?:"(?:{CALLS})[^"]* from (?:runtime|image) service failed" err=|(?:{CALLS}) .*?from (?:runtime|image) service failed: )(.*)$"#
    ))
});

/// UID of the pod, empty where the entry is about all pods, the error, and whether kubelet asked for all pods.
pub(super) fn of_runtime(message: &str) -> Option<(String, String, bool)> {
    if let Some(found) = UNHEALTHY.captures(message) {
        return Some((String::new(), found[1].trim_end().to_owned(), false));
    }
    if let Some(error) = UNLISTED.into_iter().find_map(|it| message.strip_prefix(it)) {
        let error = value(error).map_or_else(|| error.trim_end().to_owned(), |(error, _)| error);
        return Some((String::new(), error, true));
    }
    if let Some(found) = OF_NONE.captures(message) {
        let error = found.get(1)?.as_str();
        let error = value(error).map_or_else(|| error.trim_end().to_owned(), |(error, _)| error);
        return Some((String::new(), error, false));
    }
    let (uid, error) = match message.strip_prefix("\"Error syncing pod, skipping\" err=") {
        Some(rest) => {
            let (error, rest) = value(rest)?;
            (POD.captures(rest)?[1].to_owned(), error)
        }
        None => {
            let found = OLD.captures(message)?;
            (found[1].to_owned(), found[2].to_owned())
        }
    };
    // kubelet logs the same line when a container cannot be started.
    let kills = ["KillPodSandbox", "KillContainer", "error killing pod"];
    let is_kill = kills.iter().any(|word| error.contains(word));
    (is_kill && is_pod_uid(uid.as_bytes())).then_some((uid, error, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f0e0d0c-1111-4222-8333-444455556666";
    const ERROR: &str = "failed to \"KillPodSandbox\" for \"u\" with KillPodSandboxError: \"rpc error: code = \
        Unknown desc = failed to destroy network for sandbox\"";

    /// As in weaveworks/weave, kubernetes issue 45626 and longhorn's knowledge base.
    #[test]
    fn a_failed_kill_is_found_in_the_log_of_new_and_old_kubelets() {
        let pod = "pod=\"shop/cart-0\" podUID";
        for line in [
            format!("\"Error syncing pod, skipping\" err={ERROR:?} {pod}=\"{UID}\""),
            format!("\"Error syncing pod, skipping\" err={ERROR:?} {pod}={UID}"),
            format!("\"Error syncing pod, skipping\" err=<\n\t{ERROR}\n > {pod}=\"{UID}\""),
            format!("Error syncing pod {UID} (\"cart-0_shop({UID})\"), skipping: {ERROR}"),
        ] {
            assert_eq!(of_runtime(&line), Some((UID.into(), ERROR.into(), false)), "{line}");
        }
    }

    #[test]
    fn other_errors_and_those_without_a_pod_are_ignored() {
        let pod = format!("pod=\"shop/cart-0\" podUID=\"{UID}\"");
        let hostile = format!("KillPodSandbox\" {pod}");
        for line in [
            format!(
                "\"Error syncing pod, skipping\" err=\"failed to \\\"StartContainer\\\" for x\" {pod}"
            ),
            format!("\"Error syncing pod, skipping\" err={hostile:?}"),
            format!(
                "\"Error syncing pod, skipping\" err=\"KillPodSandbox\" pod=\"a b/c\" podUID=\"{UID}\""
            ),
            "\"Error syncing pod, skipping\" err=\"KillPodSandbox\" pod=\"a/c\" podUID=\"0-0\""
                .to_owned(),
            format!("\"Error syncing pod, skipping\" err=<\n\tKillPodSandbox {pod}"),
            "\"Error syncing pod, skipping\" err=".to_owned(),
        ] {
            assert_eq!(of_runtime(&line), None, "{line}");
        }
    }

    #[test]
    fn a_silent_runtime_concerns_all_pods() {
        let unhealthy =
            "PLEG is not healthy: pleg was last seen active 3m5s ago; threshold is 3m0s";
        for line in [
            format!("\"Skipping pod synchronization\" err=\"{unhealthy}\""),
            format!("skipping pod synchronization - {unhealthy}"),
        ] {
            assert_eq!(of_runtime(&line), Some((String::new(), unhealthy.into(), false)), "{line}");
        }
        let both = format!(
            "\"Skipping pod synchronization\" err=\"[container runtime is down, {unhealthy}]\""
        );
        assert!(of_runtime(&both).is_some_and(|(_, error, _)| error.starts_with('[')));
        let down = "skipping pod synchronization - container runtime is down";
        let known = (String::new(), "container runtime is down".into(), false);
        assert_eq!(of_runtime(down), Some(known));
        let starts = "skipping pod synchronization - container runtime status check may not have completed yet";
        assert_eq!(of_runtime(starts), None);
        let refused = "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing \
            dial unix /run/containerd/containerd.sock: connect: connection refused\"";
        for line in [
            format!("\"GenericPLEG: Unable to retrieve pods\" err={refused:?}"),
            format!("GenericPLEG: Unable to retrieve pods: {refused}"),
        ] {
            assert_eq!(of_runtime(&line), Some((String::new(), refused.into(), true)), "{line}");
        }
    }

    #[test]
    fn a_request_about_no_container_that_is_not_answered_concerns_all_pods() {
        let late = "rpc error: code = DeadlineExceeded desc = context deadline exceeded";
        for line in [
            format!(
                "\"ListContainers with filter from runtime service failed\" err={late:?} filter=\"&ContainerFilter{{}}\""
            ),
            format!(
                "\"ListPodSandbox with filter from runtime service failed\" err={late:?} filter=\"nil\""
            ),
            format!("\"Status from runtime service failed\" err={late:?}"),
            format!("\"ImageFsInfo from image service failed\" err={late:?}"),
            format!("ListPodSandbox with filter nil from runtime service failed: {late}"),
            format!("Status from runtime service failed: {late}"),
        ] {
            assert_eq!(of_runtime(&line), Some((String::new(), late.into(), false)), "{line}");
        }
        for line in [
            format!(
                "\"StopContainer from runtime service failed\" err={late:?} containerID=\"aa\""
            ),
            format!(
                "\"ContainerStatus from runtime service failed\" err={late:?} containerID=\"aa\""
            ),
            format!("StopPodSandbox \"aa\" from runtime service failed: {late}"),
        ] {
            assert_eq!(of_runtime(&line), None, "it is about one: {line}");
        }
    }
}
