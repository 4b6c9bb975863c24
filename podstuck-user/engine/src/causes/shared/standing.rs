//! Since when a pod has been as it is, by what others have left behind, so that who comes late need not
//! wait as long again.
//!
//! Times of directories prove that something was made or removed then. That nothing was tried since, they
//! do not: a call that is refused changes none.

use crate::{
    model::{
        evidence::Source,
        node::{NodeSample, PodState, VolumeState},
        time::Monotonic,
    },
    tracker::Context,
    verdict::Draft,
};

/// What others have left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The latest of all these times.
    pub(crate) since: Monotonic,
    /// Something was made or removed in the pod's directories.
    changed: Monotonic,
    /// By then its containers had ended; and the log that says so.
    ended: (Monotonic, Option<String>),
    /// The last volume of it was removed that has left a trace.
    pub(crate) volume_removed: Option<Monotonic>,
    /// kubelet was started.
    kubelet: Monotonic,
    /// The driver was started.
    driver: Option<Monotonic>,
}

impl Standing {
    /// Of a volume; `None` when one of the times is unknown. `ended` is when the last container ended, by
    /// the log that says so.
    pub(crate) fn of(
        context: &Context<'_>,
        sample: &NodeSample,
        pod: &PodState,
        volume: &VolumeState,
        ended: Option<(Monotonic, &str)>,
    ) -> Option<Self> {
        let changed = context.when(pod.changed?);
        let volume_removed = pod.volume_removed.map(|at| context.when(at));
        // Volumes are removed after the containers' end.
        let ended = match ended {
            Some((at, log)) => (at, Some(log.to_owned())),
            None => (volume_removed?, None),
        };
        let kubelet = sample.kubelet_since?;
        let driver = volume.driver().map(|driver| driver.started);
        let since = changed.max(ended.0).max(kubelet).max(driver.unwrap_or_default());
        Some(Self { since, changed, ended, volume_removed, kubelet, driver })
    }

    /// By then the pod's containers had ended.
    pub(crate) fn ended(&self) -> Monotonic {
        self.ended.0
    }

    /// The facts, and what follows from them.
    pub(crate) fn tell(&self, draft: &mut Draft, now: Monotonic) {
        let minutes = |at| minutes(now, at);
        let (at, log) = &self.ended;
        if let Some(log) = log {
            let fact = format!("the pod's containers have been gone for {}", minutes(*at));
            draft.fact_since(fact, Source::Log(log.clone()), *at);
        }
        draft.fact_since(
            format!(
                "nothing was made or removed in the pod's directories for {}",
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
            format!("so the volume has been left as it is for {}", minutes(self.since)),
            Source::Inference,
            self.since,
        );
    }
}

/// How long ago, as people say it.
pub(crate) fn minutes(now: Monotonic, then: Monotonic) -> String {
    match now.since(then).as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}
