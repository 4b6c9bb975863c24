//! Maps a runtime's error text to a complaint. kubelet repeats these texts in its own log.

use podstuck_model::{
    said::Complaint,
    sandbox::{self, Kept},
};

/// Texts of containerd (internal/cri/server), CRI-O (server/sandbox_network.go), dockershim and
/// cri-dockerd (`NetworkPlugin cni failed to teardown pod`), and runc (libcontainer/container_linux.go). Texts
/// that name a reason are checked before those of a timeout.
pub(super) fn of_runtime(error: &str) -> Option<Complaint> {
    let has = |words: &[&str]| words.iter().any(|words| error.contains(words));
    // runc before 1.0 quotes the error.
    let refuses = |why: &str| {
        error.contains(&format!("unable to signal init: {why}"))
            || ["\"", "\\\""]
                .iter()
                .any(|quote| error.contains(&format!("signaling init process caused {quote}{why}")))
    };
    if refuses("permission denied") {
        return Some(Complaint::SignalDenied);
    }
    // EPERM instead of EACCES: a security module in BPF, or one that an agent loads.
    if refuses("operation not permitted") {
        return Some(Complaint::SignalRefused);
    }
    // CRI-O (server/container_stop.go) and runc (runtime-spec's hooks; libcontainer/configs, `Hooks.Run`).
    if has(&["failed to run post-stop hook for container", "error running poststop hook #"]) {
        return Some(Complaint::HookFailed);
    }
    // CRI-O (internal/oci/oci.go, `ValidateRuntimeHandler`) and containerd (internal/cri/server, `SandboxController`).
    let handlers = [
        "failed to find runtime handler ",
        "empty runtime path for runtime handler ",
        "failed to get sandbox controller by ",
        // containerd, of a handler whose shim was uninstalled (core/runtime/v2, `resolveRuntimePath`).
        " binary not installed ",
    ];
    // containerd before 2.0 (`getSandboxRuntime`), with the name in quotes between the two.
    let is_unset = has(&["no runtime for "]) && has(&[" is configured"]);
    if is_unset || has(&handlers) {
        return Some(Complaint::HandlerGone);
    }
    // By CRI-O before 1.14: `for container NAME in sandbox`.
    let networks = ["failed to destroy network for ", "cni failed to teardown pod"];
    if has(&networks) {
        return Some(Complaint::NetworkTeardown);
    }
    if let Some((kept, _)) = sandbox::busy(error) {
        return Some(match kept {
            Kept::NetworkNamespace => Complaint::NetnsBusy,
            Kept::SharedMemory => Complaint::ShmBusy,
            Kept::ImageVolume => Complaint::ImageVolumeBusy,
            Kept::Device => Complaint::DeviceBusy,
        });
    }
    let is_mount =
        has(&["failed to unmount target", "failed rootfs umount", "removing mount point"]);
    if is_mount && has(&["device or resource busy"]) {
        return Some(Complaint::RootfsBusy);
    }
    // CRI-O (internal/oci, `StopContainer`), with the command of its OCI runtime.
    if error.starts_with("Killing container ") && has(&[" failed: "]) && has(&[" kill "]) {
        return Some(Complaint::KillFails);
    }
    // containerd has learned of the end, and cannot finish it (internal/cri/server/events.go).
    if has(&["failed to handle container TaskExit event: "]) {
        return Some(Complaint::StateLost);
    }
    // containerd asks the shim for the state, and its own store for the container (core/metadata/containers.go).
    let is_unlisted =
        has(&["in namespace \"k8s.io\": not found", "in namespace \\\"k8s.io\\\": not found"]);
    if error.starts_with("get state for ") || is_unlisted {
        return Some(Complaint::StateLost);
    }
    let lost = [
        "ttrpc: closed",
        "container does not exist",
        // runc, about the container that it was called for.
        "\" does not exist",
        "process already finished: not found",
        "no running task found",
        "failed to connect to shim",
        "/containerd/s/",
    ];
    if has(&[
        "failed to stop",
        "failed to kill",
        "failed to delete",
        "StopContainer",
        "StopPodSandbox",
    ]) && has(&lost)
    {
        return Some(Complaint::StateLost);
    }
    // containerd's answer where the OCI runtime's `kill` fails (pkg/process/utils.go, `checkKillError`).
    if has(&["unknown error after kill: "]) {
        return Some(Complaint::KillFails);
    }
    // gRPC's and Go's text for a connection that fails.
    let refused = [": connect: no such file or directory", ": connect: connection refused"];
    let by_docker = has(&["Cannot connect to the Docker daemon at unix://"]);
    if by_docker || has(&["dialing: dial unix ", "dialing dial unix "]) && has(&refused) {
        return Some(Complaint::SocketRefused);
    }
    // These wait for a container, not for an answer.
    let is_late = has(&["deadline exceeded", "context canceled", "imed out", "timeout"]);
    if is_late && has(&["failed to stop sandbox container", "failed to stop container"]) {
        return Some(Complaint::ContainerStays);
    }
    let waits = [
        "an error occurs during waiting for container",
        // dockerd (daemon/stop.go and kill.go).
        "failed to exit within ",
        "did not receive an exit event",
        "stop timeout",
        // CRI-O (internal/oci, `WaitOnStopTimeout`).
        "waiting for container process to exit",
    ];
    if has(&waits) {
        return Some(Complaint::ContainerStays);
    }
    // The first two are kubelet's, about all pods.
    let silent = [
        "container runtime is down",
        "PLEG is not healthy",
        "DeadlineExceeded",
        "context deadline exceeded",
        "context canceled",
    ];
    has(&silent).then_some(Complaint::NoAnswer)
}

/// The same for the runtime's own log: a runtime that logs a timeout does answer.
pub(super) fn of_itself(error: &str) -> Option<Complaint> {
    // containerd informs plugins of a stop, and continues without them (internal/cri/server: `NRI failed to stop container`).
    if error.starts_with("NRI ") {
        return None;
    }
    match of_runtime(error) {
        Some(Complaint::NoAnswer) => Some(Complaint::ContainerStays),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As cited in the issues of containerd, CRI-O, k3s, microk8s, deckhouse, kubernetes and calico.
    #[test]
    fn an_error_that_the_runtime_ignores_is_none() {
        let plugin = "NRI failed to stop container: context deadline exceeded";
        assert_eq!(of_itself(plugin), None);
    }

    /// As in kata-containers src/runtime/virtcontainers, containerd core/runtime/v2 and core/metadata.
    #[test]
    fn a_stop_that_fails_is_no_wait_for_a_container() {
        let dead =
            "failed to stop container \"a\": failed to kill container \"a\": Dead agent: unknown";
        let table = [
            (dead, None),
            (
                "failed to stop container a: context deadline exceeded",
                Some(Complaint::ContainerStays),
            ),
            (
                "failed to stop sandbox \"a\": container \"a\" in namespace \"k8s.io\": not found",
                Some(Complaint::StateLost),
            ),
            (
                "runtime \"io.containerd.kata.v2\" binary not installed \"containerd-shim-kata-v2\": file does not exist",
                Some(Complaint::HandlerGone),
            ),
        ];
        for (error, complaint) in table {
            assert_eq!(of_runtime(error), complaint, "{error}");
        }
    }

    #[test]
    fn a_complaint_is_known_by_its_text() {
        let table = [
            (
                "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial \
                 unix /run/containerd/containerd.sock: connect: no such file or directory\"",
                Some(Complaint::SocketRefused),
            ),
            (
                "rpc error: code = Unknown desc = Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the \
                 docker daemon running?",
                Some(Complaint::SocketRefused),
            ),
            (
                "rpc error: code = Unknown desc = failed to run post-stop hook for container \"42dd\": set CPU load \
                 balancing: open /sys/fs/cgroup/cpuset/a/crio-42dd.scope/cpuset.sched_load_balance: no such file or \
                 directory",
                Some(Complaint::HookFailed),
            ),
            (
                "failed to delete container \"4eb9\": error running poststop hook #0: exit status 1, stdout: , stderr: x",
                Some(Complaint::HookFailed),
            ),
            ("a preStop hook failed", None),
            // amazon-eks-ami#693.
            (
                "Handler for POST /v1.40/containers/4eb9/stop returned error: cannot stop container: 4eb9: tried to kill \
                 container, but did not receive an exit event",
                Some(Complaint::ContainerStays),
            ),
            (
                "rpc error: code = Unknown desc = failed to get sandbox runtime: no runtime for \\\"kata\\\" is configured",
                Some(Complaint::HandlerGone),
            ),
            (
                "rpc error: code = Unknown desc = stop containers in parallel: failed to stop container 75ca: failed to find \
                 runtime handler nvidia from runtime list map[crun:0xc0005a2380 runc:0xc0005a2480]",
                Some(Complaint::HandlerGone),
            ),
            (
                "rpc error: code = NotFound desc = get container info: container \"75ca\" in namespace \"k8s.io\": not found",
                Some(Complaint::StateLost),
            ),
            (
                "failed to destroy network for sandbox \"cacb\": plugin type=\"calico\" failed (delete): stat \
                 /var/lib/calico/nodename: no such file or directory",
                Some(Complaint::NetworkTeardown),
            ),
            (
                "rpc error: code = Unknown desc = failed to destroy network for pod sandbox \
                 k8s_a_b_6236deba-fc5f-4915-817d-f8699a4accfc_0(1ae4): error removing pod a_b from CNI network",
                Some(Complaint::NetworkTeardown),
            ),
            (
                "NetworkPlugin cni failed to teardown pod \"nginx-3950648766-w59db_default\" network",
                Some(Complaint::NetworkTeardown),
            ),
            (
                "failed to kill container \"4eb9\": unknown error after kill: runc did not terminate \
                 successfully: exit status 1: unable to signal init: permission denied",
                Some(Complaint::SignalDenied),
            ),
            (
                "failed to kill container \"4eb9\": unknown error after kill: runc did not terminate sucessfully: \
                 container_linux.go:388: signaling init process caused \"permission denied\"",
                Some(Complaint::SignalDenied),
            ),
            (
                "Container 4eb9 failed to exit within 30 seconds of signal 15 - using the force",
                Some(Complaint::ContainerStays),
            ),
            (
                "failed to stop container \"dc2c\": failed to kill container: unknown error after kill: runc \
                 did not terminate sucessfully: container \"dc2c\" does not exist: container does not exist",
                Some(Complaint::StateLost),
            ),
            ("failed to kill container \"a\": ttrpc: closed: unknown", Some(Complaint::StateLost)),
            (
                "Killing container 4eb9 failed: `/usr/local/nvidia/toolkit/nvidia-container-runtime --root /run/nvidia \
                 --systemd-cgroup kill 4eb9 KILL` failed: time=\"2025-12-08T16:58:34Z\" level=error msg=\"container does not \
                 exist\"\n : exit status 1",
                Some(Complaint::KillFails),
            ),
            ("Killing container 4eb9 with a grace period", None),
            ("container runtime is down", Some(Complaint::NoAnswer)),
            (
                "[container runtime is down, PLEG is not healthy: pleg was last seen active 3m5s ago; threshold \
                 is 3m0s]",
                Some(Complaint::NoAnswer),
            ),
            (
                "failed to unmount target /run/x/rootfs: device or resource busy",
                Some(Complaint::RootfsBusy),
            ),
            (
                "rpc error: code = DeadlineExceeded desc = an error occurs during waiting for container \
                 \"0916\" to be killed: wait container \"0916\": context deadline exceeded",
                Some(Complaint::ContainerStays),
            ),
            (
                "rpc error: code = DeadlineExceeded desc = context deadline exceeded",
                Some(Complaint::NoAnswer),
            ),
            ("get state for aa: context deadline exceeded: unknown", Some(Complaint::StateLost)),
            (
                "failed to get sandbox ip: check network namespace closed: remove netns: unlinkat \
                 /var/run/netns/cni-45ff10e9-dcc1-b779-f1a1-3515a5d56e61: device or resource busy",
                Some(Complaint::NetnsBusy),
            ),
            (
                "failed to remove pod sandbox 921d: unlinkat \
                 /var/run/containers/storage/overlay-containers/921d/userdata/shm: device or resource busy",
                Some(Complaint::ShmBusy),
            ),
            (
                "failed to cleanup image mounts for sandbox \"921d\": failed to unmount image volume component \
                 \"/run/containerd/io.containerd.grpc.v1.cri/image-volumes/921d/dcff\": failed to unmount target \
                 /run/containerd/io.containerd.grpc.v1.cri/image-volumes/921d/dcff: device or resource busy",
                Some(Complaint::ImageVolumeBusy),
            ),
            (
                "failed to destroy network for sandbox \"a\": plugin type=\"x\" failed (delete): unlinkat \
                 /var/run/netns/cni-a: device or resource busy",
                Some(Complaint::NetworkTeardown),
            ),
            (
                "failed to destroy network for container web-1-infra in sandbox 921d: cni config uninitialized",
                Some(Complaint::NetworkTeardown),
            ),
            (
                "failed to kill container \"921d\": unknown error after kill: runc did not terminate successfully: exit \
                 status 1: unable to signal init: operation not permitted",
                Some(Complaint::SignalRefused),
            ),
            (
                "failed to stop container \"921d\": failed to kill container \"921d\": unknown error after kill: runc did \
                 not terminate sucessfully: container \"921d\" does not exist",
                Some(Complaint::StateLost),
            ),
            // triton-inference-server#3255.
            (
                "failed to stop container \"921d\": failed to kill container \"921d\": unknown error after kill: \
                 /usr/local/nvidia/toolkit/nvidia-container-runtime did not terminate successfully: exit status 1: error getting \
                 working directory: getwd: no such file or directory",
                Some(Complaint::KillFails),
            ),
            // urunc#716.
            (
                "Failed to handle backOff event &TaskExit{ContainerID:4ebe,ID:4ebe,Pid:312,} for 4ebe: failed to handle container \
                 TaskExit event: failed to stop container: unknown error after kill: /usr/bin/urunc did not terminate successfully: \
                 exit status 1: Incorrect Usage: flag provided but not defined: -all",
                Some(Complaint::StateLost),
            ),
            ("failed to get sandbox runtime", None),
            ("", None),
        ];
        for (error, complaint) in table {
            assert_eq!(of_runtime(error), complaint, "{error}");
            let own = complaint.map(|own| match own {
                Complaint::NoAnswer => Complaint::ContainerStays,
                own => own,
            });
            assert_eq!(of_itself(error), own, "{error}");
        }
    }
}
