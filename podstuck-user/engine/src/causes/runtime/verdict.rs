//! Findings about pods that a runtime cannot end, from log lines. A log line alone is never more than likely: it held
//! when it was written.

use std::collections::BTreeSet;

use crate::{
    cause::Cause,
    causes::{
        runtime::{
            causes::{
                CNI_TEARDOWN_FAILED, IMAGE_VOLUME_BUSY, RUNTIME_HANGS, SHIM_HANGS, SIGNAL_DENIED,
                SOCKET_GONE, STATE_LOST,
            },
            device, handler, hook, network, sandbox, shim, socket,
            suspect::Suspect,
            unresponsive,
        },
        shared::{blamed, repeated::Repeated, unit},
    },
    command::{NAME, Process, Step, has_ended, if_same, kill},
    ids,
    model::{
        chain::Who,
        container::ContainerName,
        evidence::Source,
        finding::Severity,
        identity::{Component, Pod},
        path::{clip, safe, safe_path},
        pod_group::PodGroup,
        runtime::{Daemon, Differs, OutOfStep, Runtime, Shim},
        said::Complaint,
        shell::word,
        time::Monotonic,
    },
    query::SocketPath,
    tracker::TrackerId,
    verdict::{Draft, times},
};

/// Processes named.
const NAMED: usize = 6;

/// The risk of ending a shim.
pub(super) const KILL_SHIM: &str = "low for a pod that is to be deleted: the runtime ends all its containers and cleans up after the shim";

pub(super) const NODES_OWN_KERNEL: &str = "no shim of the pod runs a sandbox with its own kernel";
const OTHERS: &str = "requests that are not about this pod are not answered either";
pub(super) const NO_HALTED_SHIM: &str = "no shim of the pod is stopped or waits in the kernel";

/// The finding; `None` for a complaint that another rule handles.
pub(crate) fn draft(suspect: &Suspect<'_>) -> Option<Draft> {
    let halted = suspect.halted_shim().is_some() || suspect.unreaped.is_some();
    let (cause, words): (&'static Cause, fn(&mut Draft, &Suspect<'_>)) = match suspect.complaint {
        Complaint::StateLost | Complaint::ContainerStays | Complaint::NoAnswer if halted => {
            (&SHIM_HANGS, shim_hangs)
        }
        // The shim learns of the exit only after the tracer; the wait chain names the tracer.
        Complaint::StateLost | Complaint::ContainerStays | Complaint::NoAnswer
            if suspect.has_traced() =>
        {
            return None;
        }
        // A CRI-O that answers no request at all writes no record either.
        Complaint::StateLost | Complaint::ContainerStays | Complaint::NoAnswer
            if suspect.stale.is_some() && suspect.of_node.is_none() =>
        {
            (&STATE_LOST, lost)
        }
        Complaint::StateLost | Complaint::ContainerStays if silent_shim(suspect).is_some() => {
            (&SHIM_HANGS, shim_is_silent)
        }
        Complaint::SocketRefused => {
            socket::unreached(&suspect.logged.said, suspect.sample)?;
            // The failure is over.
            if suspect.socket == Some(SocketPath::Own) {
                return None;
            }
            (&SOCKET_GONE, socket::words)
        }
        Complaint::NetworkTeardown => (&CNI_TEARDOWN_FAILED, network::words),
        Complaint::SignalDenied => (&SIGNAL_DENIED, signal),
        Complaint::StateLost | Complaint::ContainerStays => (&STATE_LOST, lost),
        Complaint::NoAnswer => (&RUNTIME_HANGS, hangs),
        Complaint::ListFails => (&RUNTIME_HANGS, unresponsive::list_fails),
        Complaint::NetnsBusy | Complaint::ShmBusy => {
            (sandbox::cause(&suspect.logged.said)?, sandbox::words)
        }
        Complaint::HookFailed => (&hook::HOOK_FAILS, hook::words),
        Complaint::HandlerGone => (&handler::HANDLER_GONE, handler::words),
        Complaint::ImageVolumeBusy => (&IMAGE_VOLUME_BUSY, sandbox::image_volume),
        Complaint::DeviceBusy => (&device::DEVICE_BUSY, device::words),
        _ => return None,
    };
    let mut draft = about(cause, suspect);
    lacks_again(&mut draft, suspect);
    words(&mut draft, suspect);
    Some(draft)
}

/// Adds what is missing if the log has only one line.
pub(super) fn lacks_again(draft: &mut Draft, suspect: &Suspect<'_>) {
    let logged = suspect.logged;
    let same = suspect.of_node.filter(|of_node| of_node.said.component == logged.said.component);
    if logged.lines + same.map_or(0, |of_node| of_node.lines) < 2 {
        draft.lacks("that it is logged again: a single failure may be transient");
    }
}

/// The finding without explanation and remedies.
pub(super) fn about(cause: &'static Cause, suspect: &Suspect<'_>) -> Draft {
    let (pod, logged) = (suspect.pod, suspect.logged);
    let (directory, at) = (Some(pod.directory.as_path()), suspect.sample.at);
    let mut draft = Draft::about_pod(TrackerId::RuntimeSays, cause, named(suspect), directory, at);
    (draft.first, draft.last, draft.count) = (logged.first, logged.last, logged.lines);
    draft.blocks_deletion = Some(true);
    draft.severity = Severity::Critical;
    says(&mut draft, logged);
    draft
}

/// The pod, with its name if the sample has it.
fn named(suspect: &Suspect<'_>) -> Pod {
    let of_group = suspect.group().and_then(|group| group.target.pod.clone());
    let known = of_group.filter(|known| known.uid == suspect.pod.uid);
    known.unwrap_or_else(|| suspect.pod.named())
}

fn says(draft: &mut Draft, logged: &Repeated) {
    let said = &logged.said;
    let who = match said.component {
        Component::Other => "the kernel",
        component => component.name(),
    };
    let last =
        format!("{who} logged, {}, last at {:.0}: {}", times(logged.lines), said.at, said.text);
    draft.fact_since(last, Source::Log(said.source.clone()), logged.first);
}

/// What is left of the pod's processes, by its control groups.
pub(super) fn processes(draft: &mut Draft, suspect: &Suspect<'_>) {
    let words = match suspect.pod.populated {
        Some(true) if suspect.group().is_some_and(PodGroup::is_moved) => {
            "processes of the pod are left outside its control groups"
        }
        Some(true) => "processes of the pod are left in its control groups",
        Some(false) => "no process of the pod is left in its control groups",
        None => return,
    };
    draft.fact(words, Source::proc("control groups"));
}

fn signal(draft: &mut Draft, suspect: &Suspect<'_>) {
    processes(draft, suspect);
    if suspect.pod.populated.is_none() {
        draft.lacks("that processes of the pod are left");
    }
    match suspect.of_node {
        Some(logged) => says(draft, logged),
        None => draft.doubt(
            "which security module refuses: AppArmor would log apparmor=\"DENIED\" operation=\"signal\" in the \
             kernel's log",
        ),
    }
    draft.explanation = "runc's kill(2) of the container failed with EACCES: a security module denied the signal. \
        With AppArmor 4, runc has its own profile, and the containers' profile of an older runtime accepts no \
        signals from runc. The container never receives the signal to end, and kubelet retries."
        .into();
    let tasks = suspect.group().map(|group| group.tasks.as_slice()).unwrap_or_default();
    for task in tasks.iter().take(NAMED) {
        let act = format!("kill -KILL {}", task.pid);
        let command = if_same("kill", Process::thread(task), act)
            .so(", which the runtime may not signal")
            .verified_by(has_ended(task.pid));
        draft.remedy(
            command,
            "low: the container is to end. Use a root shell that AppArmor does not confine",
        );
    }
    draft.remedy(
        Step::new(
            "show which AppArmor profile refused the signal",
            "journalctl --dmesg --grep 'operation=\"signal\"'",
        ),
        "none",
    );
    draft.remedy(
        Step::new(
            "unload runc's AppArmor profile, which keeps it from signalling containers",
            "apparmor_parser --remove /etc/apparmor.d/runc",
        ),
        "runc runs unconfined until the profile is loaded again; a newer runtime fixes the denial",
    );
    let knows_tasks = suspect.group().is_some();
    if knows_tasks && !tasks.iter().any(|task| task.is_unkillable()) {
        let fact = "no process of the pod has SIGKILL pending in the kernel";
        draft.rule_out(ids::DSTATE_PROCESS, fact);
        draft.rule_out(ids::GPU_DRIVER_DSTATE, fact);
    }
    if suspect.of_node.is_some() {
        draft.doubt("whether the line in the kernel's log is about this pod's container");
    }
}

/// Names the runtime, with its process where the node has one runtime, as what must act.
pub(super) fn must_act(draft: &mut Draft, suspect: &Suspect<'_>, must: &'static str) {
    let who = runtime(suspect).map(Runtime::who);
    draft.held_by(who.unwrap_or_else(|| Who::component("the container runtime", None)));
    draft.must = Some(must);
}

fn lost(draft: &mut Draft, suspect: &Suspect<'_>) {
    match oci_runtime(&suspect.logged.said.text) {
        Some(program) => oci_fails(draft, program, &suspect.logged.said.text),
        None => {
            must_act(draft, suspect, "accept that the container has ended");
            if let Some(way_out) = blamed::way_out(&suspect.logged.said.text) {
                draft.advice(way_out, "none");
            }
        }
    }
    match (suspect.container(), suspect.has_ended()) {
        (Some(id), Some(true)) => {
            draft.fact(
                format!("no process of container {id} is left"),
                Source::proc("control groups"),
            );
        }
        (None, Some(true)) => processes(draft, suspect),
        _ => draft.lacks("that no process of the container is left"),
    }
    let shim = unheard(suspect);
    if let Some((case, since)) = suspect.stale {
        stale(draft, case, since);
    }
    let shim = shim.or_else(|| suspect.shim().filter(|_| is_unfinished(suspect)));
    draft.explanation = match shim {
        _ if is_unfinished(suspect) => "The runtime has learned that the container has ended, and tries to clean up after it \
            through the shim, which calls the OCI runtime: that fails at each attempt. Until it succeeds, the runtime lists the \
            container as running, so that each attempt to stop it times out.",
        _ if suspect.stale.is_some() => "CRI-O lists the container as running, but its process has ended, and so has \
            conmon, from which CRI-O learns of the end. Each attempt to stop the container waits until it times out. \
            CRI-O examines its containers again only when it starts.",
        Some(_) => "The container has ended, and its shim is alive, but the runtime still waits for the end: the shim \
            has not reported it, or the runtime has missed the report, as it can while it restarts. Each attempt to \
            stop the container waits until it times out, and kubelet unmounts nothing until the container is stopped.",
        None => "The runtime still lists a container whose task, shim or own record no longer exists: each attempt to \
            stop or remove it fails in the same way, and kubelet keeps the pod until it is stopped and removed.",
    }
    .into();
    if let Some(shim) = shim {
        kill_unheard(draft, shim);
    }
    const FORGET: &str = "low if the container has no process left: the runtime forgets the task, and kubelet's next \
        attempt continues";
    let bundle = suspect.bundle();
    if let Some((namespace, id)) = bundle {
        let name = clip(&safe(id.as_bytes()), NAME);
        let (namespace, id) = (word(namespace), word(id));
        let forget = format!("ctr --namespace {namespace} task delete --force {id}");
        draft.remedy(Step::new(format!("have containerd forget task {name}"), forget), FORGET);
    }
    // A task without a shim is in no list but the runtime's own, which a restart makes again.
    restart(draft, suspect);
    // systemd removes the group of each container that has ended, so that its shim may still have to tell.
    let waits = suspect.complaint == Complaint::ContainerStays;
    if let Some(shim) = suspect.shim().filter(|_| waits && shim.is_none()) {
        kill_unheard(draft, shim);
    }
    let is_containerds = runtime(suspect).is_none_or(|it| it.component == Component::Containerd);
    if bundle.is_none() && suspect.container().is_some() && is_containerds {
        draft.advice(
            "have the runtime forget the task of that container (`ctr --namespace k8s.io task delete \
             --force`, with containerd): no command is given, because only a log names the container",
            FORGET,
        );
    }
    let is_left = suspect.sample.rootfs.iter().any(|rootfs| rootfs.pod == suspect.pod.uid);
    match (is_left, suspect.is_explained) {
        (false, _) => draft.rule_out(
            ids::SHIM_ROOTFS_BUSY,
            "no root file system of an ended container of the pod is mounted",
        ),
        (true, false) => draft.rule_out(
            ids::SHIM_ROOTFS_BUSY,
            "no process holds the root file system of an ended container that is left",
        ),
        (true, true) => {}
    }
    if suspect.has_ended() == Some(true) {
        draft.rule_out(ids::CONTAINER_NOT_KILLED, "no process of the container is left");
        draft.rule_out(ids::ZOMBIE_NOT_REAPED, "no process of the container is left");
    }
    draft.rule_out(ids::CNI_TEARDOWN_FAILED, "the error is about a container, not its network");
    draft.rule_out(ids::OCI_HOOK_FAILS, "the error is about a container, not a hook");
    draft.rule_out(
        ids::RUNTIME_HANDLER_GONE,
        "the error is about a container, not a runtime's handler",
    );
    if suspect.complaint == Complaint::NoAnswer {
        draft.rule_out(ids::RUNTIME_DOWN, "its process exists");
        let fact = "the request timed out: the connection was not refused";
        draft.rule_out(ids::RUNTIME_SOCKET_GONE, fact);
        draft.rule_out(ids::SHIM_HUNG, "no conmon of the container is alive");
    } else {
        draft.rule_out(ids::RUNTIME_HANG, "the runtime answers with an error");
        draft.rule_out(ids::RUNTIME_DOWN, "the runtime answers with an error");
        draft.rule_out(ids::RUNTIME_SOCKET_GONE, "the runtime answers with an error");
        draft.rule_out(ids::SHIM_HUNG, NO_HALTED_SHIM);
    }
    let of_pod =
        |name: &ContainerName| name.pod.as_ref().is_some_and(|pod| pod.uid == suspect.pod.uid);
    let mut of_docker =
        suspect.sample.out_of_step.iter().filter(|it| it.runtime == Component::Dockerd);
    if !of_docker.any(|it| of_pod(&it.container)) {
        draft.rule_out(
            ids::DOCKER_CONTAINERD_STATE_DESYNC,
            "no record of dockerd contradicts the state of a container of the pod",
        );
    }
    match suspect.has_own_kernel() {
        Some(false) => draft.rule_out(ids::SANDBOX_NOT_STOPPED, NODES_OWN_KERNEL),
        None if suspect.pod.populated == Some(false) => {
            draft.rule_out(ids::SANDBOX_NOT_STOPPED, "no process of the pod is left");
        }
        _ => {}
    }
    if suspect.stale.is_some() {
        return;
    }
    if is_unfinished(suspect) {
        return;
    }
    draft.doubt(match shim {
        Some(_) => "whether the shim has not reported the end, or the runtime has missed it: podstuck asks neither",
        None => "whether the shim is unresponsive or gone: podstuck does not query it",
    });
}

/// CRI-O's record of a container whose process and conmon are gone.
fn stale(draft: &mut Draft, case: &OutOfStep, since: Monotonic) {
    let Differs::SaysUp(pid) = case.what else { return };
    let record = Source::file(safe_path(&case.directory.join("state.json")));
    let name = clip(&safe(case.container.id.as_bytes()), NAME);
    draft.fact(format!("CRI-O lists container {name} as running, with process {pid}"), record);
    draft.fact_since(
        format!("process {pid} does not exist, and no conmon of the container is alive"),
        Source::proc("/proc/*/cmdline"),
        since,
    );
}

/// The shim of a container that has ended, while the runtime waits for the end.
fn unheard<'a>(suspect: &'a Suspect<'_>) -> Option<&'a Shim> {
    let waits = suspect.complaint == Complaint::ContainerStays;
    if !waits || suspect.has_own_kernel() != Some(false) || suspect.has_ended() != Some(true) {
        return None;
    }
    // Of a container whose control group was removed, the shim has reported the end, or is gone.
    let (shim, container) = (suspect.shim()?, suspect.container()?);
    let is_open = suspect.group()?.containers.iter().any(|id| id == container);
    (is_open || shim.container.as_deref() == Some(container)).then_some(shim)
}

/// Whether the runtime has learned of the container's end, and fails to clean up after it.
fn is_unfinished(suspect: &Suspect<'_>) -> bool {
    suspect.logged.said.text.contains("failed to handle container TaskExit event: ")
}

fn oci_fails(draft: &mut Draft, program: &str, error: &str) {
    let name = clip(&safe(program.as_bytes()), NAME);
    draft.held_by(Who::object(format!("the OCI runtime {name}")));
    draft.must = Some("clean up after the container without an error");
    if let Some(way_out) = blamed::way_out(error) {
        draft.advice(way_out, "none; the runtime tries again");
        return;
    }
    draft.advice(
        "repair the OCI runtime, as its error says, or install a version that has what the error names as missing: the \
         runtime tries again",
        "none",
    );
}

/// The OCI runtime's program that fails, by the error of its caller (containerd/go-runc, `runOrError`).
fn oci_runtime(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("failed to handle container TaskExit event: ")?;
    let (before, _) = rest.split_once(" did not terminate suc")?;
    let path = before.rsplit_once(' ').map_or(before, |(_, path)| path);
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    (!name.is_empty()).then_some(name)
}

/// Adds the end of the shim, which makes the runtime report the end of its containers itself (containerd
/// `core/runtime/v2`, cleanupAfterDeadShim).
fn kill_unheard(draft: &mut Draft, shim: &Shim) {
    alive(draft, shim);
    let process = Process::new(shim.pid, Some(shim.started), Some(&shim.comm));
    draft.remedy(
        kill("kill -KILL", process).so(", the shim of a container that has ended"),
        KILL_SHIM,
    );
}

/// Names a shim that is alive.
fn alive(draft: &mut Draft, shim: &Shim) -> Who {
    let Shim { pid, state, .. } = shim;
    let who = shim.who();
    draft.fact(
        format!("{who}, the pod's shim, is alive: state {state}"),
        Source::proc(format!("/proc/{pid}/stat")),
    );
    who
}

fn shim_hangs(draft: &mut Draft, suspect: &Suspect<'_>) {
    let Some(halted) = suspect.halted_shim() else {
        if let Some(collects) = suspect.unreaped {
            shim::does_not_collect(draft, collects);
        }
        return;
    };
    shim::tell(draft, halted, "the parent of the pod's processes");
    draft.explanation =
        "The runtime asks the pod's shim to end its containers, and the shim does not answer: it cannot run. \
         Everything else on the node continues."
            .into();
    shim::ways_out(
        draft,
        halted,
        "low for a pod that is to be deleted: the runtime ends all its containers and cleans up after the shim. A \
         shim that waits in the kernel takes no signal until that wait ends",
    );
    shim::rule_out(draft);
}

/// The pod's shim, if it does not answer the runtime in time about a container that has ended.
fn silent_shim<'a>(suspect: &'a Suspect<'_>) -> Option<&'a Shim> {
    // A runtime that waits for a container's end has the shim's answer already.
    let is_its = |text: &str| {
        let asks =
            ["failed to stop container", "failed to kill container", "failed to delete task"];
        let asks_state = text.starts_with("get state for ");
        text.contains("deadline exceeded")
            && (asks_state || asks.iter().any(|words| text.contains(words)))
    };
    let own_kernel = suspect.has_own_kernel() != Some(false);
    if own_kernel || suspect.has_ended() != Some(true) || !is_its(&suspect.logged.said.text) {
        return None;
    }
    suspect.shim()
}

fn shim_is_silent(draft: &mut Draft, suspect: &Suspect<'_>) {
    let Some(shim) = silent_shim(suspect) else { return };
    let who = alive(draft, shim);
    draft.held_by(who.clone());
    draft.must = Some(shim::MUST);
    if let Some(id) = suspect.container() {
        draft.fact(format!("no process of container {id} is left"), Source::proc("control groups"));
    }
    draft.explanation = format!(
        "The runtime asks the pod's shim, {who}, about a container that has no process left, and receives no answer in \
         time. The shim runs but has not reported the container's end: it is blocked internally, or gets so little CPU that \
         it answers too late. The runtime waits for the shim, and kubelet waits for the runtime."
    );
    let process = Process::new(shim.pid, Some(shim.started), Some(&shim.comm));
    let step = kill("kill -KILL", process).so(", which does not answer the runtime");
    draft.remedy(step, KILL_SHIM);
    draft.advice(
        "where the shim is short of CPU (`cat /proc/pressure/cpu`, and `cpu.stat` of its control group), give it CPU, or \
         give the runtime more time for its answers (`[timeouts]` in containerd's configuration, read at its start): a \
         later attempt then succeeds",
        "none",
    );
    restart(draft, suspect);
    shim::rule_out(draft);
    draft.doubt("what the shim waits for: only the runtime's log says that it does not answer");
}

/// Adds a restart of the service that started the pod's shims, or else of the node's only runtime.
pub(super) fn restart(draft: &mut Draft, suspect: &Suspect<'_>) {
    let shims = suspect.group().map(|group| group.shims.as_slice()).unwrap_or_default();
    let mut units: BTreeSet<&str> =
        shims.iter().filter_map(|shim| unit::of(shim.group.as_deref()?)).collect();
    if shims.is_empty() {
        units.extend(runtime(suspect).and_then(|runtime| unit::of(runtime.group.as_deref()?)));
    }
    restart_unit(draft, units.first().filter(|_| units.len() == 1).copied());
}

/// Adds a restart of the runtime's service, if that is known.
pub(super) fn restart_unit(draft: &mut Draft, unit: Option<&str>) {
    draft.remedies.push(unit::restart_of("the container runtime", unit, unit::RUNTIME_RISK));
}

/// The node's runtime, if there is exactly one.
fn runtime<'a>(suspect: &Suspect<'a>) -> Option<&'a Runtime> {
    match &suspect.sample.runtimes[..] {
        [runtime] => Some(runtime),
        _ => None,
    }
}

/// The runtime's log has the request, and no result.
fn silent(draft: &mut Draft, runtime: &Runtime, since: Monotonic) {
    let name = runtime.component.name();
    draft.held_by(runtime.who());
    draft.must = Some("answer kubelet");
    draft.fact_since(
        format!(
            "{name} logged the request to stop the pod's sandbox, and neither its success nor its failure"
        ),
        Source::Log(format!("log of {name}")),
        since,
    );
    draft.rule_out(ids::RUNTIME_DOWN, "its process exists");
}

fn hangs(draft: &mut Draft, suspect: &Suspect<'_>) {
    processes(draft, suspect);
    if suspect.is_one_of_all() {
        must_act(draft, suspect, "answer kubelet");
        if let Some(word) = suspect.to_go {
            word.tell(draft);
        }
        draft.explanation =
            "kubelet asks the runtime about its containers and receives no answer. Until it does, \
            kubelet stops and removes no pod of this node."
                .into();
    } else {
        match suspect.of_node {
            Some(logged) => {
                says(draft, logged);
                draft.rule_out(ids::RUNTIME_COMMAND_HUNG, OTHERS);
            }
            None => match suspect.silent.zip(runtime(suspect)) {
                Some((since, runtime)) => silent(draft, runtime, since),
                None => draft.lacks("that the runtime answers no other request either"),
            },
        }
        draft.explanation = "kubelet asks the runtime to stop the pod and receives no answer in time. The known \
            state of the pod's processes and mounts does not explain that, so the runtime itself may be blocked."
            .into();
    }
    if suspect.is_one_of_all() {
        draft.rule_out(ids::RUNTIME_COMMAND_HUNG, OTHERS);
    }
    draft.remedy(
        Step::new("list the pods of the runtime", "crictl --timeout 10s pods"),
        "none; if this fails in the same way, the runtime answers no request",
    );
    draft.advice(
        "send SIGUSR1 to the runtime's own process (containerd, dockerd, crio): no command is given, because \
         any process may have that name",
        "none; the runtime writes what each of its threads waits for to its log, or to a file that the log names",
    );
    restart(draft, suspect);
    if suspect.sample.is_full() == Some(false) {
        draft.rule_out(
            ids::DISK_FULL_RUNTIME,
            "the disks of kubelet and the runtimes have free space",
        );
    }
    draft.rule_out(
        ids::SHIM_OR_CONTAINERD_STATE_LOST,
        "the runtime does not answer, not even with an error",
    );
    draft.rule_out(
        ids::RUNTIME_SOCKET_GONE,
        "the request timed out: the connection was not refused",
    );
    draft.rule_out(ids::DOCKER_CONTAINERD_STATE_DESYNC, "the runtime does not answer at all");
    if let Some(group) = suspect.group() {
        draft.rule_out(ids::SHIM_HUNG, NO_HALTED_SHIM);
        let mut daemons = group.shims.iter().flat_map(|shim| suspect.sample.daemons_of(shim));
        if daemons.any(|daemon| matches!(daemon, Daemon::Runs(_))) {
            draft.rule_out(ids::RUNTIME_DOWN, "the daemon of the pod's shim runs");
        }
    }
    // A runtime that waits for a shim logs an error when kubelet gives up.
    if suspect.silent.is_none() || suspect.is_one_of_all() {
        draft.doubt(
            "whether the runtime itself is blocked, or one container's shim that it waits for",
        );
    }
}
