//! A runtime whose configuration no longer has what a pod was started with: its handler of a RuntimeClass, or the
//! controller of its sandbox. The runtime finds that first, and so fails each stop before it sends a signal.

use crate::{
    cause::{Cause, Kind, Origin, TriedWith, hidden, like, log, seen, way},
    causes::{
        runtime::{suspect::Suspect, verdict},
        shared::unit,
    },
    ids,
    model::{
        diagnosis::Stage,
        path::{clip, safe},
    },
    verdict::Draft,
};

/// Longest name of a handler that is shown.
const NAME: usize = 64;

/// A handler that the runtime no longer has.
pub(crate) static HANDLER_GONE: Cause = Cause {
    id: ids::RUNTIME_HANDLER_GONE,
    title: "the runtime's configuration no longer has the handler that the pod runs with",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "A pod with a RuntimeClass runs with the handler of that name in the runtime's configuration. That handler was \
        removed, and the runtime restarted, while the pod ran: as when the installer of the runtime is deleted before the \
        pods that use it. The runtime looks for the handler before it does anything, so each stop fails at once, and \
        ending the processes by hand does not help: the runtime cannot learn of their end either.",
    confirmed_by: &[
        seen(
            "kubelet's or the runtime's log reports at each attempt that the handler, or the sandbox's controller, is not \
             found",
            &[Origin::Log],
        ),
        hidden("the handler is still missing: the log shows only past attempts"),
    ],
    log: log("kubelet", "KillPodSandboxError: ... failed to find runtime handler ..."),
    look_alikes: &[like(
        ids::SHIM_OR_CONTAINERD_STATE_LOST,
        "the runtime has the container, and lacks its handler",
    )],
    ways_out: &[way(
        "restore the handler in the runtime's configuration and restart the runtime, until no pod is left that runs with it",
        "containers keep running under their shims",
    )],
    field: &["cri-o#9521", "nvidia-container-toolkit#1360"],
    tried: &[TriedWith::Test],
    source: &[
        "cri-o internal/oci/oci.go, ValidateRuntimeHandler",
        "containerd internal/cri/server, criSandboxService.SandboxController; 1.7 pkg/cri/server, getSandboxRuntime",
    ],
};

/// containerd's words before the name of a handler's program that is gone (core/runtime/v2, `resolveRuntimePath`).
const NOT_INSTALLED: &str = " binary not installed ";

/// The handler, its program, or the controller of the sandbox, that the error names.
fn name(text: &str) -> Option<&str> {
    let before = ["runtime handler ", "sandbox controller by ", "no runtime for ", NOT_INSTALLED];
    let rest = before.iter().find_map(|words| Some(text.split_once(words)?.1))?;
    let ends = |c: char| c.is_whitespace() || "\"\\,:]".contains(c);
    let rest = rest.trim_start_matches(['\\', '"']);
    rest.split(ends).next().filter(|name| !name.is_empty())
}

pub(super) fn words(draft: &mut Draft, suspect: &Suspect<'_>) {
    verdict::must_act(draft, suspect, "find the handler that the pod runs with");
    verdict::processes(draft, suspect);
    let name = name(&suspect.logged.said.text).map(|name| clip(&safe(name.as_bytes()), NAME));
    let handler = name.map(|name| format!(" {name}")).unwrap_or_default();
    if suspect.logged.said.text.contains(NOT_INSTALLED) {
        draft.explanation = format!(
            "The program{handler} of the handler that the pod was started with is no longer installed. The runtime starts it \
             for each act on the pod's sandbox, so each stop of the pod fails at once."
        );
        draft.advice(
            format!(
                "install the program{handler} again, in a directory of the runtime's PATH: kubelet's next attempt succeeds. \
                 Remove it only when no pod is left that runs with it"
            ),
            "none",
        );
        rule_out(draft);
        return;
    }
    draft.explanation = format!(
        "The runtime's configuration no longer has the handler{handler} that the pod was started with. The runtime looks \
         for it before it sends a signal, so each stop of the pod fails at once. A kill by hand does not help: the runtime \
         cannot learn of a container's end without that handler."
    );
    draft.advice(
        format!(
            "restore the handler{handler} in the runtime's configuration (for CRI-O a file in /etc/crio/crio.conf.d, for \
             containerd /etc/containerd/config.toml), and restart the runtime: kubelet's next attempt succeeds. Remove the \
             handler only when no pod is left that runs with it"
        ),
        unit::RUNTIME_RISK,
    );
    rule_out(draft);
}

fn rule_out(draft: &mut Draft) {
    draft.rule_out(
        ids::SHIM_OR_CONTAINERD_STATE_LOST,
        "the runtime has the container, and lacks its handler",
    );
    draft.doubt("whether the handler is still missing: the log shows only past attempts");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handler_is_read_from_the_error() {
        let of_cri_o =
            "failed to find runtime handler nvidia from runtime list map[crun:0xc0 runc:0xc1]";
        assert_eq!(name(of_cri_o), Some("nvidia"));
        let of_containerd = "failed to get sandbox controller by shim\\\"]";
        assert_eq!(name(of_containerd), Some("shim"));
        let of_older = r#"failed to get sandbox runtime: no runtime for \"kata\" is configured"#;
        assert_eq!(name(of_older), Some("kata"));
        let gone = r#"runtime "io.containerd.kata.v2" binary not installed "containerd-shim-kata-v2": file does not exist"#;
        assert_eq!(name(gone), Some("containerd-shim-kata-v2"));
        assert_eq!(name("empty runtime path for runtime handler "), None);
    }
}
