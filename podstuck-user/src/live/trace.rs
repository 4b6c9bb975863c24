//! The common part of `watch` and `diagnose`: traces live until it is stopped.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::{runtime, time};

use super::{
    driver_logs::DriverLogs,
    lister::Lister,
    log_reader::LogNews,
    presenter::Presenter,
    probing::{Draining, Missed, Probing, answer},
    record_news::{RecordNews, whose},
    reporter::{Form, Reporter},
    session::Session,
    setup::{self, Prepared},
    starting::{Starting, Step},
    unknown_roots::UnknownRoots,
};
use crate::{
    cli::Tracing,
    event::{Run, Thresholds, What},
    live::attribute::Attributor,
    model::{
        degraded::{Degraded, Feed},
        node_record::NodeRecord,
        pod_record::PodRecord,
    },
};
use crate::{
    interrupt::Stop,
    outcome::{Exit, Failure},
};
use podstuck_confine::{clock, facts, fork_server, role::Role};
use podstuck_node::{
    program,
    state::{
        asked::AsWhom,
        hung::HungCalls,
        namespaces,
        sample::{Pace, Sampler},
    },
};
use podstuck_probe::source::{
    cost::ProgramTimes,
    tables::{Drained, Turn},
};
use podstuck_show::recording::Recorder;

/// Interval between drains of counts.
const TICK: Duration = Duration::from_secs(1);
/// Interval between exports, in ticks.
const EXPORT_EVERY: u64 = 10;
/// How long the start waits for the first sample of the node.
const FIRST_LOOK: Duration = Duration::from_millis(500);
/// Time limit of a diagnosis: two of kubelet's longest back-offs, since a failing attempt says most; without probes,
/// the time of the slowest scans of the node.
const TRACED: Duration = Duration::from_secs(250);
const UNTRACED: Duration = Duration::from_secs(30);
/// Time limit of a last read of the tables; usually some tens of milliseconds.
const LAST_DRAIN: Duration = Duration::from_secs(3);
/// Time limit of the end with everything in it, whatever hangs.
const END: Duration = Duration::from_secs(20);
/// Time limit of the last answers.
const SETTLE: Duration = Duration::from_secs(1);

/// When a run ends, and what it prints then.
#[derive(Clone, Debug)]
pub(crate) enum Until {
    /// At this time, or on a signal; the findings are printed as they form.
    Stopped(Option<Duration>),
    /// When the verdict is firm, at the latest after this time; then with a diagnosis.
    Firm {
        /// The time limit, if one was given.
        limit: Option<Duration>,
        /// The pod's record.
        record: Option<Box<PodRecord>>,
        /// Whether to print only the first lines.
        brief: bool,
    },
    /// When each pod that is being deleted has a cause, at the latest after this time; then with a line for each.
    Listed {
        /// Before this time the list may be incomplete.
        at_least: Duration,
        /// The time limit.
        limit: Duration,
        /// Prints them.
        lister: Lister,
    },
}

impl Until {
    /// The time limit.
    fn limit(&self, traced: bool) -> Option<Duration> {
        match self {
            Self::Stopped(limit) => *limit,
            Self::Firm { limit, .. } => {
                Some(limit.unwrap_or(if traced { TRACED } else { UNTRACED }))
            }
            Self::Listed { limit, .. } => Some(*limit),
        }
    }

    /// Whether the run answers one question.
    fn is_asked(&self) -> bool {
        !matches!(self, Self::Stopped(_))
    }

    /// Whether there is nothing to wait for any more, at `after` since the start.
    fn is_answered(&self, presenter: &Presenter, after: Duration) -> bool {
        match self {
            Self::Stopped(_) => false,
            Self::Firm { .. } => presenter.is_answered(clock::now()),
            Self::Listed { at_least, .. } => after >= *at_least && presenter.knows_pods(),
        }
    }

    fn lister(&self) -> Option<Lister> {
        match self {
            Self::Listed { lister, .. } => Some(lister.clone()),
            _ => None,
        }
    }

    fn form(&self) -> Form {
        match self {
            Self::Stopped(_) => Form::Live,
            Self::Firm { brief, .. } => Form::of(true, *brief),
            Self::Listed { .. } => Form::List,
        }
    }
}

/// Prepares, traces, reports.
pub(crate) fn run(options: &Tracing, until: Until, verbose: u8) -> Result<Exit, Failure> {
    let starting = Starting::begin();
    let prepared = setup::prepare(options, until.is_asked(), verbose, &starting)?;
    starting.next(Step::Node);
    let reporter = Reporter::new(options.output, options.export.as_deref(), until.form())
        .map(|reporter| reporter.listing(until.lister()).of_node_only(options.low_overhead))
        .and_then(Reporter::of_run)
        .map_err(Failure::Usage)?;
    let recorder = options.record.as_deref().map(|path| Recorder::create(path, options.redact));
    let recorder = recorder.transpose().map_err(|error| Failure::Usage(error.into()))?;
    let measured = if verbose > 0 { ProgramTimes::enable().ok() } else { None };
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("asker")
        .on_thread_start(|| Role::Look.assume())
        .build()
        .context("starting the runtime")
        .map_err(Failure::CannotRun)?;
    let result =
        runtime.block_on(trace(options, until, prepared, reporter, recorder, measured, starting));
    // Does not wait for threads that read mount tables.
    runtime.shutdown_background();
    result.map_err(Failure::CannotRun)
}

async fn trace(
    options: &Tracing,
    until: Until,
    prepared: Prepared,
    reporter: Reporter,
    recorder: Option<Recorder>,
    measured: Option<ProgramTimes>,
    starting: Starting,
) -> Result<Exit> {
    let Prepared { probes, names, start, places, pod, container, containers, .. } = prepared;
    let Prepared { scope, log_history, record, deleted, nodes, roots, rooting, .. } = prepared;
    let stop = Stop::listen()?;
    let traced = probes.is_some();
    // Without probes it is not known whether a call was made.
    let not_attempted = if traced { options.not_attempted_after } else { Thresholds::UNTRACED };
    let mut probing = Probing::take(probes, options.hung_after, measured)?;
    let pace = match until.is_asked() {
        true => Pace::Asked(clock::now()),
        false if options.low_overhead => Pace::Days,
        false => Pace::Beside,
    };
    let hung = HungCalls::start(options.hung_after, probing.sees_exec(), pace.of_threads())?;
    // All steps that need more privileges are done; the rest reads.
    Role::Run.assume();
    fork_server::limit();
    probing.log_lines();
    let (attempts, heard, follower) = log_history;
    let log_news = LogNews::start(follower, pace.of_logs());
    let drivers = DriverLogs::new(places.host_root.clone(), names.log_dirs().to_vec());
    // For one question, the API server is asked once.
    let again = (!until.is_asked()).then_some(&options.api);
    let kubelet_roots = options.node.kubelet_root.clone();
    let whom = AsWhom {
        host_root: places.host_root.clone(),
        kubelet_roots: kubelet_roots.clone(),
        whose: whose(&options.api),
    };
    let records = RecordNews::start(places.host_root.clone(), kubelet_roots, again);
    let unknown_roots = UnknownRoots::new(places.host_root.clone(), places.takes_new_roots);
    let is_there = |name| program::find(&places.host_root, name).is_some();
    let has_xargs = is_there("xargs") && is_there("sh");
    let mut sampler = Sampler::start(places, pace)?;
    let run = Run {
        clock: clock::start(),
        start,
        own_mnt_ns: namespaces::of_process(std::process::id()).unwrap_or_default(),
        thresholds: Thresholds { hung: options.hung_after, not_attempted },
        one_answer: until.is_asked(),
        pod,
        container: container.clone(),
        directory: scope.path.clone(),
    };
    let names = Attributor::new(names, scope, roots, &containers);
    let mut presenter = Presenter::new(run, reporter);
    if !has_xargs {
        presenter = presenter.without_xargs();
    }
    let rooting = (rooting, unknown_roots);
    let news = (log_news, drivers, records);
    let mut session = Session::new(names, rooting, presenter, recorder, hung, news, whom);
    let first = probing.begin().await?;
    session.inherit(probing.inherited());
    session.tick(&first);
    // A mount that is removed is known only from an earlier sample. An action that follows the report of the start
    // finds the node scanned, unless the node is large.
    let look = time::timeout(FIRST_LOOK, sampler.next()).await;
    drop(starting);
    session.presenter().start();
    for node in &nodes {
        session.record(What::Node(Box::new(node.clone())));
    }
    // One question is answered soon. During a long watch, a pod may be deleted after its record was read. The API
    // server's record is newer than a given one.
    let records: Vec<Box<PodRecord>> = match &until {
        Until::Firm { record: given, .. } => {
            record.map(Box::new).or(given.clone()).into_iter().collect()
        }
        Until::Listed { .. } => deleted.into_iter().map(Box::new).collect(),
        Until::Stopped(_) => Vec::new(),
    };
    for record in records {
        let node = own_node(&nodes, record.node.as_deref());
        if matches!(until, Until::Firm { .. }) && !record.finalizers.is_empty() {
            session.ask_of(&record.pod);
        }
        session.record(What::Record { record, node });
    }
    look.into_iter().for_each(|look| session.looked(look));
    session.logs(&attempts, heard);

    let begun = time::Instant::now();
    let end = until.limit(traced).map(|limit| time::Instant::now() + limit);
    let mut ticks = time::interval(TICK);
    ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    let mut checks = time::interval(TICK);
    let mut draining = None;
    let (mut done, mut gone) = (0, false);
    loop {
        tokio::select! {
            records = probing.records() => session.records(&records.context("reading the ring")?),
            look = sampler.next() => session.looked(look),
            arrival = session.arrival() => session.take(arrival),
            _ = ticks.tick(), if draining.is_none() && !gone => {
                probing.locks();
                let totals = session.totals();
                draining = probing.drain(Turn::Usual, session.forgotten(), totals);
            }
            drained = answer(&mut draining), if !gone => {
                draining = None;
                let Ok(drained) = drained else {
                    gone = true;
                    continue;
                };
                // Their targets are named by records that are in the ring by now.
                session.records(&probing.rest());
                session.tick(&drained);
                done += 1;
                if done % EXPORT_EVERY == 0 {
                    session.completeness(&probing.missed(&drained));
                }
            }
            _ = checks.tick() => session.check(ended(&sampler, gone)),
            () = sleep_until(end) => break,
            () = stop.requested() => break,
        }
        if session.hurries() {
            sampler.hurry();
        }
        if until.is_answered(session.presenter(), begun.elapsed()) {
            break;
        }
    }

    stop.end_within(END);
    session.end_window();
    let cost = probing.cost();
    let mut missed = Missed::default();
    if draining.is_some() {
        last(&mut draining, &mut missed).await.iter().for_each(|drained| session.tick(drained));
    }
    // The run ends here: later calls, made while the probes are removed, do not belong to it. Both tables are
    // drained: what could not be read from one before is still there. Records of the counted calls are in the ring.
    for _ in 0..2 {
        let totals = session.totals();
        let mut rest = probing.drain(Turn::Last, Vec::new(), totals);
        if let Some(rest) = last(&mut rest, &mut missed).await {
            session.tick(&rest);
            let degraded = std::mem::take(&mut missed.degraded);
            missed = Missed { degraded, ..probing.missed(&rest) };
        }
    }
    session.records(&probing.rest());
    session.settle(SETTLE).await;
    tracing::info!("{:?}", missed.losses);
    missed.degraded.extend(ended(&sampler, false));
    session.check(std::mem::take(&mut missed.degraded));
    session.completeness(&missed);
    let exit = session.end(cost, options.fail_on_loss)?;
    // Nothing is observed while the user reads.
    drop((probing, sampler));
    stop.ended_in_time();
    session.presenter().leave(|| stop.is_requested());
    Ok(exit)
}

/// Threads that have ended, which a working one never does.
fn ended(sampler: &Sampler, tables: bool) -> Vec<Degraded> {
    let node = sampler.has_ended().then_some(("scans the node", Feed::Node));
    let tables = tables.then_some(("reads the probes' tables", Feed::Calls));
    let ended = |(what, feed)| Degraded::new(format!("the thread that {what} has ended"), &[feed]);
    node.into_iter().chain(tables).map(ended).collect()
}

/// One of the last drains, unless it takes too long: then no further one is waited for.
async fn last(draining: &mut Draining, missed: &mut Missed) -> Option<Drained> {
    if draining.is_none() || !missed.degraded.is_empty() {
        return None;
    }
    let why = match time::timeout(LAST_DRAIN, answer(draining)).await {
        Ok(Ok(drained)) => return Some(drained),
        Ok(Err(error)) => format!("{error}"),
        Err(_) => format!("the probes' tables were not read within {LAST_DRAIN:?}"),
    };
    let what = format!("the last counts are missing: {why}");
    missed.degraded.push(Degraded::new(what, &[Feed::Calls]));
    None
}

async fn sleep_until(end: Option<time::Instant>) {
    match end {
        Some(end) => time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// The name of this node in Kubernetes, which need not be its host name. A pod of which the node has traces is this
/// node's: a kubelet that runs a pod is that of the record, as long as the API server says no other.
fn own_node(nodes: &[NodeRecord], of_record: Option<&str>) -> String {
    let own = nodes.iter().find(|node| Some(node.node.as_str()) == of_record);
    let own = own.or(nodes.first()).map(|node| node.node.as_str()).or(of_record);
    own.map_or_else(facts::node_name, str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_the_records_unless_the_api_server_says_another() {
        let read = jiff::Timestamp::UNIX_EPOCH;
        let node = |name: &str| NodeRecord {
            node: name.into(),
            read,
            ready: None,
            kubelet: None,
            drivers: None,
            missing: Vec::new(),
        };
        assert_eq!(own_node(&[], Some("ip-10-0-0-7.ec2.internal")), "ip-10-0-0-7.ec2.internal");
        assert_eq!(own_node(&[], None), facts::node_name());
        let both = [node("a"), node("b")];
        assert_eq!(own_node(&both, Some("b")), "b");
        assert_eq!(own_node(&both, Some("c")), "a");
    }
}
