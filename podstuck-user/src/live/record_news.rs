//! Asks the API server again during a watch, about the pods that matter then: those being deleted, and those gone
//! from this node. The records read at the start do not show later deletions.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::mpsc::{Sender, channel},
    thread::Builder,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::model::{
    identity::Pod, node::NodeSample, node_record::NodeRecord, pod_record::PodRecord,
};
use podstuck_confine::{back_off::BackOff, role::Role};
use podstuck_node::state::{
    api::{self, Api, As, Asked},
    kubelet,
};

use crate::cli;

/// Shortest interval between queries. With [`TOGETHER`] and the node's own two objects, that makes 48 requests a
/// minute at most.
const EVERY: Duration = Duration::from_secs(10);
/// Limit of pods in one query.
const TOGETHER: usize = 6;
/// Limit of pods followed.
const PODS: usize = 1024;
/// A healthy deletion is over within this time, unless its containers take longer to end.
const GOING: Duration = Duration::from_secs(10);
/// Once nothing is left on the node, kubelet releases the record within this time.
const LEFT: Duration = Duration::from_secs(5);
/// First interval between queries about a pod, which doubles up to [`SELDOM`].
const AGAIN: Duration = Duration::from_secs(10);
const SELDOM: Duration = Duration::from_secs(300);
/// kubelet's housekeeping removes the directory of a gone pod within this time.
const HOUSEKEEPING: Duration = Duration::from_secs(6);
/// A kubelet that is down for this long may have missed deletions, which then only the API server knows.
const NO_KUBELET: Duration = Duration::from_secs(5);
/// The default grace period of pods, in seconds: a record with no longer one is not reported before its end.
const DEFAULT_GRACE_S: u64 = 30;

/// New data of the API server.
#[derive(Debug, Default, PartialEq)]
pub(super) struct News {
    pub(super) records: Vec<PodRecord>,
    pub(super) nodes: Vec<NodeRecord>,
}

/// The asking thread, and its schedule.
pub(super) struct RecordNews {
    schedule: Schedule,
    /// `None` when the API server may not be asked, or the asking thread has ended.
    asker: Option<Sender<Asked>>,
    has_ended: bool,
    answers: UnboundedReceiver<Api>,
}

impl RecordNews {
    /// Starts the thread, if permitted.
    pub(super) fn start(
        host_root: PathBuf,
        kubelet_roots: Vec<PathBuf>,
        choice: Option<&cli::Api>,
    ) -> Self {
        let (sender, answers) = unbounded_channel();
        let whose = choice.and_then(whose);
        let may_ask = whose.is_some();
        let asker = whose.and_then(|whose| {
            let (asker, asked) = channel();
            let ask = move || {
                Role::Look.assume();
                for about in asked {
                    // A restarted kubelet has another process id.
                    let (kubelets, _) = kubelet::running(&host_root, &kubelet_roots);
                    if sender.send(api::ask(&host_root, &whose, &kubelets, &about)).is_err() {
                        return;
                    }
                }
            };
            let started = Builder::new().name("records".into()).spawn(ask);
            let failed = |error: &_| tracing::warn!("the API server is not asked again: {error}");
            started.inspect_err(failed).ok().map(|_| asker)
        });
        let has_ended = may_ask && asker.is_none();
        Self { schedule: Schedule::default(), asker, has_ended, answers }
    }

    /// Whether the thread that asks could not begin, or has ended before the run.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Takes a sample of the node, and asks about pods being deleted, where the API server may be asked; returns
    /// earlier answers that only now matter.
    pub(super) fn look(
        &mut self,
        sample: &NodeSample,
        going: impl FnOnce() -> Vec<Pod>,
        names: impl FnMut(Pod) -> Pod,
    ) -> News {
        let Some(asker) = &self.asker else { return News::default() };
        let now = Instant::now();
        let news = self.schedule.look(now, sample, &going(), names);
        if let Some(asked) = self.schedule.due(now) {
            self.has_ended = asker.send(asked).is_err();
        }
        if self.has_ended {
            self.asker = None;
        }
        news
    }

    /// Number of pods dropped from the schedule because there were too many.
    pub(super) fn dropped(&self) -> u64 {
        self.schedule.dropped
    }

    /// Waits for an answer. Safe to cancel.
    pub(super) async fn next(&mut self) -> Api {
        match self.answers.recv().await {
            Some(api) => api,
            // No thread asks.
            None => std::future::pending().await,
        }
    }

    /// Takes an answer.
    pub(super) fn answered(&mut self, api: Api, names: impl FnMut(Pod) -> Pod) -> News {
        self.schedule.answered(Instant::now(), Timestamp::now(), api, names)
    }
}

/// With whose credentials requests are made; `None` if none are permitted.
pub(super) fn whose(choice: &cli::Api) -> Option<As> {
    match choice {
        cli::Api::Never => None,
        cli::Api::Auto => Some(As::Kubelet),
        cli::Api::File(path) => Some(As::File(path.clone())),
    }
}

/// A followed pod.
struct Followed {
    pod: Pod,
    next: Instant,
    pause: Duration,
    is_here: bool,
    /// Whether its record was reported.
    is_reported: bool,
    /// Since when the API server does not have it.
    missing: Option<Instant>,
}

/// The schedule of queries. It reads no clock.
#[derive(Default)]
struct Schedule {
    pods: BTreeMap<String, Followed>,
    /// The pods of the previous sample.
    here: BTreeMap<String, Pod>,
    /// Since when no kubelet runs.
    no_kubelet: Option<Instant>,
    /// When to query all pods next, and the interval after that.
    list: Option<(Instant, Duration)>,
    asked: Option<Instant>,
    /// The pods of the query in progress.
    open: Option<Vec<String>>,
    back_off: BackOff,
    node: Option<NodeRecord>,
    /// Number of pods dropped because there were too many.
    dropped: u64,
}

impl Schedule {
    fn look(
        &mut self,
        now: Instant,
        sample: &NodeSample,
        going: &[Pod],
        mut names: impl FnMut(Pod) -> Pod,
    ) -> News {
        let here: BTreeMap<String, Pod> =
            sample.pods.iter().map(|pod| (pod.uid.clone(), pod.named())).collect();
        for pod in going.iter().filter(|pod| here.contains_key(&pod.uid)) {
            self.follow(pod, now + GOING, &mut names);
        }
        // Pods gone from a root that was not read are unknown.
        if sample.unread.is_empty() {
            let left = std::mem::take(&mut self.here).into_values();
            for pod in left.filter(|pod| !here.contains_key(&pod.uid)) {
                let next = now + LEFT;
                self.follow(&pod, next, &mut names);
                if let Some(known) = self.pods.get_mut(&pod.uid) {
                    (known.next, known.pause) = (next, AGAIN);
                }
            }
            self.pods.iter_mut().for_each(|(uid, it)| it.is_here = here.contains_key(uid));
            self.here = here;
        }
        self.note_kubelets(now, sample);
        self.report_missing(now)
    }

    /// Follows a pod, if it is not followed and has a name. At the limit, the pod that was asked about most often is
    /// dropped.
    fn follow(&mut self, pod: &Pod, next: Instant, names: &mut impl FnMut(Pod) -> Pod) {
        if self.pods.contains_key(&pod.uid) {
            return;
        }
        let pod = names(pod.clone());
        let has_name = pod.namespace.is_some() && pod.name.is_some();
        // A static pod has no record of its own, and a UID that is a hash.
        if !has_name || !pod.uid.contains('-') {
            return;
        }
        if self.pods.len() >= PODS {
            let longest = self.pods.iter().max_by_key(|(_, it)| it.pause);
            let uid = longest.map(|(uid, _)| uid.clone());
            self.dropped += u64::from(uid.and_then(|uid| self.pods.remove(&uid)).is_some());
        }
        let (uid, pause) = (pod.uid.clone(), AGAIN);
        let followed =
            Followed { pod, next, pause, is_here: true, is_reported: false, missing: None };
        self.pods.insert(uid, followed);
    }

    fn note_kubelets(&mut self, now: Instant, sample: &NodeSample) {
        let is_halted = |pid: &u32| sample.halted_kubelets.iter().any(|it| it.pid == *pid);
        if sample.pods.is_empty() || !sample.kubelets.iter().all(is_halted) {
            (self.no_kubelet, self.list) = (None, None);
            return;
        }
        let since = *self.no_kubelet.get_or_insert(now);
        if self.list.is_none() {
            self.list = Some((since + NO_KUBELET, AGAIN));
        }
    }

    /// Pods that are still here some time after the API server dropped their record.
    fn report_missing(&mut self, now: Instant) -> News {
        let is_over = |it: &Followed| {
            it.is_here && it.missing.is_some_and(|since| now.duration_since(since) > HOUSEKEEPING)
        };
        let (over, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.pods).into_iter().partition(|(_, it)| is_over(it));
        self.pods = others;
        let missing: Vec<Pod> = over.into_values().map(|it| it.pod).collect();
        let node = self.node.clone().filter(|_| !missing.is_empty());
        let nodes = node.map(|node| NodeRecord { missing, ..node }).into_iter().collect();
        News { records: Vec::new(), nodes }
    }

    /// The query that is due now.
    fn due(&mut self, now: Instant) -> Option<Asked> {
        let is_soon = self.asked.is_some_and(|asked| now.duration_since(asked) < EVERY);
        if self.open.is_some() || is_soon {
            return None;
        }
        let lists = self.list.is_some_and(|(next, _)| next <= now);
        let mut due: Vec<&Followed> = self
            .pods
            .values()
            .filter(|it| it.next <= now && it.missing.is_none_or(|_| !it.is_here))
            .collect();
        if !lists && due.is_empty() || !self.back_off.is_due(now) {
            return None;
        }
        due.sort_by_key(|it| it.next);
        let pods: Vec<Pod> = due.into_iter().take(TOGETHER).map(|it| it.pod.clone()).collect();
        self.asked = Some(now);
        if let Some((next, pause)) = self.list.as_mut().filter(|_| lists) {
            self.open = Some(Vec::new());
            *next = now + *pause;
            *pause = (*pause * 2).min(SELDOM);
            return Some(Asked::NoPod);
        }
        self.open = Some(pods.iter().map(|pod| pod.uid.clone()).collect());
        Some(Asked::Those(pods))
    }

    fn answered(
        &mut self,
        now: Instant,
        calendar: Timestamp,
        api: Api,
        mut names: impl FnMut(Pod) -> Pod,
    ) -> News {
        let asked = self.open.take().unwrap_or_default();
        let has_answer = matches!(api.place, Some(Ok(_)));
        if let Some(Err(why)) = &api.place {
            tracing::info!("no answer from the API server: {why}");
        }
        self.back_off.came_to(has_answer);
        // An unanswered pod may be the one that a server hangs at: others come first.
        for uid in &asked {
            if let Some(it) = self.pods.get_mut(uid) {
                it.next = now + it.pause;
                it.pause = (it.pause * 2).min(SELDOM);
            }
        }
        let mut news = News::default();
        for record in api.pods {
            let Some(by) = record.deletion else { continue };
            // Before the end of a default grace period, the record is not reported.
            let is_reported = by <= calendar || record.grace_s > DEFAULT_GRACE_S;
            self.follow(&record.pod, now + AGAIN, &mut names);
            if let Some(known) = self.pods.get_mut(&record.pod.uid) {
                known.is_here = self.here.contains_key(&record.pod.uid);
                known.is_reported |= is_reported;
            }
            if is_reported {
                let pod = names(record.pod.clone());
                news.records.push(PodRecord { pod, ..record });
            }
        }
        // With several kubelets, the pod's node is unknown.
        let Ok([node]) = <[_; 1]>::try_from(api.nodes) else { return news };
        let node = node.record;
        self.node = Some(node.clone());
        let mut missing = Vec::new();
        let gone: BTreeSet<String> = api.gone.into_iter().map(|pod| pod.uid).collect();
        for uid in gone {
            let Some(known) = self.pods.get_mut(&uid) else { continue };
            if known.is_here {
                known.missing.get_or_insert(now);
            } else if let Some(known) = self.pods.remove(&uid)
                && known.is_reported
            {
                missing.push(known.pod);
            }
        }
        news.nodes.push(NodeRecord { missing, ..node });
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use podstuck_node::state::api::OfNode;
    use podstuck_testing::samples;

    const SECOND: Duration = Duration::from_secs(1);

    fn uid(number: usize) -> String {
        format!("0f0e0d0c-1111-2222-3333-4444555566{number:02}")
    }

    fn pod(number: usize) -> Pod {
        Pod {
            uid: uid(number),
            namespace: Some("shop".into()),
            name: Some(format!("cart-{number}")),
        }
    }

    fn sample(numbers: &[usize]) -> NodeSample {
        let state = |number: &usize| samples::pod_state(&uid(*number));
        NodeSample {
            pods: numbers.iter().map(state).collect(),
            kubelets: vec![7],
            ..NodeSample::default()
        }
    }

    /// Names come from another source than the sample.
    fn named(unnamed: Pod) -> Pod {
        pod(unnamed.uid[34..].parse().unwrap())
    }

    fn record(number: usize, grace_s: u64, deletion: Option<Timestamp>) -> PodRecord {
        PodRecord {
            pod: pod(number),
            deletion,
            grace_s,
            finalizers: vec!["example.org/x".into()],
            node: Some("n".into()),
            ..samples::pod_record("")
        }
    }

    fn api(pods: Vec<PodRecord>, gone: Vec<Pod>) -> Api {
        let record = NodeRecord {
            node: "n".into(),
            read: Timestamp::UNIX_EPOCH,
            ready: None,
            kubelet: None,
            drivers: None,
            missing: Vec::new(),
        };
        let nodes = vec![OfNode { record, root: None, all: None }];
        Api { place: Some(Ok("it".into())), pods, gone, nodes, ..Api::default() }
    }

    /// A schedule after a sample with these pods, all being deleted.
    fn going(numbers: &[usize]) -> (Schedule, Instant) {
        let (mut schedule, begin) = (Schedule::default(), Instant::now());
        let all: Vec<Pod> = numbers.iter().copied().map(pod).collect();
        schedule.look(begin, &sample(numbers), &all, named);
        (schedule, begin)
    }

    fn asked(about: Option<Asked>) -> usize {
        match about {
            Some(Asked::Those(pods)) => pods.len(),
            None => 0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_deletion_in_good_health_is_not_asked_about_and_a_long_one_is() {
        let (mut schedule, begin) = going(&[1]);
        assert_eq!(asked(schedule.due(begin)), 0);
        assert_eq!(asked(schedule.due(begin + GOING)), 1);
        assert_eq!(asked(schedule.due(begin + GOING * 9)), 0, "one is asked at a time");
    }

    #[test]
    fn however_many_are_deleted_a_minute_has_its_budget() {
        let numbers: Vec<usize> = (0..90).collect();
        let (mut schedule, begin) = going(&numbers);
        let mut all = 0;
        for second in 10..70 {
            let now = begin + SECOND * second;
            let count = asked(schedule.due(now));
            all += count + if count > 0 { 2 } else { 0 };
            schedule.answered(now, Timestamp::UNIX_EPOCH, api(Vec::new(), Vec::new()), |pod| pod);
        }
        assert_eq!(all, 48);
    }

    #[test]
    fn of_too_many_the_one_that_was_asked_about_goes_and_is_counted() {
        let (mut schedule, begin) = going(&[99]);
        let now = begin + GOING;
        assert_eq!(asked(schedule.due(now)), 1);
        schedule.answered(now, Timestamp::UNIX_EPOCH, api(Vec::new(), Vec::new()), |pod| pod);
        let mut follow = |number: usize| {
            let pod = Pod { uid: format!("u-{number}"), ..pod(1) };
            schedule.follow(&pod, now, &mut |pod| pod);
            (schedule.pods.len(), schedule.pods.contains_key(&uid(99)), schedule.dropped)
        };
        let full = (2..=PODS).map(&mut follow).last();
        assert_eq!(full, Some((PODS, true, 0)));
        assert_eq!(follow(PODS + 1), (PODS, false, 1));
    }

    #[test]
    fn a_server_that_does_not_answer_is_asked_less_and_less_often() {
        let (mut schedule, begin) = going(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let mut times = Vec::new();
        for second in 10..400 {
            let now = begin + SECOND * second;
            if asked(schedule.due(now)) > 0 {
                times.push(second);
                let silent = Api { place: Some(Err("no".into())), ..Api::default() };
                let news = schedule.answered(now, Timestamp::UNIX_EPOCH, silent, |pod| pod);
                assert_eq!(news, News::default());
            }
        }
        assert!(times.len() < 10, "{times:?}");
        assert!(times.windows(3).all(|it| it[2] - it[1] >= it[1] - it[0]), "{times:?}");
    }

    #[test]
    fn a_pod_that_left_the_node_is_reported_by_its_record_and_gone_without_one() {
        let (mut schedule, begin) = going(&[1]);
        let now = begin + SECOND;
        schedule.look(now, &sample(&[]), &[], named);
        let now = now + LEFT;
        assert_eq!(asked(schedule.due(now)), 1);
        let deleted = record(1, 30, Some(Timestamp::UNIX_EPOCH));
        let news = schedule.answered(
            now,
            Timestamp::UNIX_EPOCH,
            api(vec![deleted.clone()], Vec::new()),
            |it| it,
        );
        assert_eq!(news.records, [deleted]);
        let now = now + AGAIN;
        assert_eq!(asked(schedule.due(now)), 1);
        let gone = api(Vec::new(), vec![pod(1)]);
        let news = schedule.answered(now, Timestamp::UNIX_EPOCH, gone, |it| it);
        assert_eq!(news.nodes[0].missing, [pod(1)]);
        assert_eq!(asked(schedule.due(now + SELDOM)), 0, "it is not asked about any more");
    }

    #[test]
    fn a_pod_not_deleted_or_in_default_grace_is_not_reported() {
        let later = Timestamp::UNIX_EPOCH + SECOND * 20;
        let reported = |record| {
            let (mut schedule, begin) = going(&[1]);
            schedule.due(begin + GOING);
            let api = api(vec![record], Vec::new());
            let news = schedule.answered(begin + GOING, Timestamp::UNIX_EPOCH, api, |pod| pod);
            news.records.len()
        };
        assert_eq!(reported(record(1, 30, None)), 0);
        assert_eq!(reported(record(1, 30, Some(later))), 0);
        assert_eq!(reported(record(1, 600, Some(later))), 1);
    }

    #[test]
    fn a_recreated_pod_is_reported_only_while_something_of_the_first_stays() {
        let (mut schedule, begin) = going(&[1]);
        let now = begin + GOING;
        assert_eq!(asked(schedule.due(now)), 1);
        let gone = api(Vec::new(), vec![pod(1)]);
        let news = schedule.answered(now, Timestamp::UNIX_EPOCH, gone, |pod| pod);
        assert!(news.nodes[0].missing.is_empty(), "kubelet may be about to remove it");
        assert_eq!(schedule.look(now + SECOND, &sample(&[1]), &[], named), News::default());
        let news = schedule.look(now + HOUSEKEEPING + SECOND, &sample(&[1]), &[], named);
        assert_eq!(news.nodes[0].missing, [pod(1)]);
    }

    #[test]
    fn all_are_asked_for_while_no_kubelet_runs_that_could_hear_of_deletions() {
        let (mut schedule, begin) = (Schedule::default(), Instant::now());
        let without = NodeSample { kubelets: Vec::new(), ..sample(&[1]) };
        schedule.look(begin, &without, &[], named);
        assert!(schedule.due(begin).is_none());
        let mut times = Vec::new();
        for second in 0..70 {
            let now = begin + SECOND * second;
            if schedule.due(now).is_some_and(|asked| asked == Asked::NoPod) {
                times.push(second);
                schedule.answered(now, Timestamp::UNIX_EPOCH, api(Vec::new(), Vec::new()), |p| p);
            }
        }
        assert_eq!(times, [5, 15, 35]);
        schedule.look(begin + SECOND * 80, &sample(&[1]), &[], named);
        assert!(schedule.due(begin + SECOND * 200).is_none(), "it runs again");
    }
}
