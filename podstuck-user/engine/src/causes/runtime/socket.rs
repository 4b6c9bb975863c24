//! A runtime that runs and listens on a socket whose file was removed or replaced, so that no client reaches it.

use std::path::PathBuf;

use crate::{
    causes::{
        runtime::{tracker::Suspect, verdict},
        shared::unit,
    },
    ids,
    model::{
        evidence::Source,
        path::{in_run, safe, safe_path},
        runtime::Runtime,
    },
    verdict::Draft,
};

/// The socket and the reason in the error of a failed connection, as Go writes it (`net.OpError`).
fn refused(error: &str) -> Option<(PathBuf, &str)> {
    let (_, rest) = error.split_once("dial unix ")?;
    let (path, why) = rest.split_once(": connect: ")?;
    let why = ["no such file or directory", "connection refused"]
        .into_iter()
        .find(|known| why.starts_with(known))?;
    path.starts_with('/').then(|| (path.into(), why))
}

/// The runtime that listens on the socket in question according to the kernel, the socket, and the error of the
/// connection.
pub(super) fn unreached<'a>(suspect: &'a Suspect<'_>) -> Option<(&'a Runtime, PathBuf, &'a str)> {
    let (path, why) = refused(&suspect.logged.said.text)?;
    let is_its =
        |runtime: &&Runtime| runtime.sockets.iter().any(|socket| in_run(socket) == in_run(&path));
    let runtime = suspect.sample.runtimes.iter().find(is_its)?;
    Some((runtime, path, why))
}

pub(super) fn words(draft: &mut Draft, suspect: &Suspect<'_>) {
    let Some((runtime, path, why)) = unreached(suspect) else { return };
    let (path, name) = (safe_path(&path), runtime.component.name());
    draft.held_by(format!("{name} (pid {})", runtime.pid));
    draft.fact(
        format!("{name} (pid {}) runs and has a socket bound to {path}", runtime.pid),
        Source::proc("/proc/*/net/unix"),
    );
    draft.explanation = format!(
        "kubelet connects to {name} at {path}, and the connection fails: {why}. {name} runs and listens there, so \
         something else removed or replaced its socket file after it was started. A restart creates the file again; \
         until then, kubelet stops and removes no pod of this node."
    );
    match runtime.group.as_deref().and_then(unit::of) {
        Some(unit) => {
            draft.remedy(unit::restart(unit), verdict::RESTART);
        }
        None => {
            draft.advice(
                "restart the container runtime: no command is given, because its service was not seen",
                verdict::RESTART,
            );
        }
    }
    let error = safe(why.as_bytes()).into_owned();
    draft.rule_out(ids::RUNTIME_DOWN, "its process runs and listens");
    draft.rule_out(ids::RUNTIME_HANG, format!("connecting fails at once: {error}"));
    draft.rule_out(
        ids::SHIM_OR_CONTAINERD_STATE_LOST,
        "kubelet cannot connect to the runtime at all",
    );
    draft.doubt("whether the socket file is still missing: the log shows only past attempts");
}
