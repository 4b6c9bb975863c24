//! Builds a case, plays it and cleans up.

use std::{
    env,
    io::{self, Write},
    os::unix::process::CommandExt,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use caps::{CapSet, Capability};

use super::{
    Case, Options, RemovalArgs, Unsupported, build,
    case::Kind,
    cleanup::{LabDirectory, move_aside},
    disk::{self, Needs},
    fixture,
    layout::{self, NAMESPACE, Pod},
    mass_files::{self, DEFAULT_ENTRIES},
    message::{self, Ready},
    note,
    removal_process::{KubeletLog, RemovalProcess},
};
use podstuck_engine::model::path::{JsonPath, safe_path};

/// The command `lab-removal` of this program with its arguments. It has kubelet's name and kubelet's flag, from which
/// a tracer learns the root directory of a real kubelet.
pub fn relaunch_self(args: &RemovalArgs) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.arg0("kubelet").arg("lab-removal");
    command.arg("--root-dir").arg(layout::kubelet_root(&args.root));
    command.args(["--case", &args.case, "--uid", &args.uid]);
    if let Some(rate) = args.rate {
        command.args(["--rate", &rate.to_string()]);
    }
    if let Some(attempts) = args.attempts {
        command.args(["--attempts", &attempts.to_string()]);
    }
    if args.late {
        command.arg("--late");
    }
    Ok(command)
}

/// Plays a case until it ends, its duration has passed or `stop` is set, and leaves nothing behind. Two JSON lines go
/// to stdout: `ready` before the removal starts, and the exact counts of its calls.
///
/// # Errors
/// [`Unsupported`] if this machine lacks a requirement of the case; otherwise the object that could not be created or
/// removed.
pub fn run(case: &Case, options: &Options, stop: &AtomicBool) -> Result<()> {
    run_to(&mut io::stdout().lock(), case, options, stop)
}

/// Like [`run`], with the lines written to `out`.
pub(super) fn run_to(
    out: &mut impl Write,
    case: &Case,
    options: &Options,
    stop: &AtomicBool,
) -> Result<()> {
    require_privileges(case)?;
    let mut lab = LabDirectory::new(disk::make_directory(Needs::of(case, options))?);
    let pod = Pod { root: lab.path().into(), uid: layout::random_uid()?, name: case.id.into() };
    let played = play(out, case, options, &pod, stop);
    if case.has_mass_files() && pod.directory().exists() {
        note("removing the rest of the case; this may take a while");
    }
    move_aside(&pod);
    let removed = lab.remove();
    played.and(removed)
}

/// Time for the attempts of the last hour. An attempt that hangs does so within this time.
const PAST_ATTEMPTS: Duration = Duration::from_secs(2);

/// Deletions per second, slow enough for another process to write in between.
const WRITERS_RATE: u32 = 25;

fn require_privileges(case: &Case) -> Result<()> {
    let mut needed = vec![Capability::CAP_SYS_ADMIN];
    needed.extend(case.attribute().map(|_| Capability::CAP_LINUX_IMMUTABLE));
    for capability in needed {
        let there = caps::has_cap(None, CapSet::Effective, capability)
            .context("cannot read this process's capabilities")?;
        if !there {
            let message = format!("the lab must run as root (it needs {capability}): use sudo");
            return Err(Unsupported(message).into());
        }
    }
    Ok(())
}

fn play(
    out: &mut impl Write,
    case: &Case,
    options: &Options,
    pod: &Pod,
    stop: &AtomicBool,
) -> Result<()> {
    build::pod(pod, case)?;
    let _scene = fixture::set_up_all(case.fixtures, pod, false)?;
    let mut rate = options.rate;
    if case.has_mass_files() {
        let entries = options.entries.unwrap_or(DEFAULT_ENTRIES);
        rate = rate.or(Some(mass_files::default_rate(entries)));
        for volume in case.volumes.iter().filter(|volume| volume.kind == Kind::MassFiles) {
            mass_files::fill(&pod.content(volume), entries, stop)?;
        }
    }
    if case.has_writer() {
        rate = rate.or(Some(WRITERS_RATE));
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(());
    }
    let args = RemovalArgs {
        root: pod.root.clone(),
        case: case.id.into(),
        uid: pod.uid.clone(),
        rate: rate.filter(|rate| *rate > 0),
        attempts: options.attempts,
        late: options.late,
    };
    let log = options.late.then(|| KubeletLog::create(pod)).transpose()?;
    let mut removal = RemovalProcess::launch((options.launcher)(&args), log)?;
    if options.late {
        removal.start()?;
        sleep(PAST_ATTEMPTS, stop);
        announce(out, case, pod, removal.pid())?;
    } else {
        announce(out, case, pod, removal.pid())?;
        // If it is stopped before the start, the removal reports zero calls.
        if sleep(options.start_delay, stop) {
            removal.start()?;
        }
    }
    let deadline = options.duration.and_then(|time| Instant::now().checked_add(time));
    let line = removal.finish(|| {
        stop.load(Ordering::Relaxed) || deadline.is_some_and(|end| Instant::now() >= end)
    })?;
    message::send_line(out, &line)
}

fn announce(out: &mut impl Write, case: &Case, pod: &Pod, pid: u32) -> Result<()> {
    let path = case.subject().map_or_else(|| pod.directory(), |volume| pod.content(volume));
    let kubelet_root = safe_path(&layout::kubelet_root(&pod.root)).into_owned();
    let this_one = format!("--pod-uid {} --kubelet-root {kubelet_root}", pod.uid);
    note(&format!(
        "{}: pod {NAMESPACE}/{} ({}), volume {}, mounts seen by pid {pid} only\n\
         what holds it: podstuck diagnose {this_one}\n\
         what happens:  podstuck watch {this_one}",
        case.id,
        pod.name,
        pod.uid,
        safe_path(&path),
    ));
    let ready = Ready {
        lab: case.id,
        state: "ready",
        pod_uid: &pod.uid,
        path: JsonPath(path),
        root: safe_path(&pod.root).into_owned(),
        kubelet_root,
        pid,
    };
    message::send(out, &ready)
}

/// Sleeps; returns false if `stop` is set.
fn sleep(time: Duration, stop: &AtomicBool) -> bool {
    let start = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let left = time.saturating_sub(start.elapsed());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(Duration::from_millis(50)));
    }
    false
}
