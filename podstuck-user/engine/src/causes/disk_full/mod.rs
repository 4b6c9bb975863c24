//! A file system without room, which kubelet or the runtime needs for a deletion.

use crate::cause::Origin;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use podstuck_common::component::path_hash;

use crate::{
    cause::{Cause, Kind, TriedWith, hidden, like, log, seen, way},
    causes::shared::stat_errors::FRESH,
    command::{Step, View},
    event::{Event, What},
    family::Family,
    ids,
    model::{
        call::Outcome,
        chain::Who,
        degraded::Feed,
        diagnosis::Stage,
        errno::Errno,
        evidence::Source,
        finding::Severity,
        identity::{Component, Target},
        node::NodeSample,
        path::safe_path,
        said::Said,
        space::Space,
        time::Monotonic,
    },
    tracker::{Context, Steps, Tracker, TrackerId, TrackerSpec},
    verdict::{Draft, Verdict},
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[&DISK_FULL],
    trackers: &[TrackerSpec {
        id: TrackerId::DiskFull,
        feeds: &[Feed::Node, Feed::Space, Feed::Logs],
        yields: &[],
        new: || Box::<FullDisks>::default(),
    }],
};

/// How long a disk must be full: two samples. Garbage collection of images frees room again.
const LASTS: Duration = Duration::from_secs(5);

/// Doubt while only root has space.
const RESERVED: &str = "whether the daemons may use the blocks that are reserved for root";

/// Full file systems, by target. The number of file systems that kubelet and the runtimes use bounds them.
#[derive(Default)]
pub(crate) struct FullDisks {
    full: BTreeMap<u64, Full>,
    /// The last errors of the runtimes about space, by their names.
    fails: BTreeMap<&'static str, Said>,
}

struct Full {
    since: Monotonic,
    reported: bool,
}

impl FullDisks {
    /// Records a line of a runtime that has no space for its own files (learning-kubernetes#80). kubelet's log quotes what
    /// containers say.
    fn listen(&mut self, said: &Said) {
        let is_runtimes =
            matches!(said.component, Component::Containerd | Component::Dockerd | Component::CriO);
        let outcome = Outcome::named_in(&said.text);
        let is_full = [Errno::ENOSPC, Errno::EDQUOT]
            .iter()
            .any(|errno| outcome.is_some_and(|it| it.is(*errno)));
        if !is_runtimes || !is_full {
            return;
        }
        let known = self.fails.get(said.component.name());
        if known.is_none_or(|known| known.at <= said.at) {
            self.fails.insert(said.component.name(), said.clone());
        }
    }

    /// The runtime that has no space on this file system: its error names a path below the root directory.
    fn failing(&self, context: &Context<'_>, space: &Space) -> Option<&Said> {
        let below = format!("{}/", safe_path(&space.path));
        let is_fresh = |said: &&Said| space.at.since(context.when(said.at)) <= FRESH;
        self.fails.values().filter(is_fresh).find(|said| said.text.contains(&below))
    }

    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        let mut full = BTreeMap::new();
        for space in &sample.spaces {
            let Some(what) = space.exhausted() else { continue };
            let target_id = path_hash(safe_path(&space.path).as_bytes());
            let before = self.full.remove(&target_id);
            let mut this = before.unwrap_or(Full { since: space.at, reported: false });
            if space.at.since(this.since) >= LASTS {
                this.reported = true;
                let mut draft = draft(context, space, what, target_id, this.since);
                if let Some(said) = self.failing(context, space) {
                    fails(&mut draft, space, said, sample);
                }
                steps.found([draft]);
            }
            full.insert(target_id, this);
        }
        let over = std::mem::replace(&mut self.full, full);
        let (tracker, at) = (self.id(), sample.at);
        for (target_id, _) in over.into_iter().filter(|(_, full)| full.reported) {
            steps.say([Verdict::Over { tracker, target_id, at }]);
        }
    }
}

impl Tracker for FullDisks {
    fn id(&self) -> TrackerId {
        TrackerId::DiskFull
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Sample(sample) => self.sampled(context, sample, steps),
            What::Said(said) => self.listen(said),
            _ => {}
        }
    }
}

/// No blocks or inodes for the node's daemons.
pub(crate) static DISK_FULL: Cause = Cause {
    id: ids::DISK_FULL_RUNTIME,
    title: "the disk of kubelet or of the container runtime has no free blocks or inodes",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "A full disk alone does not prevent a deletion. But kubelet and the runtimes can no \
        longer write their state and logs; then they fail at tasks or stop answering, which \
        blocks every pod of the node.",
    confirmed_by: &[
        seen(
            "statfs(2) of the root directory of kubelet or of a runtime shows no free blocks or \
             no free inodes, more than once",
            &[Origin::Look],
        ),
        hidden("kubelet or the runtime fails because of it"),
    ],
    log: log("containerd, dockerd or kubelet", "no space left on device"),
    look_alikes: &[
        like(ids::NODE_FS_READONLY, "the file system is mounted read-write"),
        like(ids::RUNTIME_HANG, "the runtime answers, or fails with ENOSPC in its log"),
    ],
    ways_out: &[
        way("free space on it", "deletes files; begin outside the runtime's directories"),
        way("restart the runtime afterwards if it does not answer", ""),
    ],
    field: &["TKE's guide to pods that stay Terminating"],
    tried: &[TriedWith::Lab],
    source: &["kubernetes pkg/kubelet/eviction, thresholds of nodefs and imagefs"],
};

pub(crate) fn draft(
    context: &Context<'_>,
    space: &Space,
    what: &str,
    target_id: u64,
    since: Monotonic,
) -> Draft {
    let target = Target { root: space.path.clone(), ..Target::unknown() };
    let path = space.path.clone();
    let mut draft = Draft::about_state(
        TrackerId::DiskFull,
        &DISK_FULL,
        target_id,
        Arc::new(target),
        path,
        space.at,
    );
    draft.first = since;
    draft.severity = Severity::Critical;
    let whose = if space.is_kubelets { "kubelet" } else { "a runtime or its logs" };
    let place = safe_path(&space.path);
    let room = &space.capacity;
    // Whether the runtime still answers is not known, so a hang is not ruled out.
    if !room.read_only {
        draft.rule_out(ids::NODE_FS_READONLY, "it is mounted read-write");
    }
    // Root may still use the reserved blocks, unless it is a container's root.
    if room.free > room.available {
        draft.doubt(RESERVED);
    }
    let fact = if what == "blocks" {
        let (left, all) = (room.available >> 10, room.bytes >> 10);
        format!("{left} KiB of {all} KiB are left on the file system of {place}")
    } else {
        format!(
            "{} of {} inodes are left on the file system of {place}",
            room.inodes_available, room.inodes
        )
    };
    draft.fact(fact, Source::Look("statvfs"));
    if what == "blocks" && room.free > room.available {
        draft.fact(
            format!("{} KiB more are reserved for root", (room.free - room.available) >> 10),
            Source::Look("statvfs"),
        );
    }
    draft.explanation = format!(
        "The file system of {whose} is full. That alone does not prevent a deletion: a removal \
         needs no space. But kubelet and the runtimes can no longer write their state and logs; \
         then they fail at tasks or stop answering, which blocks every pod of the node. So this \
         is likely to be the cause, but not certain."
    );
    let view = space
        .seen_by
        .map_or(View::OURS, |(pid, namespace)| View::in_namespace(context, namespace, pid));
    let listing = if what == "blocks" {
        "du --one-file-system --max-depth=2 -h"
    } else {
        "du --inodes --one-file-system --max-depth=2"
    };
    draft.remedy(
        view.look("show what fills", &space.path, |it| format!("{listing} {it}")),
        "none, but reads much; `df -i` and `df` show the rest",
    );
    draft.remedy(
        Step::new("cut the journal down to 100 MB", "journalctl --vacuum-size=100M"),
        "removes old entries of the journal. Free space outside the runtime's own directories \
         first, and restart the runtime afterwards if it does not answer",
    );
    draft.remedy(
        Step::new("remove the images that no container uses", "crictl rmi --prune"),
        format!(
            "removes images that no container uses; helps if they lie on {}",
            safe_path(&space.path)
        ),
    );
    draft
}

/// Adds that a runtime fails because of it.
fn fails(draft: &mut Draft, space: &Space, said: &Said, sample: &NodeSample) {
    let name = said.component.name();
    let runtime = sample.runtimes.iter().find(|it| it.component == said.component);
    draft.held_by(Who::component(name, runtime.map(|it| it.pid)));
    draft.must = Some("write its files");
    draft.waits_for = Some(format!("space on {}", safe_path(&space.path)));
    draft.blocks_deletion = Some(true);
    draft.doubts.retain(|doubt| *doubt != RESERVED);
    draft.quote(name, said);
    draft.rule_out(ids::RUNTIME_HANG, format!("{name} fails with an error: it has no space"));
    draft.doubt("whether the pod waits for that error: some steps need no space");
    draft.explanation = format!(
        "The file system of {} is full, and {name} cannot write its files there. It fails at steps of the pod's deletion, or \
         does not finish them, until there is space again.",
        safe_path(&space.path)
    );
}

/// The cause of a removal that fails with ENOSPC or EDQUOT.
pub(crate) fn by_errno() -> &'static Cause {
    &DISK_FULL
}

/// The explanation for that errno at a mount point.
pub(crate) fn refused(errno: Errno, point: &str) -> String {
    let what = if errno == Errno::EDQUOT {
        format!("The quota on {point} is used up.")
    } else {
        format!("{point} has no space left.")
    };
    format!("{what} A copy-on-write file system needs space even to remove something.")
}

#[cfg(test)]
mod tests;
