//! Looks at a volume that fail, as kubelet and drivers say: who looks before he unmounts, and fails, comes to no
//! call that a probe sees. What the volume is on says what the error means.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use crate::{
    causes::{
        network_storage::{self, verdict::KernelSays},
        shared::{sharers, stat_errors::ToldLooks},
    },
    command::View,
    event::{Event, What},
    model::{
        evidence::Source,
        file_system::FileSystem,
        node::NodeSample,
        path::{safe, safe_path},
        said::Said,
    },
    query::{Answer, Query, Wants},
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId},
    verdict::{Draft, Verdict, times},
};

/// What fails, and what the kernel says of what it is on.
#[derive(Default)]
pub(crate) struct NetworkStorage {
    told: ToldLooks,
    kernel: KernelSays,
    last: Option<Arc<NodeSample>>,
    /// Targets of which something was found.
    found: BTreeSet<u64>,
}

impl NetworkStorage {
    fn listen(&mut self, context: &Context<'_>, said: &Said) {
        self.kernel.listen(said);
        if let Some(look) = &said.looked {
            self.told.listen(context, said, look);
        }
    }

    /// Asks what is below a volume that nobody can look at.
    fn sampled(&mut self, context: &Context<'_>, sample: &Arc<NodeSample>, steps: &mut Steps) {
        self.last = Some(sample.clone());
        let (tracker, at) = (self.id(), sample.at);
        let mut before = std::mem::take(&mut self.found);
        for failing in self.told.failing(context, sample, |volume| !volume.mounts.is_empty()) {
            let target_id = failing.volume.target_id;
            if before.remove(&target_id) {
                self.found.insert(target_id);
            }
            let Some((pid, namespace)) = failing.ask_in else { continue };
            let wants = Wants::FileSystem { pid, namespace, path: failing.path.clone() };
            steps.ask([Query { tracker, target_id, path: failing.path, wants }]);
        }
        steps.say(before.into_iter().map(|target_id| Verdict::Over { tracker, target_id, at }));
    }

    fn conclude(
        &mut self,
        context: &Context<'_>,
        target_id: u64,
        path: &Path,
        fs: &FileSystem,
    ) -> Option<Draft> {
        let told = self.told.of(path)?;
        let errno = told.look.outcome.errno()?;
        let cause = network_storage::verdict::judge(errno, &fs.fs_type)?;
        let sample = self.last.as_deref()?;
        let (pod, volume) = sample.volume(target_id)?;
        let (target, (pid, namespace)) = (volume.target.clone(), pod.seen_by?);
        let mut draft =
            Draft::about_state(self.id(), cause, target_id, target, path.to_owned(), context.now);
        (draft.first, draft.last, draft.count) = (told.first, told.last, told.lines);
        draft.is_told = true;
        draft.blocks_deletion = Some(true);
        let text = safe(told.said.text.as_bytes());
        let said = format!("{} said {}: {text}", told.said.component.name(), times(told.lines));
        draft.fact_since(said, Source::Log(told.said.source.clone()), told.first);
        let (source, fs_type) = (safe(fs.source.as_bytes()), safe(fs.fs_type.as_bytes()));
        draft.fact(
            format!("{} is a mount of {source} of type {fs_type}", safe_path(&fs.point)),
            Source::mountinfo(&fs.table),
        );
        network_storage::verdict::tell(
            &mut draft,
            Some(errno),
            self.kernel.of(&fs.fs_type, &fs.source),
        );
        let others = fs.device.parse().ok().and_then(|it| sharers::of(sample, it, Some(&pod.uid)));
        let view = View::in_namespace(context, namespace, pid);
        network_storage::verdict::unmount(&mut draft, view, &fs.point, fs.id, others);
        self.found.insert(target_id);
        Some(draft)
    }
}

impl Tracker for NetworkStorage {
    fn id(&self) -> TrackerId {
        TrackerId::NetworkStorage
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Said(said) => self.listen(context, said),
            What::Sample(sample) => self.sampled(context, sample, steps),
            What::Answer { query, answer } => {
                if let Answer::FileSystem(Some(fs)) = &**answer {
                    steps.found(self.conclude(context, query.target_id, &query.path, fs));
                }
            }
            _ => {}
        }
    }

    fn explains(&self, subject: &Subject<'_>, _: Claim) -> bool {
        self.found.contains(&subject.target_id)
    }

    fn dropped(&self) -> u64 {
        self.told.dropped()
    }
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
