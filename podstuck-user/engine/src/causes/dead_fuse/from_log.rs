//! Looks at a dead mount that kubelet's log tells of: who comes late sees no removal fail.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::errno::Errno;

use crate::{
    causes::{dead_fuse, shared::stat_errors::ToldLooks},
    model::{hung::MountPoint, node::NodeSample, said::Said},
    query::{Query, Wants},
    tracker::{Context, TrackerId},
    verdict::{Draft, Verdict},
};

#[derive(Debug, Default)]
pub(super) struct ToldDead {
    told: ToldLooks,
    last: Option<Arc<NodeSample>>,
    /// Dead mounts, by target.
    found: BTreeMap<u64, PathBuf>,
}

impl ToldDead {
    pub(super) fn listen(&mut self, context: &Context<'_>, said: &Said) {
        if let Some(look) = said.looked.as_ref().filter(|it| it.outcome.is(Errno::ENOTCONN)) {
            self.told.listen(context, said, look);
        }
    }

    /// Asks the mounts of whose volume it was said.
    pub(super) fn sampled(
        &mut self,
        context: &Context<'_>,
        sample: &Arc<NodeSample>,
    ) -> (Vec<Query>, Vec<Verdict>) {
        self.last = Some(sample.clone());
        let (tracker, at) = (TrackerId::DeadMount, sample.at);
        let failing =
            self.told.failing(context, sample, |volume| volume.mounts.iter().any(|it| it.is_fuse));
        let queries = failing.into_iter().filter_map(|it| {
            let (pid, _) = it.ask_in?;
            let wants = Wants::FuseMounts { pid, path: it.path.clone() };
            Some(Query { tracker, target_id: it.volume.target_id, path: it.path, wants })
        });
        let is_there = |target_id: u64, point: &Path| {
            sample
                .volume(target_id)
                .is_some_and(|(_, volume)| volume.mounts.iter().any(|it| it.point == point))
        };
        let gone = self.found.extract_if(.., |target_id, point| !is_there(*target_id, point));
        let over =
            gone.map(|(target_id, point)| Verdict::Cleared { target_id, path: Some(point), at });
        (queries.collect(), over.collect())
    }

    /// Decides by the answer of the mount.
    pub(super) fn conclude(
        &mut self,
        context: &Context<'_>,
        query: &Query,
        mount: &MountPoint,
    ) -> Option<Draft> {
        let told = self.told.of(&query.path)?;
        let (pod, volume) = self.last.as_ref()?.volume(query.target_id)?;
        self.found.insert(query.target_id, mount.point.clone());
        let (target, seen_by) = (volume.target.clone(), pod.seen_by?);
        Some(dead_fuse::verdict::told(
            context,
            (query.target_id, target),
            &told.said,
            mount,
            seen_by,
        ))
    }

    pub(super) fn explains(&self, target_id: u64, path: &Path) -> bool {
        self.found.get(&target_id).is_some_and(|point| point.starts_with(path))
    }

    pub(super) fn dropped(&self) -> u64 {
        self.told.dropped()
    }
}
