//! Since when a pod's state lasts, by traces of other components, so that a late run need not wait as long again.
//!
//! Times of directories prove that something was created or removed then. They do not prove that nothing was tried
//! since: a refused call changes none.

use crate::{
    model::{
        evidence::Source,
        node::{NodeSample, PodState, VolumeState},
        time::Monotonic,
    },
    tracker::Context,
    verdict::Draft,
};

/// The traces of other components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The latest of all these times.
    pub(crate) since: Monotonic,
    /// When something was last created or removed in the pod's directories.
    changed: Monotonic,
    /// When the pod's containers had ended, and the log that says so.
    ended: (Monotonic, Option<String>),
    /// When the last volume of the pod was removed, by its trace.
    pub(crate) volume_removed: Option<Monotonic>,
    /// When kubelet was started.
    kubelet: Monotonic,
    /// When the driver was started.
    driver: Option<Monotonic>,
}

impl Standing {
    /// The traces of a volume; `None` if a required time is unknown. `ended` is when the last container ended, and the
    /// log that says so.
    pub(crate) fn of(
        context: &Context<'_>,
        sample: &NodeSample,
        pod: &PodState,
        volume: &VolumeState,
        ended: Option<(Monotonic, &str)>,
    ) -> Option<Self> {
        let changed = context.when(pod.changed?);
        let volume_removed = pod.volume_removed.map(|at| context.when(at));
        // Volumes are removed only after the containers have ended.
        let ended = match ended {
            Some((at, log)) => (at, Some(log.to_owned())),
            None => (volume_removed?, None),
        };
        let kubelet = sample.kubelet_since?;
        let driver = volume.driver().map(|driver| driver.started);
        let since = changed.max(ended.0).max(kubelet).max(driver.unwrap_or_default());
        Some(Self { since, changed, ended, volume_removed, kubelet, driver })
    }

    /// When the pod's containers had ended.
    pub(crate) fn ended(&self) -> Monotonic {
        self.ended.0
    }

    /// Adds the facts, and their conclusion.
    pub(crate) fn tell(&self, draft: &mut Draft, now: Monotonic) {
        let minutes = |at| minutes(now, at);
        let (at, log) = &self.ended;
        if let Some(log) = log {
            let fact = format!("the pod's containers have been gone for {}", minutes(*at));
            draft.fact_since(fact, Source::Log(log.clone()), *at);
        }
        draft.fact_since(
            format!(
                "nothing was created or removed in the pod's directories for {}",
                minutes(self.changed)
            ),
            Source::file("kubelet's directory"),
            self.changed,
        );
        let driver = self.driver.map(|at| format!(", and the driver for {}", minutes(at)));
        draft.fact_since(
            format!("kubelet has run for {}{}", minutes(self.kubelet), driver.unwrap_or_default()),
            Source::proc("/proc"),
            self.since,
        );
        draft.fact_since(
            format!("so the volume has been left unchanged for {}", minutes(self.since)),
            Source::Inference,
            self.since,
        );
    }
}

/// The time since `then` in seconds, minutes or hours.
pub(crate) fn minutes(now: Monotonic, then: Monotonic) -> String {
    match now.since(then).as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}
