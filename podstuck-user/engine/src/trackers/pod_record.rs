//! The pod's record, judged by how far the deletion has come on this node.

use crate::{
    event::{Event, What},
    model::{diagnosis::Stage, identity::Pod},
    rules::pod_record::{Here, verdict},
    stage,
    tracker::{Context, Steps, Tracker, TrackerId},
};

/// What is known of the node when the record comes.
#[derive(Default)]
pub(crate) struct PodRecords {
    sample: Option<std::sync::Arc<crate::model::node::NodeSample>>,
}

impl PodRecords {
    /// How far the pod has come; `None` while nobody has looked.
    fn stage(&self, pod: &Pod) -> Option<Stage> {
        let sample = self.sample.as_ref()?;
        let state = sample.pods.iter().find(|state| state.uid == pod.uid);
        Some(stage::stage(pod, state).stage)
    }
}

impl Tracker for PodRecords {
    fn id(&self) -> TrackerId {
        TrackerId::PodRecord
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Sample(sample) => self.sample = Some(sample.clone()),
            What::Record { record, node } => {
                let (stage, now) = (self.stage(&record.pod), context.calendar);
                let here = Here { node, stage, now, at: context.now };
                steps.found(verdict(record, here));
            }
            _ => {}
        }
    }
}
