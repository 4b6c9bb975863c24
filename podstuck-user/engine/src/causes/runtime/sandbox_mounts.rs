//! What lies on a file of a pod's sandbox that is said to be busy, by the mounts of the runtime that has to remove
//! it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::{
    command::View,
    model::{
        holder::{About, Snapshot},
        identity::Component,
        mounts::Mounts,
        node::NodeSample,
        path::JsonPath,
        runtime::Runtime,
        said::Said,
        sandbox::{self, Kept},
        time::Monotonic,
    },
    query::{Query, Wants},
    tracker::{Context, TrackerId},
};

/// Looks at the node until it is asked again.
const AGAIN: u32 = 5;

/// The mounts on a file, as a runtime sees them.
pub(crate) struct Look {
    pub(crate) path: PathBuf,
    pub(crate) mounts: Mounts,
    pub(crate) view: View,
    pub(crate) at: Monotonic,
}

/// By the pod as a target.
#[derive(Default)]
pub(crate) struct SandboxMounts {
    /// Looks at the node since it is wanted.
    wanted: BTreeMap<u64, u32>,
    /// By the runtime's process.
    looks: BTreeMap<(u64, u32), Look>,
    held: BTreeMap<(u64, u32), Held>,
}

/// Who holds a mount of a runtime's.
pub(crate) struct Held {
    pub(crate) path: PathBuf,
    pub(crate) taken: Snapshot,
    pub(crate) view: View,
    pub(crate) at: Monotonic,
}

impl SandboxMounts {
    /// Asks about those that are complained of, and forgets the others.
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
            // kubelet repeats what any of them has said.
            let is_its = |runtime: &&Runtime| {
                said.component == Component::Kubelet || runtime.component == said.component
            };
            let asked = sample.runtimes.iter().filter(|_| is_due).filter(is_its);
            queries.extend(asked.filter_map(|runtime| {
                let (pid, namespace) = (runtime.pid, runtime.mnt_ns?);
                let wants = match kept {
                    Kept::ImageVolume => {
                        let path = JsonPath(path.into());
                        Wants::Holders(About::Mount { pid, namespace, path })
                    }
                    _ => Wants::MountsOn { pid, namespace, path: path.into() },
                };
                Some(Query { tracker, target_id, path: path.into(), wants })
            }));
        }
        queries
    }

    /// Takes note of an answer.
    pub(crate) fn answered(
        &mut self,
        context: &Context<'_>,
        query: &Query,
        mounts: Option<&Mounts>,
    ) {
        let (Wants::MountsOn { pid, namespace, path }, Some(mounts)) = (&query.wants, mounts)
        else {
            return;
        };
        let look = Look {
            path: path.clone(),
            mounts: mounts.clone(),
            view: View::in_namespace(context, *namespace, *pid),
            at: context.now,
        };
        self.looks.insert((query.target_id, *pid), look);
    }

    /// Takes note of who holds a mount.
    pub(crate) fn holders(&mut self, context: &Context<'_>, query: &Query, taken: &Snapshot) {
        let Wants::Holders(About::Mount { pid, namespace, path }) = &query.wants else { return };
        let held = Held {
            path: path.0.clone(),
            taken: taken.clone(),
            view: View::in_namespace(context, *namespace, *pid),
            at: context.now,
        };
        self.held.insert((query.target_id, *pid), held);
    }

    /// Who was seen last to hold what is complained of. Of several runtimes, the one that has it mounted.
    pub(crate) fn held(&self, target_id: u64, said: &Said) -> Option<&Held> {
        let (_, path) = sandbox::busy(&said.text)?;
        let of_pod = self.held.range((target_id, 0)..=(target_id, u32::MAX));
        let of_file = of_pod.map(|(_, held)| held).filter(|held| held.path == *path);
        of_file.max_by_key(|held| (held.taken.subject.is_ok(), held.taken.holders.len()))
    }

    /// What was seen last on the file that is complained of. Of several runtimes, the one that has something there.
    pub(crate) fn on(&self, target_id: u64, said: &Said) -> Option<&Look> {
        let (_, path) = sandbox::busy(&said.text)?;
        let of_pod = self.looks.range((target_id, 0)..=(target_id, u32::MAX));
        let of_file = of_pod.map(|(_, look)| look).filter(|look| look.path == *path);
        of_file.max_by_key(|look| look.mounts.all.len())
    }
}

impl Look {
    /// Whether a mount is at the path by its text, but for what stands before: /var/run is a link to /run.
    pub(crate) fn is_own(&self, point: &Path) -> bool {
        self.path.ends_with(point.strip_prefix("/").unwrap_or(point))
    }
}

/// What of a sandbox a line complains of.
pub(crate) fn kept(said: &Said) -> Option<Kept> {
    sandbox::busy(&said.text).map(|(kept, _)| kept)
}
