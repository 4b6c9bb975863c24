//! A hook that the runtime runs after a container's end, and that fails each time.

use std::path::Path;

use crate::{
    cause::{Cause, Kind, Origin, TriedWith, absent, hidden, like, log, seen, way},
    causes::runtime::suspect::Suspect,
    command::Step,
    ids,
    model::{chain::Who, degraded::Feed, diagnosis::Stage, evidence::Source, path::safe_path},
    verdict::Draft,
};

/// Where hooks are configured for CRI-O and Podman (containers/common, pkg/hooks).
const HOOKS: &str = "/usr/share/containers/oci/hooks.d /etc/containers/oci/hooks.d";
/// CRI-O's error about its built-in hook.
const OF_CRI_O: &str = "failed to run post-stop hook for container";

/// A post-stop hook that fails.
pub(crate) static HOOK_FAILS: Cause = Cause {
    id: ids::OCI_HOOK_FAILS,
    title: "a post-stop hook of the runtime fails, and so does each stop of the container",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The container has ended. The runtime then runs a post-stop hook: a program from the OCI configuration, \
        or CRI-O's own hook, which restores CPU settings. The hook fails, and the runtime answers each stop with the \
        hook's error. kubelet treats the container as running and retries.",
    confirmed_by: &[
        seen(
            "the runtime's or kubelet's log reports at each attempt that the post-stop hook failed, and why",
            &[Origin::Log],
        ),
        absent("no process of the container is left", Feed::Node),
        hidden("the hook still fails: only its next attempt shows this"),
    ],
    log: log("kubelet", "KillContainerError: ... failed to run post-stop hook for container ..."),
    look_alikes: &[like(
        ids::SHIM_OR_CONTAINERD_STATE_LOST,
        "the runtime knows that the container has ended, and fails after that",
    )],
    ways_out: &[
        way("repair what the hook's error names; the next attempt succeeds", ""),
        way(
            "repair the hook's program, or remove the hook for new containers",
            "the work of the hook is not done",
        ),
        way("update CRI-O: later releases log the failure and go on", ""),
    ],
    field: &["cri-o#7032"],
    tried: &[TriedWith::Test],
    source: &[
        "cri-o server/container_stop.go, stopContainer",
        "cri-o internal/runtimehandlerhooks/high_performance_hooks_linux.go, PostStop",
        "runc libcontainer/state_linux.go, runPoststopHooks",
    ],
};

pub(super) fn words(draft: &mut Draft, suspect: &Suspect<'_>) {
    let text = suspect.logged.said.text.as_str();
    let (is_own, program) = (text.contains(OF_CRI_O), program(text).map(safe_path));
    draft.held_by(match &program {
        _ if is_own => Who::object("CRI-O's own post-stop hook"),
        Some(program) => Who::object(format!("the poststop hook {program}")),
        None => Who::object("a poststop hook of the OCI configuration"),
    });
    draft.must = Some("succeed");
    match (suspect.container(), suspect.has_ended()) {
        (Some(id), Some(true)) => {
            let fact = format!("no process of container {id} is left");
            draft.fact(fact, Source::proc("control groups"));
        }
        _ => draft.lacks("that no process of the container is left"),
    }
    draft.explanation = "The container has ended, and the runtime's post-stop hook fails. The runtime answers each \
        stop with the hook's error, so kubelet treats the container as running and retries. The pod's sandbox is \
        stopped only after that: its own process, pause, blocks nothing."
        .into();
    if let Some(group) = missing_group(text) {
        draft.advice(
            format!(
                "use mkdir to create the control group in which the hook looks for a file: {}. kubelet's next \
                 attempt succeeds if the hook finds everything that it needs there",
                safe_path(group)
            ),
            "low: an empty control group is left; remove it with rmdir once the pod is gone",
        );
    }
    if is_own {
        draft.advice(
            "update CRI-O to a release that logs the failure of this hook and goes on (cri-o pull request 7032); the \
             update restarts CRI-O",
            "low: containers keep running under their monitors",
        );
    } else {
        let list = format!("grep --recursive --files-with-matches poststop {HOOKS}");
        let does = "list the files that configure poststop hooks, which name the programs";
        draft.remedy(Step::new(does, list), "none");
        draft.advice(
            "repair the hook's program, or replace it with one that exits with status 0: the runtime's next attempt \
             succeeds. A container keeps the hook path with which it was created",
            "the work of the hook is not done for containers that end meanwhile",
        );
    }
    draft.rule_out(
        ids::SHIM_OR_CONTAINERD_STATE_LOST,
        "the runtime knows that the container has ended, and its hook fails after that",
    );
    draft.doubt("whether the hook still fails: the log shows only past attempts");
}

/// The hook's program, if it could not be started (Go's os/exec).
fn program(text: &str) -> Option<&Path> {
    let (_, rest) = text.split_once("fork/exec ")?;
    absolute(rest.split_once(": ")?.0)
}

/// The missing control group in which the hook could not open a file.
fn missing_group(text: &str) -> Option<&Path> {
    let (_, rest) = text.split_once(": open ")?;
    let (path, why) = rest.split_once(": ")?;
    let is_plain = path.split('/').all(|part| part != "..");
    let group = absolute(path).filter(|it| it.starts_with("/sys/fs/cgroup") && is_plain)?;
    why.starts_with("no such file or directory").then(|| group.parent()).flatten()
}

fn absolute(path: &str) -> Option<&Path> {
    let is_one = path.starts_with('/') && !path.contains(char::is_whitespace);
    is_one.then(|| Path::new(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_and_the_missing_group_are_read_from_the_error() {
        let of_runc = "error running poststop hook #0: fork/exec /opt/hook.sh: no such file or directory, stdout: , stderr:";
        assert_eq!(program(of_runc), Some(Path::new("/opt/hook.sh")));
        let open =
            |path: &str| format!("set CPU load balancing: open {path}: no such file or directory");
        let of_cri_o = open("/sys/fs/cgroup/cpuset/a/crio-1.scope/cpuset.sched_load_balance");
        let group = Path::new("/sys/fs/cgroup/cpuset/a/crio-1.scope");
        assert_eq!((missing_group(&of_cri_o), program(&of_cri_o)), (Some(group), None));
        for other in ["/etc/x", "/sys/fs/cgroup/../../etc/x", "sys/fs/cgroup/x"] {
            assert_eq!(missing_group(&open(other)), None, "{other}");
        }
        assert_eq!(missing_group("x: open /sys/fs/cgroup/a/b: permission denied"), None);
        assert_eq!(program("error running poststop hook #0: exit status 1"), None);
    }
}
