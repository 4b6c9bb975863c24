//! What `watch` and `diagnose` share: traces live until it is told to stop.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::{runtime, sync::oneshot, time};

use super::{
    Exit, Failure,
    interrupt::Stop,
    reporter::Reporter,
    session::Session,
    setup::{self, Prepared},
};
use crate::{
    attribute::Attributor,
    cli::Tracing,
    detect::Patience,
    identity::pod_record::PodRecord,
    kernel::privilege,
    model::summary::Summary,
    source::{
        cost::{self, ProgramTimes},
        ring::Ring,
        tables::{self, Drained, Tables},
    },
    state::{sample::Sampler, stuck::Stuck},
};

/// How often counts are drained.
const TICK: Duration = Duration::from_secs(1);
/// How often the exported files are renewed, in ticks.
const EXPORT_EVERY: u64 = 10;
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
    let measured = if verbose > 0 { ProgramTimes::enable().ok() } else { None };
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")
        .map_err(Failure::CannotRun)?;
    let result = runtime.block_on(trace(options, until, prepared, reporter, measured));
    // Does not wait for threads that read mount tables.
    runtime.shutdown_background();
    result.map_err(Failure::CannotRun)
}

async fn trace(
    options: &Tracing,
    until: Until,
    prepared: Prepared,
    reporter: Reporter,
    measured: Option<ProgramTimes>,
) -> Result<Exit> {
    let Prepared { mut probes, names, start, places, pod, scope } = prepared;
    let stop = Stop::listen()?;
    let mut ring = Ring::take(&mut probes.ebpf)?;
    let tables = Tables::take(&mut probes.ebpf, options.hung_after)?;
    let stuck = Stuck::start(options.hung_after, probes.attached.sees_exec)?;
    // Everything that needs more is done; what follows reads.
    if let Err(error) = privilege::reduce() {
        tracing::info!("keeping all privileges: {error:#}");
    }
    setup::log_probe_lines(&mut probes);
    let mut sampler = Sampler::start(places)?;
    let patience = Patience { hung: options.hung_after, untried: options.untried_after };
    let mut session = Session::new(Attributor::new(names), reporter, patience, stuck, scope);
    // What was lost while the probes went in one after the other is no loss of this run.
    let first = answer(&mut Some(tables.drain())).await?;
    let baseline = first.losses;
    let skipped_before = cost::skipped(&probes.ebpf);
    session.tick(&first);
    session.reporter().start(&start);

    let end = until.limit().map(|limit| time::Instant::now() + limit);
    let mut ticks = time::interval(TICK);
    ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    let mut draining = None;
    let mut done = 0;
    loop {
        tokio::select! {
            records = ring.next() => session.records(&records.context("reading the ring")?),
            sample = sampler.next() => session.sampled(sample),
            event = session.event() => session.take(event),
            _ = ticks.tick(), if draining.is_none() => draining = Some(tables.drain()),
            drained = answer(&mut draining) => {
                draining = None;
                let drained = drained?;
                session.tick(&drained);
                done += 1;
                if done % EXPORT_EVERY == 0 {
                    let lost = drained.losses.since(&baseline);
                    let skipped = cost::skipped(&probes.ebpf).saturating_sub(skipped_before);
                    let so_far = session.completeness(&lost, drained.abandoned, skipped, &probes.attached);
                    session.export(so_far, false);
                }
            }
            () = sleep_until(end) => break,
            () = stop.requested() => break,
        }
        if until.is_firm() && session.is_firm(start.target.is_some()) {
            break;
        }
    }

    session.end();
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
    // Before the last export, which is to have it.
    if let Until::Firm { record: Some(record), .. } = &until {
        session.judge(record, pod.as_ref());
    }

    let lost = before.losses.since(&baseline);
    tracing::info!("{lost:?}");
    let completeness = session.completeness(&lost, last.abandoned, skipped, &attached);
    let (by_outcome, calls) = (session.aggregate().by_outcome(), session.aggregate().calls());
    let window_s = session.window().as_secs_f64();
    session.export(completeness.clone(), true);
    let incomplete = completeness.lost_data();
    if until.is_firm() {
        session.diagnose(start.target.as_deref(), pod.as_ref());
    }
    let summary = Summary { window_s, calls, by_outcome, completeness, cost };
    session.reporter().summary(&summary, session.found());
    Ok(match (session.found(), incomplete && options.fail_on_loss) {
        (_, true) => Exit::Lost,
        (0, false) => Exit::Clean,
        (_, false) => Exit::Found,
    })
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
