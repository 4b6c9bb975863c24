//! A live run: observations get their names and become events, and the engine's queries are answered.

mod completeness;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::Result;
use bytes::Bytes;
use podstuck_common::{
    count::CountKey,
    record::{RecordHead, call, reason},
};
use podstuck_engine::bounded::Bounded;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::{
    driver_logs::DriverLogs,
    lasting::Lasting,
    log_reader::LogNews,
    presenter::Presenter,
    record_news::{News, RecordNews},
    rooting::Rooting,
    unknown_roots::{Examined, UnknownRoots},
};
use crate::outcome::Exit;
use crate::{
    event::{Event, What},
    live::attribute::{Attributor, Named},
    model::{
        call::{Call, Outcome},
        degraded::Degraded,
        identity::{Component, Pod},
        operation::Operation,
        path::safe_path,
        said::{Heard, Said},
        summary::SelfCost,
        thread::Thread,
        time::Monotonic,
        totals::Totals,
    },
    query::{Answer, Query},
};
use podstuck_confine::{alive, clock, helper::Share};
use podstuck_node::{
    ask::{Asker, Node},
    state::{
        api::Api,
        asked::AsWhom,
        hung::{HungCalls, Notice, Report, Unmounted},
        logs::{Attempt, Logs},
        sample::{Lateness, Look},
        show_roots::Found,
    },
};
use podstuck_probe::{
    decode::{Record, decode},
    source::tables::Drained,
};
use podstuck_show::recording::Recorder;

/// Limit of volumes remembered.
const VOLUMES: usize = 4096;
/// Shortest interval between early samples.
const HURRY_EVERY: Duration = Duration::from_secs(10);

/// The inputs of a run other than the probes'.
pub(super) enum Arrival {
    /// An answer to a query.
    Answer(Box<(Query, Answer)>),
    /// A report of a call that hangs, or no longer does.
    Hung(Report),
    /// Lines of a CSI driver's log.
    Said(Vec<Said>),
    /// New lines of other logs.
    Logs(Logs),
    /// An answer of the API server during the run.
    Records(Box<Api>),
    /// The result of showing the target directories.
    Shown(Found),
    /// Whether a directory is kubelet's root.
    Examined(Examined),
}

/// Everything between the sources and the engine.
pub(super) struct Session {
    names: Attributor,
    rooting: Rooting,
    unknown_roots: UnknownRoots,
    presenter: Presenter,
    recorder: Option<Recorder>,
    asker: Asker,
    answers: UnboundedReceiver<(Query, Answer)>,
    hung: HungCalls,
    /// Processes that do not answer.
    silent: BTreeSet<u32>,
    log_news: LogNews,
    drivers: DriverLogs,
    records: RecordNews,
    /// Volumes named in lines about the pods in question.
    volumes: Bounded<String, (), VOLUMES>,
    looks: Lateness,
    undecodable: u64,
    look_alike: Option<String>,
    hurried: Option<Instant>,
    hurries: bool,
    degraded: Vec<Degraded>,
    ended: Option<Instant>,
    lasting: Option<Lasting>,
}

impl Session {
    /// A session without observations. Call it inside the runtime.
    pub(crate) fn new(
        names: Attributor,
        (rooting, unknown_roots): (Rooting, UnknownRoots),
        presenter: Presenter,
        mut recorder: Option<Recorder>,
        hung: HungCalls,
        (log_news, drivers, records): (LogNews, DriverLogs, RecordNews),
        whom: AsWhom,
    ) -> Self {
        if let Some(recorder) = &mut recorder {
            recorder.begin(presenter.run());
        }
        let (sender, answers) = mpsc::unbounded_channel();
        let (asker, looks) = (Asker::new(Node::new(whom), sender), Lateness::start(Instant::now()));
        Self {
            names,
            rooting,
            unknown_roots,
            presenter,
            recorder,
            asker,
            answers,
            hung,
            silent: BTreeSet::new(),
            log_news,
            drivers,
            records,
            volumes: Bounded::default(),
            looks,
            undecodable: 0,
            look_alike: None,
            hurried: None,
            hurries: false,
            degraded: Vec::new(),
            ended: None,
            lasting: None,
        }
    }

    /// Continues the counts of the processes before, if those of this one are to outlive it.
    pub(super) fn inherit(&mut self, inherited: Option<(Totals, Option<Lasting>)>) {
        if let Some((totals, lasting)) = inherited {
            self.presenter.inherit(totals);
            self.lasting = lasting;
        }
    }

    /// The counts of the node so far, if they outlive this process and have changed.
    pub(super) fn totals(&mut self) -> Option<Vec<u8>> {
        let lasting = self.lasting.as_mut().filter(|lasting| lasting.has_changed)?;
        lasting.has_changed = false;
        let text = self.presenter.totals().to_text(&lasting.lost, &lasting.raw_losses);
        text.inspect_err(|error| tracing::warn!("the counts cannot be kept: {error}")).ok()
    }

    /// The presenter of the run.
    pub(crate) fn presenter(&self) -> &Presenter {
        &self.presenter
    }

    /// Enters a fact. The names that it refers to enter before it.
    fn learn(&mut self, at: Monotonic, what: What) {
        for named in self.names.learned() {
            self.enter(Event { at, what: named });
        }
        self.enter(Event { at, what });
    }

    fn enter(&mut self, event: Event) {
        if let Some(recorder) = &mut self.recorder {
            recorder.event(&event);
        }
        for query in self.presenter.take(&event) {
            let pod = self.names.pod_of(query.target_id);
            self.asker.ask(pod.map_or(Share::Target(query.target_id), Share::Pod), query);
        }
    }

    /// Takes records of the ring.
    pub(crate) fn records(&mut self, records: &[Bytes]) {
        for bytes in records {
            let record = match decode(bytes) {
                Ok(record) => record,
                Err(error) => {
                    tracing::warn!("{error}");
                    self.undecodable += 1;
                    continue;
                }
            };
            match record.head.call {
                call::RENAME => {
                    self.names.renamed(&record);
                    continue;
                }
                call::EXEC => {
                    let head = &record.head;
                    let (pid, at) = (head.tgid, Monotonic(head.end_ns));
                    self.hung.notify(Notice::Executed { pid, at, actor: head.actor });
                    continue;
                }
                _ => {}
            }
            if record.head.reason & reason::LOOK_ALIKE != 0 && self.look_alike(&record) {
                self.attributed_late(&record);
            }
            if record.head.reason == reason::LOOK_ALIKE {
                continue;
            }
            let op = match self.names.operation(&record) {
                Named::Operation(op) => op,
                Named::Other => continue,
                Named::Unknown => {
                    self.undecodable += 1;
                    continue;
                }
            };
            if op.outcome == Outcome::OK && op.call != Call::Umount2 {
                // A process that has removed something there got an answer.
                alive::came_to(op.actor.pid, &op.path, true);
            }
            self.notify_of(&op, &record.head);
            tracing::debug!(
                "{} {} {} by {} ({}), reasons {:#x}",
                op.call.name(),
                crate::model::path::safe_path(&op.path),
                op.outcome.name(),
                op.actor.comm,
                op.actor.pid,
                op.reason
            );
            self.learn(op.end, What::Operation(op));
        }
    }

    /// Whether the node is to be sampled at once.
    pub(super) fn hurries(&mut self) -> bool {
        std::mem::take(&mut self.hurries)
    }

    /// The first one is reported. A process of the node may work in a new directory: then it counts as one until it
    /// was examined. Returns whether it is a failure in a directory that is known by now.
    fn look_alike(&mut self, record: &Record) -> bool {
        // Calls of other processes, in any number, cause no examination.
        let may_be_of_node = record.head.actor.is_root() != Some(false);
        if self.look_alike.is_some() && !may_be_of_node {
            return false;
        }
        let actor = self.names.actor(record.head.tgid, &record.head.actor).actor;
        if self.look_alike.is_none() {
            let path = record.path();
            let pod = actor.pod.as_ref().map(|pod| format!(", in pod {}", pod.uid));
            let (comm, pod) = (&actor.comm, pod.unwrap_or_default());
            let seen = format!("{} by {comm} (pid {}{pod})", safe_path(&path), actor.pid);
            self.look_alike = Some(seen);
        }
        if actor.component == Component::Workload {
            return false;
        }
        if self.hurried.is_none_or(|last| last.elapsed() >= HURRY_EVERY) {
            (self.hurried, self.hurries) = (Some(Instant::now()), true);
        }
        self.unknown_roots.take(record, &actor, self.names.roots())
    }

    /// Takes the result of an examination. If the directory is kubelet's, the probes know it from now on, and the
    /// earlier calls in it are attributed to their pods.
    fn examined(&mut self, examined: Examined) {
        let Some((root, records)) = self.unknown_roots.examined(examined) else { return };
        self.rooting.learn(root, self.names.roots());
        records.iter().for_each(|record| self.attributed_late(record));
    }

    /// A call that the probes did not recognise as a failure in a pod's directory.
    fn attributed_late(&mut self, record: &Record) {
        if let Some(op) = self.names.late(record) {
            self.learn(clock::now(), What::Operation(op));
        }
    }

    /// The probes reported a call: it may have hung, and may do so after its return.
    fn notify_of(&self, op: &Operation, head: &RecordHead) {
        let thread = Thread { pid: op.actor.pid, tid: op.tid };
        if op.has(reason::SLOW) {
            self.hung.notify(Notice::Returned(thread));
        }
        if op.call == Call::Umount2 {
            let unmounted = Unmounted {
                thread,
                entered: Monotonic(head.end_ns.saturating_sub(head.duration_ns)),
                returned: op.end,
                ok: head.errno == 0,
                path: op.path.clone(),
                actor: head.actor,
            };
            self.hung.notify(Notice::Unmounted(unmounted));
        }
    }

    /// Waits for an input other than the probes'. Safe to cancel.
    pub(super) async fn arrival(&mut self) -> Arrival {
        tokio::select! {
            Some(answered) = self.answers.recv() => Arrival::Answer(answered.into()),
            news = self.hung.next() => Arrival::Hung(news),
            said = self.drivers.next() => Arrival::Said(said),
            logs = self.log_news.next() => Arrival::Logs(logs),
            api = self.records.next() => Arrival::Records(Box::new(api)),
            shown = self.rooting.next() => Arrival::Shown(shown),
            Some(examined) = self.unknown_roots.next() => Arrival::Examined(examined),
        }
    }

    /// Reads what the node's containers log about a pod.
    pub(crate) fn ask_of(&mut self, pod: &Pod) {
        self.drivers.ask_of(pod);
    }

    /// Takes an input.
    pub(crate) fn take(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Answer(answered) => {
                let (query, answer) = *answered;
                self.answered(query, answer);
            }
            Arrival::Said(said) => self.said(said),
            Arrival::Logs(logs) => {
                self.names.learn(logs.pods);
                self.logs(&logs.attempts, logs.heard);
            }
            Arrival::Records(api) => {
                let news = self.records.answered(*api, |pod| self.names.pod(pod));
                self.news(news);
            }
            Arrival::Shown(shown) => self.rooting.shown(shown, self.names.roots()),
            Arrival::Examined(examined) => self.examined(examined),
            Arrival::Hung(Report::Seen(seen)) => {
                if let Some(seen) = self.names.stuck(*seen) {
                    self.learn(seen.at, What::Stuck(Box::new(seen)));
                }
            }
            Arrival::Hung(Report::Silent(pids)) => self.silent = pids,
            Arrival::Hung(Report::Took(took)) => {
                if let Some(phase) = self.names.phase(&took) {
                    self.learn(clock::now(), phase);
                }
            }
        }
    }

    fn said(&mut self, said: Vec<Said>) {
        said.into_iter().for_each(|said| self.learn(clock::now(), What::Said(Box::new(said))));
    }

    fn answered(&mut self, query: Query, mut answer: Answer) {
        if let Answer::Holders(Ok(taken)) = &mut answer {
            for holder in &mut taken.holders {
                holder.pod = holder.pod.take().map(|pod| self.names.pod(pod));
            }
        }
        let (query, answer) = (Box::new(query), Box::new(answer));
        self.learn(clock::now(), What::Answer { query, answer });
    }

    /// Targets forgotten since the last call: the probes are to send them again.
    pub(super) fn forgotten(&mut self) -> Vec<u64> {
        self.names.forgotten()
    }

    /// Takes drained counts, once a second.
    pub(super) fn tick(&mut self, drained: &Drained) {
        let counts = self.names.counts(drained);
        if let Some(lasting) = self.lasting.as_mut().filter(|_| !counts.is_empty()) {
            lasting.has_changed = true;
        }
        let on_target = |key: &CountKey| (key.target != 0).then_some(key.tgid);
        let mut pids: Vec<u32> = drained.counts.iter().filter_map(|(k, _)| on_target(k)).collect();
        pids.sort_unstable();
        pids.dedup();
        self.hung.notify(Notice::Deleted(pids));
        self.hung.notify(Notice::InFlight(drained.in_flight.clone()));
        self.learn(clock::now(), What::Counts(counts));
    }

    /// Takes the log entries about the pods in question.
    pub(crate) fn logs(&mut self, attempts: &[Attempt], heard: Vec<Heard>) {
        self.note_volumes(attempts);
        for attempt in attempts {
            let end = self.presenter.kernel_time(attempt.said.at);
            let is_of_node = attempt.said.uid.is_empty() && !attempt.said.is_of_a_device();
            let is_device = self.volumes.contains(attempt.said.volume.as_str());
            if is_of_node || is_device || self.names.is_wanted(&attempt.said.uid) {
                self.learn(clock::now(), What::Said(Box::new(attempt.said.clone())));
            }
            // The probes have reported each call made since.
            let run = self.presenter.run();
            if run.is_traced() && end >= run.clock.started() {
                continue;
            }
            if let Some(op) = self.names.logged(attempt, end) {
                self.learn(clock::now(), What::Logged(Box::new(op)));
            }
        }
        // Only now is the log known to be complete.
        for heard in heard {
            self.learn(clock::now(), What::Heard(Box::new(heard)));
        }
    }

    /// Volumes whose devices matter: for one pod, those that its log entries name.
    fn note_volumes(&mut self, attempts: &[Attempt]) {
        let whole = !self.presenter.run().has_target();
        for said in attempts.iter().map(|attempt| &attempt.said) {
            let matters = match said.is_of_a_device() {
                true => whole,
                false => !said.uid.is_empty() && self.names.is_wanted(&said.uid),
            };
            if matters && !said.volume.is_empty() {
                self.volumes.insert(said.volume.clone(), ());
            }
        }
    }

    /// Takes a sample of the node.
    pub(crate) fn looked(&mut self, look: Look) {
        self.looks.came(Instant::now(), look.sample.rest);
        self.rooting.look(&look, self.names.roots());
        let sample = self.names.sample(look.sample, look.trees, &look.containers);
        // On a whole node, the pods to be deleted are asked about, if one answer is wanted.
        let has_target = self.presenter.run().has_target();
        let is_asked = |uid: &str| has_target || self.presenter.asks_about(uid);
        self.drivers.ask(&sample, |uid| self.names.is_wanted(uid), is_asked);
        let of_api = {
            let (names, presenter) = (&mut self.names, &self.presenter);
            self.records.look(&sample, || presenter.going(), |pod| names.pod(pod))
        };
        self.learn(sample.at, What::Sample(sample));
        self.news(of_api);
    }

    /// Takes the API server's records of this node and of pods in question.
    fn news(&mut self, news: News) {
        let of_nodes = news.nodes.first().map(|node| node.node.clone());
        news.nodes.into_iter().for_each(|node| self.record(What::Node(Box::new(node))));
        for record in news.records {
            if self.names.is_wanted(&record.pod.uid) {
                let node = of_nodes.clone().or(record.node.clone()).unwrap_or_default();
                self.record(What::Record { record: Box::new(record), node });
            }
        }
    }

    /// Takes a record of the API.
    pub(crate) fn record(&mut self, record: What) {
        self.learn(clock::now(), record);
    }

    /// Ends the window: later input is only about events within it.
    pub(super) fn end_window(&mut self) {
        self.ended = Some(Instant::now());
        self.learn(clock::now(), What::WindowEnded);
    }

    /// Collects the outstanding answers, for a limited time.
    pub(super) async fn settle(&mut self, limit: Duration) {
        let end = tokio::time::Instant::now() + limit;
        self.asker.end();
        while self.asker.open() > 0 {
            let Ok(Some((query, answer))) = tokio::time::timeout_at(end, self.answers.recv()).await
            else {
                return;
            };
            self.answered(query, answer);
        }
        while self.unknown_roots.is_looking()
            && let Ok(Some(examined)) =
                tokio::time::timeout_at(end, self.unknown_roots.next()).await
        {
            self.examined(examined);
        }
        while self.drivers.open() > 0
            && let Ok(said) = tokio::time::timeout_at(end, self.drivers.next()).await
        {
            self.said(said);
        }
        while let Ok((query, answer)) = self.answers.try_recv() {
            self.answered(query, answer);
        }
    }

    /// Takes the cost of the run, and ends it.
    pub(crate) fn end(&mut self, cost: SelfCost, fail_on_loss: bool) -> Result<Exit> {
        let now = clock::now();
        self.learn(now, What::End(cost));
        if let Some(recorder) = self.recorder.take() {
            recorder.finish();
        }
        Ok(self.presenter.end(now, fail_on_loss))
    }
}
