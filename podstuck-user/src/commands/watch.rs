//! `podstuck watch`: traces live until it is told to stop.

use std::time::Duration;

use anyhow::{Context, Result};
use podstuck_common::record::{Count, CountKey};
use tokio::{runtime, time};

use super::{
    Exit, Failure,
    interrupt::Stop,
    reporter::Reporter,
    session::Session,
    setup::{self, Prepared},
};
use crate::{
    attribute::Attributor,
    cli::Watch,
    kernel::privilege,
    model::summary::Summary,
    source::{
        actors::Actors,
        cost::{self, ProgramTimes},
        counts::Counts,
        losses::LossCounters,
        ring::Ring,
    },
};

/// How often counts are drained.
const TICK: Duration = Duration::from_secs(1);
/// How often the exported files are renewed, in ticks.
const EXPORT_EVERY: u64 = 10;
/// How long the last facts may take.
const SETTLE: Duration = Duration::from_secs(1);

/// Runs the command.
pub fn run(options: &Watch, verbose: u8) -> Result<Exit, Failure> {
    let prepared = setup::prepare(options, verbose)?;
    let reporter =
        Reporter::new(options.output, options.export.as_deref()).map_err(Failure::Usage)?;
    let measured = if verbose > 0 { ProgramTimes::enable().ok() } else { None };
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")
        .map_err(Failure::CannotRun)?;
    // Loading and attaching is done; what follows reads.
    if let Err(error) = privilege::reduce() {
        tracing::info!("keeping all privileges: {error:#}");
    }
    runtime
        .block_on(trace(options, prepared, reporter, measured))
        .map_err(Failure::CannotRun)
}

async fn trace(
    options: &Watch,
    prepared: Prepared,
    reporter: Reporter,
    measured: Option<ProgramTimes>,
) -> Result<Exit> {
    let Prepared { mut probes, names, start } = prepared;
    let stop = Stop::listen()?;
    let mut ring = Ring::take(&mut probes.ebpf)?;
    let mut counts = Some(Counts::take(&mut probes.ebpf)?);
    let losses = LossCounters::take(&mut probes.ebpf)?;
    let actors = Actors::take(&mut probes.ebpf)?;
    setup::log_probe_lines(&mut probes);
    let baseline = losses.read()?;
    let mut session = Session::new(Attributor::new(names), actors, reporter);
    session.reporter().start(&start);

    let end = options.duration.map(|duration| time::Instant::now() + duration);
    let mut ticks = time::interval(TICK);
    ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    let mut draining = None;
    let mut done = 0;
    loop {
        tokio::select! {
            records = ring.next() => session.records(&records.context("reading the ring")?),
            Some((case, facts)) = session.answer() => session.conclude(&case, facts),
            _ = ticks.tick(), if draining.is_none() => {
                draining = counts.take().map(drain);
            }
            drained = joined(&mut draining) => {
                let (table, drained) = drained?;
                counts = Some(table);
                draining = None;
                session.tick(&drained?);
                done += 1;
                if done % EXPORT_EVERY == 0 {
                    let lost = losses.read()?.since(&baseline);
                    warn(session.export(&session.completeness(&lost, &probes.attached)));
                }
            }
            () = until(end) => break,
            () = stop.requested() => break,
        }
    }

    let window = session.window();
    let cost = cost::measure(&probes.ebpf, measured.as_ref());
    // Out of the kernel first: what is read afterwards is complete.
    let attached = probes.attached.clone();
    drop(probes);
    if let Some(draining) = draining {
        let (table, drained) = draining.await.context("draining counts")?;
        counts = Some(table);
        session.tick(&drained?);
    }
    session.records(&ring.rest());
    if let Some(mut counts) = counts {
        // Both tables: a program may have written the one drained last until it was switched.
        for _ in 0..2 {
            session.tick(&counts.drain()?);
        }
    }
    session.records(&ring.rest());
    session.settle(SETTLE).await;

    let completeness = session.completeness(&losses.read()?.since(&baseline), &attached);
    let (by_outcome, calls) = session.aggregate().by_outcome();
    let window_s = window.as_secs_f64();
    let exported = session.export(&completeness);
    let lost = completeness.lost_data();
    let summary = Summary { window_s, calls, by_outcome, completeness, cost };
    session.reporter().summary(&summary, session.found());
    warn(exported);
    Ok(match (session.found(), lost && options.fail_on_loss) {
        (_, true) => Exit::Lost,
        (0, false) => Exit::Clean,
        (_, false) => Exit::Found,
    })
}

type Drained = (Counts, Result<Vec<(CountKey, Count)>>);

/// Drains beside the loop: it waits for the kernel.
fn drain(mut counts: Counts) -> tokio::task::JoinHandle<Drained> {
    tokio::task::spawn_blocking(move || {
        let drained = counts.drain();
        (counts, drained)
    })
}

/// The running drain, or for ever when there is none.
async fn joined(draining: &mut Option<tokio::task::JoinHandle<Drained>>) -> Result<Drained> {
    match draining {
        Some(handle) => handle.await.context("draining counts"),
        None => std::future::pending().await,
    }
}

async fn until(end: Option<time::Instant>) {
    match end {
        Some(end) => time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// An export that fails must not end the run: what is found is printed all the same.
fn warn(result: Result<()>) {
    if let Err(error) = result {
        tracing::warn!("{error:#}");
    }
}
