//! What `watch` and `diagnose` share: traces live until it is told to stop.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::{runtime, sync::oneshot, time};

use super::{
    Exit, Failure,
    interrupt::Stop,
    presenter::Presenter,
    reporter::Reporter,
    session::Session,
    setup::{self, Prepared},
};
use crate::{
    attribute::Attributor,
    cli::Tracing,
    clock,
    event::{Run, Thresholds},
    kernel::{facts, privilege},
    model::pod_record::PodRecord,
    recording::Recorder,
    source::{
        cost::{self, ProgramTimes},
        ring::Ring,
        tables::{self, Drained, Tables},
    },
    state::{hung::HungCalls, namespaces, sample::Sampler},
};

/// How often counts are drained.
const TICK: Duration = Duration::from_secs(1);
/// How often the exported files are renewed, in ticks.
const EXPORT_EVERY: u64 = 10;
/// How long the beginning waits for the first look at the node.
const FIRST_LOOK: Duration = Duration::from_millis(500);
/// How long the last facts may take.
const SETTLE: Duration = Duration::from_secs(1);

/// When to end, and what to say then.
#[derive(Clone, Debug)]
pub(super) enum Until {
    /// At this time, or when told to; the findings were told as they formed.
    Stopped(Option<Duration>),
    /// When the verdict is firm, at the latest after this time; then with a diagnosis.
    Firm {
        /// How long at most.
        limit: Duration,
        /// The pod, as the API has it.
        record: Option<PodRecord>,
    },
}

impl Until {
    fn limit(&self) -> Option<Duration> {
        match self {
            Self::Stopped(limit) => *limit,
            Self::Firm { limit, .. } => Some(*limit),
        }
    }

    fn is_firm(&self) -> bool {
        matches!(self, Self::Firm { .. })
    }
}

/// Prepares, traces, reports.
pub(super) fn run(options: &Tracing, until: Until, verbose: u8) -> Result<Exit, Failure> {
    let prepared = setup::prepare(options, verbose)?;
    let reporter = Reporter::new(options.output, options.export.as_deref(), until.is_firm())
        .map_err(Failure::Usage)?;
    let recorder = options.record.as_deref().map(|path| Recorder::create(path, options.redact));
    let recorder = recorder.transpose().map_err(|error| Failure::Usage(error.into()))?;
    let measured = if verbose > 0 { ProgramTimes::enable().ok() } else { None };
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")
        .map_err(Failure::CannotRun)?;
    let result = runtime.block_on(trace(options, until, prepared, reporter, recorder, measured));
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
) -> Result<Exit> {
    let Prepared { mut probes, names, start, places, pod, scope, attempts } = prepared;
    let stop = Stop::listen()?;
    let mut ring = Ring::take(&mut probes.ebpf)?;
    let tables = Tables::take(&mut probes.ebpf, options.hung_after)?;
    let hung = HungCalls::start(options.hung_after, probes.attached.sees_exec)?;
    // Everything that needs more is done; what follows reads.
    if let Err(error) = privilege::reduce() {
        tracing::info!("keeping all privileges: {error:#}");
    }
    setup::log_probe_lines(&mut probes);
    let mut sampler = Sampler::start(places)?;
    let run = Run {
        clock: clock::start(),
        start,
        own_mnt_ns: namespaces::of_process(std::process::id()).unwrap_or_default(),
        thresholds: Thresholds { hung: options.hung_after, not_attempted: options.untried_after },
        one_answer: until.is_firm(),
        pod,
        directory: scope.path.clone(),
    };
    let names = Attributor::new(names, scope);
    let mut session = Session::new(names, Presenter::new(run, reporter), recorder, hung);
    // What was lost while the probes went in one after the other is no loss of this run.
    let first = answer(&mut Some(tables.drain())).await?;
    let baseline = first.losses;
    let skipped_before = cost::skipped(&probes.ebpf);
    session.tick(&first);
    // What an unmount takes away is known by a look from before it. Whoever acts when the run is said to
    // have begun finds it looked at, unless the node is large.
    let look = time::timeout(FIRST_LOOK, sampler.next()).await;
    session.presenter().start();
    look.into_iter().for_each(|sample| session.sampled(sample));
    session.logs(&attempts);
    if let Until::Firm { record: Some(record), .. } = &until {
        session.record(record, facts::node_name());
    }

    let end = until.limit().map(|limit| time::Instant::now() + limit);
    let mut ticks = time::interval(TICK);
    ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    let mut draining = None;
    let mut done = 0;
    loop {
        tokio::select! {
            records = ring.next() => session.records(&records.context("reading the ring")?),
            sample = sampler.next() => session.sampled(sample),
            arrival = session.arrival() => session.take(arrival),
            _ = ticks.tick(), if draining.is_none() => draining = Some(tables.drain()),
            drained = answer(&mut draining) => {
                draining = None;
                let drained = drained?;
                session.tick(&drained);
                done += 1;
                if done % EXPORT_EVERY == 0 {
                    let lost = drained.losses.since(&baseline);
                    let skipped = cost::skipped(&probes.ebpf).saturating_sub(skipped_before);
                    session.completeness(&lost, drained.abandoned, skipped, &probes.attached);
                }
            }
            () = sleep_until(end) => break,
            () = stop.requested() => break,
        }
        if until.is_firm() && session.presenter().is_firm(clock::now()) {
            break;
        }
    }

    session.end_window();
    let cost = cost::measure(&probes.ebpf, measured.as_ref());
    let skipped = cost::skipped(&probes.ebpf).saturating_sub(skipped_before);
    // Out of the kernel first: what is read afterwards is complete.
    let attached = probes.attached.clone();
    if draining.is_some() {
        session.tick(&answer(&mut draining).await?);
    }
    // While the probes go out one after the other, calls are seen by one half of a pair only: as
    // at the beginning, that is no loss of this run.
    let before = answer(&mut Some(tables.drain())).await?;
    session.tick(&before);
    drop(probes);
    session.records(&ring.rest());
    // Both tables: a program may have written the one drained last until it was switched.
    session.tick(&answer(&mut Some(tables.drain())).await?);
    let last = answer(&mut Some(tables.drain())).await?;
    session.tick(&last);
    session.records(&ring.rest());
    session.settle(SETTLE).await;
    let lost = before.losses.since(&baseline);
    tracing::info!("{lost:?}");
    session.completeness(&lost, last.abandoned, skipped, &attached);
    session.end(cost, options.fail_on_loss)
}

/// The answer of the drain under way, or for ever none when there is no such drain.
async fn answer(draining: &mut Option<oneshot::Receiver<Result<Drained>>>) -> Result<Drained> {
    match draining {
        Some(receiver) => receiver.await.map_err(|_| tables::gone())?,
        None => std::future::pending().await,
    }
}

async fn sleep_until(end: Option<time::Instant>) {
    match end {
        Some(end) => time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}
