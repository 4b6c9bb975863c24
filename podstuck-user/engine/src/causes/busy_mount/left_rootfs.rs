//! Root file systems that stay mounted after their container has ended, and the processes that hold them. A shim
//! unmounts them at once; if it cannot, it gives up after 50 attempts, and tries again only minutes later. The holders
//! of the mount are visible all the time.

use std::collections::BTreeMap;

use crate::{
    causes::{
        busy_mount::causes::SHIM_ROOTFS_BUSY,
        shared::holders::{free, tell},
    },
    command::View,
    event::{Event, What},
    ids,
    model::{
        evidence::Source,
        finding::Severity,
        holder::{About, Holder, How, Snapshot},
        identity::Component,
        mounted::Mounted,
        node::{LeftRootfs, NodeSample},
        path::{JsonPath, safe, safe_path},
        said::{Complaint, Said},
        time::Monotonic,
    },
    query::{Query, Wants},
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

/// Samples, two seconds apart, before the holders are searched: a shim unmounts within moments.
const LOOKS_NEEDED: u32 = 2;
/// Samples between two searches.
const AGAIN: u32 = 10;
/// Pods whose complaints are remembered.
const REMEMBERED: usize = 1024;

/// A root file system that is still mounted.
pub(crate) struct Left {
    /// Its state in the last sample.
    pub(crate) rootfs: LeftRootfs,
    /// When it was first seen, with its container ended.
    pub(crate) since: Monotonic,
    /// When it was last seen.
    pub(crate) at: Monotonic,
    /// The last complaint about it in a log.
    pub(crate) said: Option<Said>,
    looks: u32,
    reported: bool,
    /// The last search found no process that holds it: the mount is not at fault.
    is_free: bool,
}

/// Root file systems of the last sample, by target.
#[derive(Default)]
pub(crate) struct RootFileSystems {
    left: BTreeMap<u64, Left>,
    /// By UID: the last complaint that a root file system cannot be unmounted.
    said: BTreeMap<String, Said>,
}

impl RootFileSystems {
    fn listen(&mut self, said: &Said) {
        if said.complaint == Some(Complaint::RootfsBusy)
            && (self.said.len() < REMEMBERED || self.said.contains_key(&said.uid))
        {
            self.said.insert(said.uid.clone(), said.clone());
        }
    }

    fn sampled(&mut self, sample: &NodeSample, context: &Context<'_>, steps: &mut Steps) {
        let (tracker, at) = (self.id(), sample.at);
        let mut before = std::mem::take(&mut self.left);
        for rootfs in sample.rootfs.iter().filter(|rootfs| rootfs.target_id != 0) {
            let target_id = rootfs.target_id;
            let known = before.remove(&target_id);
            let (since, looks, reported, is_free) = known.map_or((at, 0, false, false), |known| {
                (known.since, known.looks, known.reported, known.is_free)
            });
            let of_this = |said: &&Said| said.text.contains(rootfs.container.as_str());
            let said = self.said.get(&rootfs.pod).filter(of_this).cloned();
            let mut left = Left {
                rootfs: rootfs.clone(),
                since,
                at,
                said,
                looks: looks + 1,
                reported,
                is_free,
            };
            if is_tried(context, &left) {
                // The failed call is better evidence.
                steps.say(reported.then_some(Verdict::Over { tracker, target_id, at }));
                left.reported = false;
            } else if left.looks % AGAIN == LOOKS_NEEDED {
                let Mounted { pid, namespace, point, .. } = rootfs.mount.clone();
                let path = point.clone();
                let wants = Wants::Holders(About::Mount { pid, namespace, path: JsonPath(point) });
                steps.ask([Query { tracker, target_id, path, wants }]);
            }
            self.left.insert(target_id, left);
        }
        let gone = before.into_iter().filter(|(_, left)| left.reported);
        steps.say(gone.map(|(target_id, _)| Verdict::Over { tracker, target_id, at }));
    }

    fn conclude(
        &mut self,
        context: &Context<'_>,
        query: &Query,
        taken: &Snapshot,
        steps: &mut Steps,
    ) {
        let Some(left) = self.left.get_mut(&query.target_id) else { return };
        let draft = draft(context, left, taken);
        if let (None, true) = (&draft, left.reported) {
            let (tracker, target_id) = (TrackerId::LeftRootfs, query.target_id);
            steps.say([Verdict::Over { tracker, target_id, at: taken.at }]);
        }
        left.reported = draft.is_some();
        left.is_free = draft.is_none();
        steps.found(draft);
    }
}

/// Whether failed attempts of the shim explain it already.
fn is_tried(context: &Context<'_>, left: &Left) -> bool {
    let subject = Subject {
        target_id: left.rootfs.target_id,
        path: &left.rootfs.mount.point,
        pod: &left.rootfs.pod,
        at: left.at,
    };
    context.is_explained(TrackerId::LeftRootfs, &subject)
}

impl Tracker for RootFileSystems {
    fn id(&self) -> TrackerId {
        TrackerId::LeftRootfs
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Said(said) => self.listen(said),
            What::Sample(sample) => self.sampled(sample, context, steps),
            what => {
                if let Some((query, taken)) = what.holders() {
                    self.conclude(context, query, taken, steps);
                }
            }
        }
    }

    fn explains(&self, subject: &Subject<'_>, claim: Claim) -> bool {
        let mut left = self.left.values().filter(|left| !left.is_free);
        left.any(|left| subject.is_of_pod(&left.rootfs.pod) && claim.is_met(left.reported))
    }
}

/// The finding; `None` if no process would make an unmount fail: then the shim is late, and the mount is not at fault.
pub(crate) fn draft(context: &Context<'_>, left: &Left, taken: &Snapshot) -> Option<Draft> {
    let culprits = taken.culprits().filter(|holder| holder.component != Some(Component::Kubelet));
    let found: Vec<&Holder> = culprits.collect();
    if found.is_empty() {
        return None;
    }
    let rootfs = &left.rootfs;
    let point = &rootfs.mount.point;
    let mut draft = Draft::about_state(
        TrackerId::LeftRootfs,
        &SHIM_ROOTFS_BUSY,
        rootfs.target_id,
        rootfs.target.clone(),
        point.clone(),
        taken.at,
    );
    draft.severity = Severity::Warning;
    draft.blocks_deletion = Some(true);
    draft.first = left.since;
    let container = safe(rootfs.container.as_bytes());
    draft.fact_since(
        format!("container {container} has ended: its first process is gone"),
        Source::proc("init.pid of its bundle, /proc"),
        left.since,
    );
    draft.fact(
        format!("its root file system is still mounted at {}", safe_path(point)),
        Source::mountinfo(&rootfs.mount.source),
    );
    if let Some(said) = &left.said {
        let who = said.component.name();
        let text = format!("{who} says, last at {:.0}: {}", said.at, said.text);
        draft.fact_since(text, Source::Log(said.source.clone()), context.when(said.at));
    }
    tell(&mut draft, &found);
    draft.explanation = "A process uses the root file system of a container that has ended. The \
        kernel does not unmount a file system that is in use. The shim tries 50 times, gives up, \
        and is called again when kubelet asks the runtime to remove the container."
        .into();
    let (nested, users): (Vec<&Holder>, Vec<&Holder>) =
        found.iter().partition(|holder| holder.how == How::NestedMount);
    let view = View::in_namespace(context, rootfs.mount.namespace, rootfs.mount.pid);
    free(&mut draft, view, &nested, &users);
    draft.rule_out(
        ids::LEAKED_SUPERBLOCK_BLOCKS_DEVICE,
        "the mount itself is still there, and is in use",
    );
    draft.rule_out(ids::SHIM_OR_CONTAINERD_STATE_LOST, "what uses the mount is known");
    if !found.iter().any(|holder| holder.exact) {
        draft.doubt("which mount it is: only the text of a path identifies it");
    }
    Some(draft)
}
