//! kubelet's progress with a pod's deletion, by its log: whether it has received the deletion, and whether it has
//! asked the runtime to stop a container.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};

use crate::{
    bounded::Bounded,
    event::What,
    model::{
        identity::Component,
        pod_record::PodRecord,
        said::{self, Complaint, Heard, Level, Report, Said},
    },
};

/// Maximum number of stored pods.
const REMEMBERED: usize = 4096;
/// Tolerance: the API server's times are whole seconds of another clock.
const SLACK: SignedDuration = SignedDuration::from_secs(2);
/// kubelet asks the runtime within a moment after it receives the deletion, and its log is read every two seconds.
const SOON: SignedDuration = SignedDuration::from_secs(5);
/// client-go's reflector waits at most half a minute between two attempts, and up to the same again as jitter.
const FRESH: SignedDuration = SignedDuration::from_secs(120);
/// Failures after which a watch counts as failing: a single failure is retried.
const AGAIN: u64 = 3;

/// kubelet's last messages about a pod.
#[derive(Clone, Debug, Default)]
struct Of {
    /// The log that contains them.
    log: Option<String>,
    /// kubelet has received the pod.
    added: Option<Timestamp>,
    /// kubelet has received the deletion.
    to_go: Option<Timestamp>,
    /// kubelet has asked for the stop of a container, or a later step has happened.
    came_on: Option<Timestamp>,
    /// The end of the last grace period that kubelet gave the runtime for a container, and when it began.
    stop: Option<(Timestamp, Timestamp)>,
    /// The last step of another kind: a container has ended, or a stop has failed.
    other_step: Option<Timestamp>,
    /// When a stop failed last: kubelet asks again, and the runtime gets a grace period again that is not the pod's.
    stop_failed: Option<Timestamp>,
}

/// A failing watch of pods.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) first: Timestamp,
    pub(crate) said: Said,
}

/// The progress of all pods.
#[derive(Default)]
pub(crate) struct KubeletSteps {
    /// By log.
    heard: BTreeMap<String, Heard>,
    of: Bounded<String, Of, REMEMBERED>,
    /// By log.
    watches: BTreeMap<String, Watch>,
}

/// Evidence that kubelet has not asked the runtime to stop a container of a pod in deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotAsked<'a> {
    /// The start of the period in which the log lacks that step.
    pub(crate) since: Timestamp,
    /// When it received the deletion, if it has.
    pub(crate) received: Option<Timestamp>,
    /// Its log goes back to before the request and has neither the deletion nor a later receipt of the pod.
    pub(crate) is_unheard: bool,
    pub(crate) log: &'a str,
}

impl NotAsked<'_> {
    /// The evidence as a fact.
    pub(crate) fn fact(&self) -> String {
        match self.received {
            Some(at) => format!(
                "kubelet's log has `SyncLoop DELETE` of the pod at {at:.0}, and no `Killing container` since: kubelet has not asked \
                 the runtime to stop a container"
            ),
            None => format!(
                "kubelet's log has neither `SyncLoop DELETE` of the pod nor `Killing container` since {:.0}: kubelet has not asked \
                 the runtime to stop a container",
                self.since
            ),
        }
    }
}

/// The time at which a pod's deletion was requested.
pub(crate) fn requested(record: &PodRecord) -> Option<Timestamp> {
    let grace = SignedDuration::from_secs(i64::try_from(record.grace_s).unwrap_or(i64::MAX));
    let by = record.deletion?;
    Some(by.checked_sub(grace).unwrap_or(by))
}

impl KubeletSteps {
    /// Takes kubelet's log messages.
    pub(crate) fn listen(&mut self, what: &What) {
        match what {
            What::Said(said) => self.said(said),
            What::Heard(heard) => self.heard(heard),
            _ => {}
        }
    }

    /// Takes a part of a log. What kubelet logs is known as long as the parts follow each other: a quiet one has none of
    /// its steps.
    fn heard(&mut self, heard: &Heard) {
        let mut heard = heard.clone();
        if let Some(before) = self.heard.get(&heard.source).filter(|it| heard.since <= it.until) {
            heard.names_steps |= before.names_steps;
        }
        self.heard.insert(heard.source.clone(), heard);
    }

    fn said(&mut self, said: &Said) {
        if said.complaint == Some(Complaint::WatchFails) {
            let before = self.watches.remove(&said.source);
            let times = before.as_ref().map_or(0, |watch| watch.said.times) + said.times;
            let first = before.map_or(said.at, |watch| watch.first.min(said.at));
            let watch = Watch { first, said: Said { times, ..said.clone() } };
            self.watches.insert(said.source.clone(), watch);
            return;
        }
        if said.uid.is_empty() {
            return;
        }
        let of_runtime =
            matches!(said.component, Component::Containerd | Component::Dockerd | Component::CriO);
        let is_stop = || {
            let words = ["Kill", "StopContainer", "StopPodSandbox"];
            words.iter().any(|word| said.text.contains(word))
        };
        let came_on = match said.report {
            Some(
                Report::Added
                | Report::ToGo
                | Report::Attached
                | Report::SetUp
                | Report::VolumeStep,
            ) => false,
            Some(_) => true,
            None => of_runtime || !said.volume.is_empty() || is_stop(),
        };
        let of = self.of.or_insert_with(said.uid.clone(), Of::default);
        if said.component == Component::Kubelet && !said::is_unproven(&said.source) {
            of.log = Some(said.source.clone());
        }
        let last = |known: &mut Option<Timestamp>| *known = Some(said.at).max(*known);
        match said.report {
            Some(Report::Added) => last(&mut of.added),
            Some(Report::ToGo) => last(&mut of.to_go),
            _ if came_on => last(&mut of.came_on),
            _ => {}
        }
        if said.report == Some(Report::Killing) {
            let grace = said::grace_s(&said.text).and_then(|grace_s| i64::try_from(grace_s).ok());
            let end = grace.and_then(|it| said.at.checked_add(SignedDuration::from_secs(it)).ok());
            of.stop = end.map(|end| (end, said.at)).max(of.stop);
        } else if came_on {
            of.other_step = Some(said.at).max(of.other_step);
            if said.report.is_none() && is_stop() && said.level == Level::Error {
                of.stop_failed = Some(said.at).max(of.stop_failed);
            }
        }
    }

    /// The log of the pod's kubelet: the one that names the pod, or else the only one.
    pub(crate) fn log(&self, uid: &str) -> Option<&str> {
        let of = self.of.get(&uid.to_owned()).and_then(|of| of.log.as_deref());
        let mut all = self.heard.keys();
        let only = all.next().filter(|_| all.next().is_none());
        of.or(only.map(String::as_str))
    }

    /// The watch of the pod's kubelet, if it fails repeatedly and did so recently.
    pub(crate) fn watch(&self, uid: &str, now: Timestamp) -> Option<&Watch> {
        let lasts = |watch: &&Watch| {
            watch.said.times >= AGAIN && now.duration_since(watch.said.at) <= FRESH
        };
        let only = || self.watches.values().next().filter(|_| self.watches.len() == 1);
        let watch = match self.log(uid) {
            Some(log) => self.watches.get(log),
            None => only(),
        };
        watch.filter(lasts)
    }

    /// Whether kubelet has received the deletion.
    pub(crate) fn has_received(&self, uid: &str) -> bool {
        self.of.get(&uid.to_owned()).is_some_and(|of| of.to_go.is_some())
    }

    /// When the last grace period ends that kubelet gave the runtime for a container of the pod, and the log. `None`
    /// after any later step: that container may have ended. `None` also after a stop that failed since the
    /// deletion: the runtime did not end the container within the first grace period.
    pub(crate) fn stop_ends(&self, uid: &str) -> Option<(Timestamp, &str)> {
        let of = self.of.get(&uid.to_owned())?;
        let (ends, began) = of.stop?;
        let log = of.log.as_deref()?;
        let has_failed = of.stop_failed.is_some_and(|at| of.to_go.is_none_or(|to_go| at >= to_go));
        (!has_failed && of.other_step.is_none_or(|at| at < began)).then_some((ends, log))
    }

    /// Whether kubelet or the runtime has acted on the pod since the request.
    pub(crate) fn has_acted(&self, uid: &str, requested: Option<Timestamp>) -> bool {
        let came_on = self.of.get(&uid.to_owned()).and_then(|of| of.came_on);
        let after = |at: Timestamp| {
            requested.is_none_or(|requested| at.duration_since(requested) >= -SLACK)
        };
        came_on.is_some_and(after)
    }

    /// Evidence that kubelet has not asked the runtime to stop a container. It requires a log that names each step
    /// and goes back to before the request, or to the moment in which this kubelet received the pod.
    pub(crate) fn not_asked(
        &self,
        uid: &str,
        requested: Option<Timestamp>,
        grace: Duration,
        now: Timestamp,
    ) -> Option<NotAsked<'_>> {
        if self.has_acted(uid, requested) {
            return None;
        }
        let heard = self.heard.get(self.log(uid)?).filter(|heard| heard.names_steps)?;
        let of = self.of.get(&uid.to_owned()).cloned().unwrap_or_default();
        let (since, log) = (heard.since, heard.source.as_str());
        let is_whole = requested.is_some_and(|requested| since <= requested);
        if let Some(received) = of.to_go {
            let is_known = is_whole || of.added.is_some_and(|added| added <= received);
            let is_late = now.duration_since(received) >= SOON;
            let (since, received, is_unheard) = (received, Some(received), false);
            let found = NotAsked { since, received, is_unheard, log };
            return (is_known && is_late).then_some(found);
        }
        let requested = requested?;
        let added = of.added.filter(|added| *added >= requested);
        match added {
            None if is_whole => {
                Some(NotAsked { since: requested, received: None, is_unheard: true, log })
            }
            // kubelet receives the deletion together with the pod, and may wait for the grace period.
            Some(added) => {
                let grace = SignedDuration::try_from(grace).unwrap_or(SignedDuration::MAX);
                let is_late = now.duration_since(added) >= grace.saturating_add(SOON);
                let (since, received, is_unheard) = (added, None, false);
                is_late.then_some(NotAsked { since, received, is_unheard, log })
            }
            None => None,
        }
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.of.dropped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
    const GRACE: Duration = Duration::from_secs(30);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn steps(since: i64, reports: &[(Report, i64)]) -> KubeletSteps {
        let mut steps = KubeletSteps::default();
        for (report, second) in reports {
            let said = Said::new(Component::Kubelet, "log", UID, at(*second), "x");
            steps.listen(&What::Said(Box::new(Said { report: Some(*report), ..said })));
        }
        let (source, until) = ("log".into(), at(900));
        let heard = Heard { source, since: at(since), until, names_steps: true };
        steps.listen(&What::Heard(Box::new(heard)));
        steps
    }

    #[test]
    fn the_last_grace_period_that_the_runtime_was_given_counts() {
        let mut steps = KubeletSteps::default();
        let killing = |second, text: &str| {
            let said = Said::new(Component::Kubelet, "log", UID, at(second), text);
            What::Said(Box::new(Said { report: Some(Report::Killing), ..said }))
        };
        steps.listen(&killing(500, "Killing container"));
        assert_eq!(steps.stop_ends(UID), None);
        steps.listen(&killing(501, "Killing container with a grace period of 60 s"));
        steps.listen(&killing(502, "Killing container with a grace period of 2 s"));
        assert_eq!(steps.stop_ends(UID), Some((at(561), "log")));
        let ended = |second| {
            let said = Said::new(Component::Kubelet, "log", UID, at(second), "x");
            What::Said(Box::new(Said { report: Some(Report::ContainerEnded), ..said }))
        };
        steps.listen(&ended(450));
        assert!(steps.stop_ends(UID).is_some(), "an earlier one, as before a restart");
        steps.listen(&ended(503));
        assert_eq!(steps.stop_ends(UID), None);
    }

    /// cri-o#7004: each attempt gives the runtime the grace period again.
    #[test]
    fn no_grace_period_counts_after_a_stop_that_failed() {
        let mut steps = KubeletSteps::default();
        let mut says = |second, level, report, text: &str| {
            let said = Said::new(Component::Kubelet, "log", UID, at(second), text);
            steps.listen(&What::Said(Box::new(Said { report, level, ..said })));
            steps.stop_ends(UID).is_some()
        };
        let stops = "Killing container with a grace period of 30 s";
        assert!(says(500, Level::Info, Some(Report::Killing), stops));
        let failed =
            "failed to \"KillContainer\" for \"init\" with KillContainerError: \"rpc error\"";
        assert!(!says(650, Level::Error, None, failed));
        assert!(!says(651, Level::Info, Some(Report::Killing), stops));
        // A restart of the container that failed before the deletion says nothing about it.
        says(700, Level::Info, Some(Report::ToGo), "SyncLoop DELETE");
        assert!(says(730, Level::Info, Some(Report::Killing), stops));
    }

    fn not_asked(since: i64, reports: &[(Report, i64)]) -> Option<(i64, bool, bool)> {
        let steps = steps(since, reports);
        let found = steps.not_asked(UID, Some(at(500)), GRACE, at(600))?;
        Some((found.since.as_second(), found.received.is_some(), found.is_unheard))
    }

    #[test]
    fn what_is_missing_counts_only_in_a_log_that_would_have_it() {
        use Report::{Added, ContainerEnded, Killing, ToGo};
        assert_eq!(not_asked(400, &[]), Some((500, false, true)));
        assert_eq!(not_asked(400, &[(Added, 450)]), Some((500, false, true)));
        assert_eq!(not_asked(550, &[]), None, "the log begins too late");
        assert_eq!(not_asked(400, &[(ToGo, 501)]), Some((501, true, false)));
        assert_eq!(not_asked(550, &[(ToGo, 560)]), None, "it may have heard of it before");
        assert_eq!(not_asked(550, &[(Added, 551), (ToGo, 560)]), Some((560, true, false)));
        assert_eq!(not_asked(400, &[(ToGo, 501), (Killing, 502)]), None);
        assert_eq!(not_asked(400, &[(ToGo, 501), (ContainerEnded, 502)]), None);
        assert_eq!(
            not_asked(400, &[(Killing, 450), (ToGo, 501)]),
            Some((501, true, false)),
            "a restart"
        );
        assert_eq!(not_asked(400, &[(ToGo, 597)]), None, "it has just heard");
        // A kubelet that was started after the request receives both at once.
        assert_eq!(not_asked(550, &[(Added, 551)]), Some((551, false, false)));
        assert_eq!(not_asked(550, &[(Added, 570)]), None, "its grace lasts");
    }

    #[test]
    fn a_log_that_does_not_name_each_step_is_missing_nothing() {
        let mut steps = KubeletSteps::default();
        let (source, since, until) = ("log".into(), at(400), at(900));
        let heard = Heard { source, since, until, names_steps: false };
        steps.listen(&What::Heard(Box::new(heard.clone())));
        assert_eq!(steps.not_asked(UID, Some(at(500)), GRACE, at(600)), None);
        let log_of = |steps: &KubeletSteps| {
            steps.not_asked(UID, Some(at(500)), GRACE, at(600)).map(|found| found.log.to_owned())
        };
        let whole = |source: &str| {
            let heard = Heard { source: source.into(), names_steps: true, ..heard.clone() };
            What::Heard(Box::new(heard))
        };
        steps.listen(&whole("log"));
        assert_eq!(log_of(&steps).as_deref(), Some("log"));
        steps.listen(&What::Heard(Box::new(heard.clone())));
        assert_eq!(log_of(&steps).as_deref(), Some("log"), "its next part is quiet");
        let gap = Heard { since: at(901), until: at(950), ..heard.clone() };
        steps.listen(&What::Heard(Box::new(gap)));
        assert_eq!(log_of(&steps), None, "a part is missing");
        steps.listen(&whole("log"));
        steps.listen(&whole("another"));
        assert_eq!(log_of(&steps), None, "whose is it?");
        steps.listen(&What::Said(Box::new(Said::new(
            Component::Kubelet,
            "another",
            UID,
            at(450),
            "x",
        ))));
        assert_eq!(log_of(&steps).as_deref(), Some("another"));
    }

    #[test]
    fn a_watch_counts_that_fails_again_and_again_and_still() {
        let mut steps = KubeletSteps::default();
        let said = Said::new(Component::Kubelet, "log", "", at(500), "Unauthorized");
        let fails = Said { complaint: Some(Complaint::WatchFails), times: 2, ..said };
        steps.listen(&What::Said(Box::new(fails.clone())));
        assert!(steps.watch(UID, at(501)).is_none());
        steps.listen(&What::Said(Box::new(Said { at: at(530), times: 1, ..fails })));
        let watch = steps.watch(UID, at(560)).unwrap();
        assert_eq!((watch.first, watch.said.times), (at(500), 3));
        assert!(steps.watch(UID, at(700)).is_none());
    }
}
