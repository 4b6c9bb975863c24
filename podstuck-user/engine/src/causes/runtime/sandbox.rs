//! Parts of a pod's sandbox (network namespace, shared memory) that the runtime cannot remove because something is still
//! mounted there, and image volumes that it cannot unmount. The runtime's mount table shows both.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::{
    cause::Cause,
    causes::{
        runtime::{
            causes::{NETNS_BUSY, SHM_BUSY},
            suspect::Suspect,
        },
        shared::holders::{self, culprits},
    },
    command::View,
    ids,
    model::{
        evidence::Source,
        holder::{About, Holder, How, Snapshot},
        identity::Component,
        mounts::Mounts,
        node::NodeSample,
        path::{JsonPath, safe_path},
        runtime::Runtime,
        said::Said,
        sandbox::{self, Kept},
        time::Monotonic,
    },
    query::{Query, ReadMountsOn, Wants},
    tracker::{Context, TrackerId},
    verdict::Draft,
};

/// Samples between two questions about a pod.
const AGAIN: u32 = 5;

/// The mounts on a file, as a runtime sees them.
pub(crate) struct Look {
    pub(crate) path: PathBuf,
    pub(crate) mounts: Mounts,
    pub(crate) view: View,
    pub(crate) at: Monotonic,
}

/// Answers about busy parts of sandboxes, by the pod's target ID.
#[derive(Default)]
pub(crate) struct SandboxMounts {
    /// Samples since the first complaint.
    wanted: BTreeMap<u64, u32>,
    /// By target ID and the runtime's process ID.
    looks: BTreeMap<(u64, u32), Look>,
    held: BTreeMap<(u64, u32), Held>,
}

/// The holders of a runtime's mount, or of a device.
pub(crate) struct Held {
    pub(crate) path: PathBuf,
    pub(crate) taken: Snapshot,
    pub(crate) view: View,
    pub(crate) at: Monotonic,
    /// Start times, by process ID.
    started: BTreeMap<u32, Monotonic>,
}

impl Held {
    /// Whether a holder had started by a time: the kernel reuses device names.
    pub(crate) fn was_there(&self, holder: &Holder, at: Monotonic) -> bool {
        let started = holder.pid.and_then(|pid| self.started.get(&pid));
        started.is_none_or(|started| *started <= at)
    }
}

impl SandboxMounts {
    /// Asks about the objects of these complaints, and forgets all others.
    pub(crate) fn ask(
        &mut self,
        tracker: TrackerId,
        complaints: Vec<(u64, Said)>,
        sample: &NodeSample,
    ) -> Vec<Query> {
        let pods: BTreeSet<u64> = complaints.iter().map(|(target_id, _)| *target_id).collect();
        self.wanted.retain(|target_id, _| pods.contains(target_id));
        self.looks.retain(|(target_id, _), _| pods.contains(target_id));
        self.held.retain(|(target_id, _), _| pods.contains(target_id));
        let mut queries = Vec::new();
        for (target_id, said) in complaints {
            let Some((kept, path)) = sandbox::busy(&said.text) else { continue };
            let looks = self.wanted.entry(target_id).or_default();
            let is_due = looks.is_multiple_of(AGAIN);
            *looks += 1;
            // kubelet repeats the error of any runtime.
            let is_its = |runtime: &&Runtime| {
                said.component == Component::Kubelet || runtime.component == said.component
            };
            let asked = sample.runtimes.iter().filter(|_| is_due).filter(is_its);
            queries.extend(asked.filter_map(|runtime| {
                let (pid, namespace) = (runtime.pid, runtime.mnt_ns?);
                let wants = match kept {
                    Kept::ImageVolume => {
                        let path = JsonPath(path.clone());
                        Wants::Holders(About::Mount { pid, namespace, path })
                    }
                    Kept::Device => Wants::Holders(About::Path(JsonPath(path.clone()))),
                    Kept::NetworkNamespace | Kept::SharedMemory => {
                        ReadMountsOn { pid, namespace, path: path.clone() }.into()
                    }
                };
                Some(Query { tracker, target_id, path: path.clone(), wants })
            }));
        }
        queries
    }

    /// Records the mounts on a file.
    pub(crate) fn answered(
        &mut self,
        context: &Context<'_>,
        target_id: u64,
        asked: &ReadMountsOn,
        mounts: &Mounts,
    ) {
        let ReadMountsOn { pid, namespace, path } = asked;
        let look = Look {
            path: path.clone(),
            mounts: mounts.clone(),
            view: View::in_namespace(context, *namespace, *pid),
            at: context.now,
        };
        self.looks.insert((target_id, *pid), look);
    }

    /// Records the holders of a mount or a device.
    pub(crate) fn holders(
        &mut self,
        context: &Context<'_>,
        target_id: u64,
        asked: &About,
        taken: &Snapshot,
    ) {
        let (path, view, pid) = match asked {
            About::Mount { pid, namespace, path } => {
                (path, View::in_namespace(context, *namespace, *pid), *pid)
            }
            About::Path(path) => (path, View::OURS, 0),
            About::Device(_) => return,
        };
        let (path, taken) = (path.0.clone(), taken.clone());
        let clock = context.clock;
        let began =
            |holder: &Holder| Some((holder.pid?, clock.when(clock.after_boot(holder.started?))));
        let started = taken.holders.iter().filter_map(began).collect();
        self.held.insert((target_id, pid), Held { path, taken, view, at: context.now, started });
    }

    /// The last known holders of the busy object. Of several runtimes, the one that has it mounted.
    pub(crate) fn held(&self, target_id: u64, said: &Said) -> Option<&Held> {
        let (_, path) = sandbox::busy(&said.text)?;
        let of_pod = self.held.range((target_id, 0)..=(target_id, u32::MAX));
        let of_file = of_pod.map(|(_, held)| held).filter(|held| held.path == path);
        of_file.max_by_key(|held| (held.taken.subject.is_ok(), held.taken.holders.len()))
    }

    /// The last known mounts on the busy file. Of several runtimes, the one with the most mounts.
    pub(crate) fn on(&self, target_id: u64, said: &Said) -> Option<&Look> {
        let (_, path) = sandbox::busy(&said.text)?;
        let of_pod = self.looks.range((target_id, 0)..=(target_id, u32::MAX));
        let of_file = of_pod.map(|(_, look)| look).filter(|look| look.path == path);
        of_file.max_by_key(|look| look.mounts.all.len())
    }
}

impl Look {
    /// Whether the path is the mount point, or ends with it: /var/run is a link to /run.
    pub(crate) fn is_own(&self, point: &Path) -> bool {
        self.path.ends_with(point.strip_prefix("/").unwrap_or(point))
    }
}

/// The part of a sandbox that a line complains of.
pub(crate) fn kept(said: &Said) -> Option<Kept> {
    sandbox::busy(&said.text).map(|(kept, _)| kept)
}

/// Why a mount that only another namespace has is not the cause.
const NEWER: &str = "on this kernel, a mount that exists only in another namespace does not block the removal of its \
    mount point: since Linux 3.18, the removal takes that mount along";
/// Mounts for which a command is given.
const NAMED: usize = 4;

/// The cause for a network namespace or shared memory that is busy.
pub(super) fn cause(said: &Said) -> Option<&'static Cause> {
    match kept(said)? {
        Kept::NetworkNamespace => Some(&NETNS_BUSY),
        Kept::SharedMemory => Some(&SHM_BUSY),
        Kept::ImageVolume | Kept::Device => None,
    }
}

/// Fills in the finding.
pub(super) fn words(draft: &mut Draft, suspect: &Suspect<'_>) {
    let is_netns = *draft.cause == NETNS_BUSY;
    let said = &suspect.logged.said;
    // Since Kubernetes 1.27 a pod goes when its sandbox has been stopped, whether or not it is removed.
    let is_stop = ["StopPodSandbox", "KillPodSandbox", "PodSandboxStatus"];
    if !is_netns && !is_stop.iter().any(|word| said.text.contains(word)) {
        draft.blocks_deletion = None;
    }
    let what = if is_netns { "file of the network namespace" } else { "shared memory" };
    let left = suspect.lies_on.filter(|look| !look.mounts.all.is_empty());
    match (left, suspect.lies_on) {
        (Some(look), _) => mounted(draft, look, is_netns),
        (None, Some(look)) => {
            let path = safe_path(&look.path);
            draft.fact_since(
                format!("nothing is mounted on {path} in the runtime's mount namespace now"),
                Source::mountinfo(&look.mounts.source),
                look.at,
            );
            draft.lacks(
                "which mount is on it in the runtime's mount namespace: none was when last checked",
            );
        }
        (None, None) => draft.lacks("which mount is on it in the runtime's mount namespace"),
    }
    let why = match left {
        Some(_) => "it is still a mount point, and the kernel removes no mount point",
        None => "the kernel reported it as busy, as it does for a mount point",
    };
    draft.explanation =
        format!("The runtime cannot remove the {what} of the pod's sandbox: {why}.");
    if left.is_some_and(only_by_another_way) {
        draft.explanation +=
            " The remaining mount is at another path than the one that the runtime unmounts.";
    }
    if draft.blocks_deletion.is_some() {
        draft.explanation += " kubelet retries, and keeps the pod until that succeeds.";
    }
    draft.rule_out(
        ids::CNI_TEARDOWN_FAILED,
        "the error is about the file of the namespace, not about a plugin",
    );
    draft.rule_out(ids::MOUNT_LEAKED_FOREIGN_NS_EL7, NEWER);
}

fn only_by_another_way(look: &Look) -> bool {
    look.mounts.all.iter().all(|mount| !look.is_own(&mount.point))
}

/// Adds the mounts that are left, and how to unmount them. The uppermost is the last in the table, and goes first.
pub(super) fn mounted(draft: &mut Draft, look: &Look, is_netns: bool) {
    let path = safe_path(&look.path);
    let all = &look.mounts.all;
    for mount in all.iter().take(NAMED) {
        let point = safe_path(&mount.point);
        let fact = if look.is_own(&mount.point) {
            format!(
                "{point} is a mount point in the runtime's mount namespace: {}",
                mount.describe()
            )
        } else {
            format!("{point} is another path to {path}, and a mount point: {}", mount.describe())
        };
        draft.fact_since(fact, Source::mountinfo(&look.mounts.source), look.at);
    }
    if all.len() > NAMED {
        let fact = format!("{} mounts are on it", all.len());
        draft.fact_since(fact, Source::mountinfo(&look.mounts.source), look.at);
    }
    let risk = if is_netns {
        "low once all containers of the pod have ended: a process that still uses the namespace \
         keeps it"
    } else {
        "low once all containers of the pod have ended: what they left in /dev/shm is lost"
    };
    for mount in all.iter().rev().take(NAMED) {
        let step = look.view.on_mount("umount -l", &mount.point, Some(mount.id));
        draft.remedy(step.so(", which keeps the sandbox"), risk);
    }
}

/// Fills in the finding.
pub(super) fn image_volume(draft: &mut Draft, suspect: &Suspect<'_>) {
    draft.explanation =
        "The runtime stops the pod's sandbox only after it has unmounted the pod's image volume, \
        which is in use. kubelet retries, and keeps the pod until that succeeds."
            .into();
    let Some(held) = suspect.held else {
        draft.lacks("what uses the image volume");
        return;
    };
    let point = safe_path(&held.path).into_owned();
    draft.path.clone_from(&held.path);
    match &held.taken.subject {
        Ok(subject) => {
            let fact =
                format!("{point} is mounted in the runtime's mount namespace: {}", subject.what);
            draft.fact_since(fact, Source::proc("mountinfo"), held.at);
        }
        Err(why) => {
            let fact = format!(
                "{point} is no longer a mount point in the runtime's mount namespace: {why}"
            );
            draft.fact_since(fact, Source::proc("mountinfo"), held.at);
        }
    }
    let found: Vec<&Holder> = culprits(&held.taken).collect();
    let (nested, users): (Vec<&Holder>, Vec<&Holder>) =
        found.iter().partition(|holder| holder.how == How::NestedMount);
    holders::tell(draft, &found);
    holders::free(draft, held.view, &nested, &users);
    holders::tell_unseen(draft, &held.taken);
    if found.is_empty() {
        draft.fact_since(
            format!("no process that uses {point} was found"),
            Source::proc("/proc"),
            held.at,
        );
        draft.lacks("what uses the image volume: no process was found when last checked");
    }
}
