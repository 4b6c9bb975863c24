//! A kubelet that ends, by its own log: with which error, how often, and what to do about it.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};

use crate::{
    causes::shared::blamed,
    command::Step,
    model::{
        evidence::Source,
        node::NodeSample,
        path::safe_path,
        said::{Complaint, Report, Said},
        shell::word,
    },
    tracker::Context,
    verdict::{Draft, times},
};

/// kubelet's service starts it again after 10 s (`RestartSec` in kubelet's unit of the Kubernetes packages).
const FRESH: SignedDuration = SignedDuration::from_secs(60);
/// A kubelet that has run for so long does not fail at its start: it waits 5 s for the runtime first.
const RUNS: std::time::Duration = std::time::Duration::from_secs(30);
/// A single end is followed by a start.
const AGAIN: u64 = 2;
/// Files in kubelet's root directory that it cannot start without reading, and makes again where they are missing
/// (pkg/kubelet/cm: `cpumanager`, `memorymanager`, `dra`; pkg/kubelet/allocation and pkg/kubelet/status before it).
const CHECKPOINTS: [&str; 6] = [
    "cpu_manager_state",
    "memory_manager_state",
    "dra_manager_state",
    "allocated_pods_state",
    "actuated_pods_state",
    "pod_status_manager_state",
];

/// The errors with which kubelet has ended.
#[derive(Default)]
pub(super) struct Exits {
    /// The last of them, with the number of all.
    last: Option<Said>,
    /// When systemd last started the service again.
    started: Option<Said>,
}

/// How kubelet ends.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Ends<'a> {
    /// The last error with which it ended.
    pub(super) with: &'a Said,
    pub(super) started: Option<&'a Said>,
}

impl Exits {
    pub(super) fn listen(&mut self, said: &Said) {
        if said.complaint == Some(Complaint::KubeletEnds) {
            let before = self.last.take().map_or(0, |before| before.times);
            self.last = Some(Said { times: before + said.times, ..said.clone() });
        } else if said.report == Some(Report::StartedAgain) {
            self.started = Some(said.clone());
        }
    }

    /// The last error, however old.
    pub(super) fn last(&self) -> Option<Ends<'_>> {
        Some(Ends { with: self.last.as_ref()?, started: self.started.as_ref() })
    }

    /// The same, if kubelet has ended more than once, the last time a moment ago, and has not run for long since.
    pub(super) fn lasting(&self, context: &Context<'_>, sample: &NodeSample) -> Option<Ends<'_>> {
        let is_young = match sample.kubelets[..] {
            [] => true,
            [_] => sample.kubelet_since.is_some_and(|since| sample.at.since(since) < RUNS),
            _ => false,
        };
        let is_fresh = |at: Timestamp| context.calendar.duration_since(at) <= FRESH;
        let ends = self.last()?;
        let counted = ends.started.filter(|it| is_fresh(it.at)).map_or(0, |it| it.times);
        let is_again = ends.with.times.max(counted) >= AGAIN;
        (is_again && is_fresh(ends.with.at) && is_young).then_some(ends)
    }
}

/// Adds the error, how often kubelet was started again, and what is to be done about it.
pub(super) fn tell(draft: &mut Draft, ends: &Ends<'_>) {
    let Ends { with, started } = ends;
    let source = Source::Log(with.source.clone());
    draft.fact(format!("kubelet ended with an error: {}", with.quote("it")), source);
    if let Some(started) = started {
        let (count, at) = (times(started.times), started.at);
        let fact = format!("systemd has started kubelet's service again {count}, last at {at:.0}");
        draft.fact(fact, Source::Log(started.source.clone()));
    }
    if let Some(file) = checkpoint(&with.text) {
        let (path, aside) = (word(file), word(format!("{}.unusable", file.display())));
        let does = format!("move {} away, without which kubelet starts", safe_path(file));
        draft.remedy(
            Step::new(does, format!("mv {path} {aside}")).verified_by(format!("! [ -e {path} ]")),
            "low for the pod that is to be deleted. kubelet makes the file again, without what it knew of the pods that run: \
            CPUs, memory or devices that a container has for itself may be given to another one as well, until the \
            container is started again. Drain the node first, if that matters",
        );
    } else {
        draft.advice(way_out(&with.text), "none: kubelet does not run as it is");
    }
}

/// The checkpoint that kubelet's error asks to delete.
fn checkpoint(error: &str) -> Option<&Path> {
    let files = [" checkpoint file \"", " state file \""];
    let rest = files.into_iter().find_map(|words| Some(error.split_once(words)?.1))?;
    let file = Path::new(rest.split_once('"')?.0);
    let is_known = CHECKPOINTS.iter().any(|name| file.ends_with(name));
    (is_known && file.is_absolute() && error.contains("delete")).then_some(file)
}

/// What kubelet's error at its start asks for: the words are those of cmd/kubelet/app/server.go, component-base, client-go,
/// and pkg/kubelet/cm.
const WAYS: [(&[&str], &str); 8] = [
    (
        &["running with swap on is not supported", "Running with swap on is not supported"],
        "turn swap off (`swapoff -a`, and its lines in /etc/fstab), or set `failSwapOn: false` in kubelet's configuration",
    ),
    (
        &[
            "failed to parse kubelet flag",
            "Failed to parse kubelet flag",
            "unknown flag",
            "nknown command",
        ],
        "remove the flag that this version of kubelet does not have: `systemctl cat kubelet` shows its unit and drop-ins, and \
        with kubeadm, /var/lib/kubelet/kubeadm-flags.env has flags as well",
    ),
    (
        &["feature gate"],
        "remove the feature gate that this version of kubelet does not have from its configuration or flags",
    ),
    (
        &["kubelet config file", "kubelet configuration", "kubelet configs", "initialize logging"],
        "repair kubelet's configuration (with kubeadm, /var/lib/kubelet/config.yaml), at the place that the error names",
    ),
    (
        &[
            "bootstrap kubeconfig",
            "bootstrap-kubelet.conf",
            "bootstrap client certificate",
            "client certificate",
        ],
        "give kubelet a valid client certificate: it has none, and no valid kubeconfig to request one with (with kubeadm: \
        `kubeadm init phase kubeconfig kubelet` on a control plane node, or `kubeadm join` with a new token)",
    ),
    (
        &["address already in use"],
        "end the process that has the address which kubelet listens on: `ss -ltnp` lists all of them",
    ),
    (
        &["ystem validation failed", "failed to find subsystem mount", "cgroup driver"],
        "mount the control groups that kubelet needs, or set the `cgroupDriver` of the container runtime, as the error says",
    ),
    (
        &["is corrupted", "checkpoint"],
        "move the checkpoint that kubelet's error is about out of kubelet's root directory: kubelet makes it again",
    ),
];

/// What is to be done about an error with which kubelet ends.
fn way_out(error: &str) -> String {
    let mut ways = WAYS.into_iter();
    let known = ways.find(|(words, _)| words.iter().any(|it| error.contains(it)));
    let known = known.map(|(_, way)| way.to_owned()).or_else(|| blamed::way_out(error));
    known.unwrap_or_else(|| "repair what kubelet's error names".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As kubelet 1.18 to 1.36 logs it.
    #[test]
    fn an_error_at_the_start_leads_to_what_it_names() {
        let file = |error: &str| checkpoint(error).map(|it| it.display().to_string());
        let memory = "Failed to start ContainerManager: start memory manager error: could not restore state from checkpoint: \
            checkpoint is corrupted, please drain this node and delete the memory manager checkpoint file \
            \"/data/kubelet/memory_manager_state\" before restarting Kubelet";
        assert_eq!(file(memory).as_deref(), Some("/data/kubelet/memory_manager_state"));
        let other = memory.replace("memory_manager_state", "pki/kubelet.key");
        assert_eq!(file(&other), None);
        let old = "could not restore state. Please drain this node and delete the CPU manager state file \
            \"/var/lib/kubelet/cpu_manager_state\" before restarting Kubelet.";
        assert_eq!(file(old).as_deref(), Some("/var/lib/kubelet/cpu_manager_state"));
        let table = [
            (
                "command failed: failed to run Kubelet: running with swap on is not supported, please disable swap! or set \
                --fail-swap-on flag to false. /proc/swaps contained: [Filename]",
                "swapoff",
            ),
            ("failed to parse kubelet flag: unknown flag: --network-plugin", "kubeadm-flags.env"),
            (
                "failed to load kubelet config file, path: /var/lib/kubelet/config.yaml, error: failed to load Kubelet config \
                file /var/lib/kubelet/config.yaml, error failed to read kubelet config file",
                "repair kubelet's configuration",
            ),
            (
                "command failed: failed to run Kubelet: unable to load bootstrap kubeconfig: stat \
                /etc/kubernetes/bootstrap-kubelet.conf: no such file or directory",
                "client certificate",
            ),
            (
                "Failed to listen and serve: listen tcp 0.0.0.0:10250: bind: address already in use",
                "ss -ltnp",
            ),
            (
                "command failed: failed to run Kubelet: validate service connection: validate CRI v1 runtime API for endpoint \
                \"unix:///run/containerd/containerd.sock\": rpc error: code = Unavailable desc = connection error: desc = \
                \"transport: Error while dialing: dial unix /run/containerd/containerd.sock: connect: connection refused\"",
                "start the server that listens on /run/containerd/containerd.sock",
            ),
            ("command failed: failed to run Kubelet: so what", "repair what kubelet's error names"),
        ];
        for (error, words) in table {
            let given = way_out(error);
            assert!(given.contains(words), "{error}: {given}");
        }
    }
}
