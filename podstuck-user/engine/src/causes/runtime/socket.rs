//! A runtime that runs and that no client reaches: its socket's file was removed or replaced, or it does not listen yet.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    causes::{
        runtime::{suspect::Suspect, verdict},
        shared::unit,
    },
    command::{Process, Step, kill},
    ids,
    model::{
        evidence::Source,
        identity::Component,
        node::NodeSample,
        path::{in_run, safe, safe_path},
        runtime::Runtime,
        said::Said,
        time::Monotonic,
        waiting::Waiting,
    },
    query::{FindSocketPath, Query, SocketPath},
    tracker::{Context, TrackerId},
    verdict::Draft,
};

/// Time between two questions about a path.
const AGAIN: Duration = Duration::from_secs(5);

/// What the paths of the runtimes' sockets name, by the runtime's process and the path.
#[derive(Default)]
pub(super) struct SocketFiles(BTreeMap<(u32, PathBuf), Look>);

/// The last answer, and when the question was asked.
struct Look {
    asked: Monotonic,
    found: Option<SocketPath>,
}

impl SocketFiles {
    /// Asks what a path names from which a client gets an error.
    pub(super) fn ask(
        &mut self,
        tracker: TrackerId,
        (target_id, said): (u64, &Said),
        sample: &NodeSample,
    ) -> Option<Query> {
        let Unreached { runtime, path, listens: true, .. } = unreached(said, sample)? else {
            return None;
        };
        let (owner, key) = (runtime.pid, (runtime.pid, path.clone()));
        let last = self.0.get(&key);
        if last.is_some_and(|last| sample.at.since(last.asked) < AGAIN) {
            return None;
        }
        let found = last.and_then(|last| last.found);
        self.0.insert(key, Look { asked: sample.at, found });
        // The path means what it means to kubelet.
        let client = sample.kubelets.first().copied().unwrap_or(owner);
        let wants = FindSocketPath { client, owner, path: path.clone() }.into();
        Some(Query { tracker, target_id, path, wants })
    }

    pub(super) fn answered(&mut self, asked: &FindSocketPath, found: Option<SocketPath>) {
        if let Some(look) = self.0.get_mut(&(asked.owner, asked.path.clone())) {
            look.found = found;
        }
    }

    /// What the path in a client's error names now.
    pub(super) fn of(&self, said: &Said, sample: &NodeSample) -> Option<SocketPath> {
        let Unreached { runtime, path, .. } = unreached(said, sample)?;
        self.0.get(&(runtime.pid, path))?.found
    }
}

/// The socket and the reason in the error of a failed connection, as Go writes it (`net.OpError`), or Docker's client
/// (client/errors.go, `ErrorConnectionFailed`), which gives no reason.
fn refused(error: &str) -> Option<(PathBuf, &str)> {
    if let Some((_, rest)) = error.split_once("Cannot connect to the Docker daemon at unix://") {
        let (path, _) = rest.split_once(". Is the docker daemon running")?;
        return path.starts_with('/').then(|| (path.into(), "the client cannot connect"));
    }
    let (_, rest) = error.split_once("dial unix ")?;
    let (path, why) = rest.split_once(": connect: ")?;
    let why = ["no such file or directory", "connection refused"]
        .into_iter()
        .find(|known| why.starts_with(known))?;
    path.starts_with('/').then(|| (path.into(), why))
}

/// A runtime that a client cannot connect to.
pub(super) struct Unreached<'a> {
    runtime: &'a Runtime,
    /// The socket in question.
    path: PathBuf,
    /// The error of the connection.
    why: &'a str,
    /// Whether the runtime listens there according to the kernel; else it listens nowhere.
    listens: bool,
}

/// The runtime that listens on the socket in question, or the only one of that name, if that listens nowhere.
pub(super) fn unreached<'a>(said: &'a Said, sample: &'a NodeSample) -> Option<Unreached<'a>> {
    let (path, why) = refused(&said.text)?;
    let runtimes = &sample.runtimes;
    let is_its =
        |runtime: &&Runtime| runtime.sockets.iter().any(|socket| in_run(socket) == in_run(&path));
    if let Some(runtime) = runtimes.iter().find(is_its) {
        return Some(Unreached { runtime, path, why, listens: true });
    }
    let name = path.file_name()?.to_str()?;
    let component = match name {
        "containerd.sock" => Component::Containerd,
        "crio.sock" => Component::CriO,
        _ => return None,
    };
    let starts =
        |it: &&Runtime| it.component == component && it.sockets.is_empty() && it.halted.is_none();
    let mut named = runtimes.iter().filter(starts);
    let (Some(runtime), None) = (named.next(), named.next()) else { return None };
    Some(Unreached { runtime, path, why, listens: false })
}

/// A runtime whose start waits for the lock on a file of its data, which another process has: often the same program, which
/// was started earlier.
pub(crate) struct Locked<'a> {
    starts: &'a Runtime,
    file: Option<&'a Path>,
    holder: &'a Waiting,
}

/// The runtime that starts in the place of the one that a client cannot connect to, if it waits for a lock.
pub(super) fn locked<'a>(
    context: &Context<'a>,
    said: &Said,
    sample: &'a NodeSample,
) -> Option<Locked<'a>> {
    let component = unreached(said, sample)?.runtime.component;
    let mut all = sample.runtimes.iter();
    all.find_map(|starts| {
        let is_new = starts.component == component && starts.sockets.is_empty();
        let (file, holder) = context.waits.lock_of(starts.pid, context.clock).filter(|_| is_new)?;
        Some(Locked { starts, file, holder })
    })
}

/// Names the process that has the lock for which the runtime's start waits, and its end.
fn wait_for_lock(draft: &mut Draft, locked: &Locked<'_>, path: &str) {
    let Locked { starts, file, holder } = locked;
    let (who, old) = (starts.who(), holder.who());
    let file =
        file.map_or_else(|| "a file of its data".to_owned(), |it| safe_path(it).into_owned());
    draft.held_by(old.clone().and(&format!(", which has the lock on {file}")));
    draft.must = Some("release the lock for which the runtime's start waits");
    draft.fact(
        format!("{who} runs, listens on no socket, and has {file} open without its lock, which {old} has"),
        Source::proc("/proc/locks, /proc/*/fdinfo"),
    );
    draft.explanation = format!(
        "kubelet cannot connect to {path}. {who} is to serve it, and listens nowhere before it has opened its database: it \
         waits for the lock on {file}, which {old} has had since before. No request reaches {old}. As soon as {old} has \
         ended, {who} takes the lock and finishes its start; until then, kubelet stops and removes no pod of this node."
    );
    let program = holder.command.split(' ').next();
    let process = Process::new(holder.pid, Some(holder.started), program);
    draft.remedy(
        kill("kill -TERM", process).so(", for whose lock the runtime's start waits"),
        "low: containers keep running under their shims, which the runtime finds again",
    );
}

pub(super) fn words(draft: &mut Draft, suspect: &Suspect<'_>) {
    let found = unreached(&suspect.logged.said, suspect.sample);
    let Some(Unreached { runtime, path, why, listens }) = found else { return };
    let file = suspect.socket.and_then(|it| names(it, &path)).filter(|_| listens);
    let (path, name) = (safe_path(&path), runtime.component.name());
    let who = runtime.who();
    if let Some(locked) = &suspect.locked {
        if let Some(file) = &file {
            draft.fact(file, Source::Look("stat, sock_diag"));
        }
        wait_for_lock(draft, locked, &path);
        rule_out(draft, why, listens);
        return;
    }
    draft.held_by(who.clone());
    let unit = runtime.group.as_deref().and_then(unit::of);
    let does = if listens {
        format!("has a socket bound to {path}")
    } else {
        "listens on no socket".into()
    };
    draft.fact(format!("{who} runs and {does}"), Source::proc("/proc/*/net/unix"));
    if let Some(file) = &file {
        draft.fact(file, Source::Look("stat, sock_diag"));
    }
    draft.explanation = if listens {
        format!(
            "kubelet connects to {name} at {path}, and the connection fails: {why}. {name} runs and listens there, \
             so something else removed or replaced its socket file after it was started. A restart creates the file \
             again; until then, kubelet stops and removes no pod of this node."
        )
    } else {
        draft.must = Some("finish its start");
        if let Some(unit) = unit {
            let log = format!("journalctl --unit {unit} --lines 30 --no-pager");
            let step = Step::new(
                format!("show the last lines of {name}'s log, to see what its start waits for"),
                log,
            );
            draft.remedy(step, "none");
        }
        draft.doubt("what its start waits for: the last line of its log names the step");
        format!(
            "kubelet connects to {name} at {path}, and the connection fails: {why}. {name} runs but does not listen: \
             its start is not finished. Before it listens, it loads its plugins, opens its database and connects to \
             the shims that are left. Until it listens, kubelet stops and removes no pod of this node."
        )
    };
    verdict::restart_unit(draft, unit);
    rule_out(draft, why, listens);
    let is_second = |it: &Runtime| it.component == runtime.component && it.sockets.is_empty();
    if listens && suspect.sample.runtimes.iter().any(is_second) {
        draft.doubt(
            "what the start of the other runtime of that name waits for, which listens nowhere",
        );
    }
    if listens && file.is_none() {
        draft.doubt("whether the socket file is still missing: the log shows only past attempts");
    }
}

fn rule_out(draft: &mut Draft, why: &str, listens: bool) {
    let error = safe(why.as_bytes()).into_owned();
    draft.rule_out(
        ids::RUNTIME_DOWN,
        if listens { "its process runs and listens" } else { "its process runs" },
    );
    draft.rule_out(ids::RUNTIME_HANG, format!("connecting fails at once: {error}"));
    draft.rule_out(
        ids::SHIM_OR_CONTAINERD_STATE_LOST,
        "kubelet cannot connect to the runtime at all",
    );
}

/// That a path does not name the file of its socket.
fn names(found: SocketPath, path: &Path) -> Option<String> {
    let path = safe_path(path);
    match found {
        SocketPath::Own => None,
        SocketPath::Missing => {
            Some(format!("{path} does not exist: its socket has no file any more"))
        }
        SocketPath::Other => {
            Some(format!("{path} is another file than the one that it bound its socket to"))
        }
    }
}
