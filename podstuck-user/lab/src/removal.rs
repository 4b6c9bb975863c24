//! The removal process, which plays kubelet.

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::atomic::Ordering,
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::{
    process::{Signal, set_parent_process_death_signal},
    thread::set_name,
};

use super::{
    backoff::Backoff,
    build,
    calls::Calls,
    case::{Case, Volume},
    cases::find,
    control::Control,
    fixture,
    go_remove::Failure,
    klog,
    kubelet::Kubelet,
    layout::Pod,
    message::{self, Done, Mounted},
    namespace, note,
};

/// The arguments of the removal process.
#[derive(Clone, Debug)]
pub struct RemovalArgs {
    /// The lab's directory. `--root-dir` is kubelet's root directory in it.
    pub root: PathBuf,
    /// The case's id (`--case`).
    pub case: String,
    /// The pod's UID (`--uid`).
    pub uid: String,
    /// Maximum number of deletions per second (`--rate`); `None` for no limit.
    pub rate: Option<u32>,
    /// Maximum number of attempts (`--attempts`); `None` for no limit.
    pub attempts: Option<u64>,
    /// Whether the first attempts are logged as those of the last hour (`--late`). Standard error is kubelet's log
    /// then.
    pub late: bool,
}

/// Plays kubelet. Call it in the main thread of a process of its own, before another thread is started: it changes
/// the mount namespace and the name of the calling thread.
///
/// The thread gets the name `kubelet`, by which a tracer recognises it.
///
/// # Errors
/// Fails if a mount or a fixture of the case cannot be made; the message names it. A failed call of the removal is
/// counted and is not an error.
pub fn removal_main(args: &RemovalArgs) -> Result<()> {
    play(args, &mut io::stdout().lock())
}

/// Like [`removal_main`], with the messages written to `out`.
pub(super) fn play(args: &RemovalArgs, out: &mut impl Write) -> Result<()> {
    let case = find(&args.case).with_context(|| format!("there is no case {:?}", args.case))?;
    let pod = Pod { root: args.root.clone(), uid: args.uid.clone(), name: case.id.into() };
    // The process ends with the lab, even if the lab is killed.
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot set the parent-death signal")?;
    set_name(c"kubelet").context("cannot set the thread's name")?;
    namespace::enter()?;
    // The socket is in the mount namespace that kubelet sees, as with a driver whose mounts are propagated.
    let _driver = case.has_driver().then(|| fixture::registered_driver(&pod)).transpose()?;
    fixture::before_volumes(case.fixtures, &pod)?;
    namespace::mount_volumes(&pod, case)?;
    let _scene = fixture::set_up_all(case.fixtures, &pod, true)?;
    message::send(out, &Mounted { state: "mounted" })?;

    let control = Control::wait_for_start()?;
    let mut calls = Calls::new(args.rate, control.stopped());
    let (mut attempts, mut pods_removed) = (0, 0);
    let most = args.attempts.unwrap_or(u64::MAX);
    loop {
        let (tries, removed) =
            delete_pod(&mut calls, &pod, case, &control, (most - attempts, args.late));
        attempts += tries;
        pods_removed += u64::from(removed);
        let ends = !case.repeats || !removed || attempts == most;
        if ends || !control.sleep(BETWEEN_PODS) {
            break;
        }
        // The next pod has the same UID, like a static pod's, so that all pods are one target.
        build::pod(&pod, case)?;
        namespace::mount_volumes(&pod, case)?;
    }
    while case.stays_until_stopped() && control.sleep(BETWEEN_PODS) {}
    let calls = calls.tally.by_outcome();
    message::send(out, &Done { lab: case.id, pod_uid: &pod.uid, attempts, pods_removed, calls })
}

/// Pause between two pods, long enough to distinguish them.
const BETWEEN_PODS: Duration = Duration::from_millis(500);

/// Interval at which kubelet checks whether a pod's volumes still exist.
const POLL: Duration = Duration::from_millis(100);
/// Delay before kubelet retries a pod whose containers could not be terminated (`backOffPeriod`, without its jitter).
const POD_WORKER: Duration = Duration::from_secs(10);
/// Interval at which kubelet removes the directories of pods that it no longer knows.
const HOUSEKEEPING: Duration = Duration::from_secs(2);

/// Tries until the pod is removed, `control` stops it, or `most` attempts were made. Returns the number of attempts
/// and whether the pod was removed.
fn delete_pod(
    calls: &mut Calls,
    pod: &Pod,
    case: &Case,
    control: &Control,
    (most, is_late): (u64, bool),
) -> (u64, bool) {
    let mut kubelet = Kubelet::new(calls, pod);
    let mut backoff = if is_late { Backoff::late() } else { Backoff::new() };
    let mut volumes: Vec<&Volume> = case.volumes.iter().collect();
    if case.is_orphan() {
        volumes.clear();
    }
    let mut attempts = 0;
    while attempts < most && !control.stopped().load(Ordering::Relaxed) {
        attempts += 1;
        let ago = backoff.ago();
        let failed = |volume: &Volume, failure: &Failure| {
            if is_late {
                klog::failed(pod, volume, failure, ago);
            }
        };
        let failure =
            kubelet.cannot_begin(case).or_else(|| try_once(&mut kubelet, &mut volumes, failed));
        let Some(failure) = failure else { return (attempts, true) };
        let wait = match failure {
            Failure::Stopped => break,
            // `podVolumesExist`, every 100 ms.
            Failure::Waiting if control.sleep(POLL) => continue,
            Failure::Waiting => break,
            Failure::Alive => POD_WORKER,
            _ if case.is_orphan() => HOUSEKEEPING,
            _ => backoff.after_failure(),
        };
        if !is_late {
            note(&format!("kubelet's part: {failure}; next try in {wait:?}"));
        }
        if attempts == most || !control.sleep(wait) {
            break;
        }
    }
    (attempts, false)
}

/// Tears down the remaining volumes. If none fails, removes the pod's cgroups and directory. Returns the first
/// failure.
fn try_once(
    kubelet: &mut Kubelet,
    volumes: &mut Vec<&Volume>,
    failed: impl Fn(&Volume, &Failure),
) -> Option<Failure> {
    let mut first = None;
    volumes.retain(|volume| match kubelet.tear_down(volume) {
        Ok(()) => false,
        Err(failure) => {
            failed(volume, &failure);
            first.get_or_insert(failure);
            true
        }
    });
    first
        .or_else(|| kubelet.remove_cgroups().err())
        .or_else(|| kubelet.remove_pod_directory().err())
}
