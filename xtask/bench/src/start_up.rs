//! Measures podstuck's time from its start to its first count, and from Ctrl-C to its end.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde::Serialize;

use super::place::{FileSystem, POD, Place, Volume};
use super::round::{ATTACH_LIMIT, Bench, now_ms, parse};
use super::running::{Again, Running};
use super::seen;
use super::stats::Spread;
use super::tracer::{PODSTUCK_MARKER, watch};
use super::workload::total;

/// One per millisecond: longer than podstuck takes to start.
const CALLS: &str = "3000";
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct Times {
    first_count_ms: f64,
    start_record_ms: f64,
    end_ms: f64,
}

/// Measures, prints the medians, and writes `start-up.csv`.
pub(crate) fn run(bench: &Bench, place: &mut Place, rounds: u32, results: &Path) -> Result<()> {
    let volume = place.volume(FileSystem::Tmpfs)?.map_err(|tool| anyhow!(tool.missing()))?;
    let path = results.join("start-up.csv");
    let mut csv = csv::Writer::from_path(&path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    let mut all = Vec::new();
    for _ in 0..rounds {
        let times = measure(bench, &volume)?;
        csv.serialize(&times).with_context(|| format!("cannot write {}", path.display()))?;
        all.push(times);
    }
    csv.flush().with_context(|| format!("cannot write {}", path.display()))?;
    let show = |what: &str, value: &dyn Fn(&Times) -> f64| {
        if let Some(spread) = Spread::of(all.iter().map(value)) {
            println!("{what}: {:.0} ms ({:.0}-{:.0})", spread.median, spread.min, spread.max);
        }
    };
    println!("median (min-max) of {rounds} rounds");
    show("start to the first counted call", &|times| times.first_count_ms);
    show("start to the start record", &|times| times.start_record_ms);
    show("Ctrl-C to the end", &|times| times.end_ms);
    println!("all of them: {}", path.display());
    Ok(())
}

fn measure(bench: &Bench, volume: &Volume) -> Result<Times> {
    let folder = bench.folder.join("start-up");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut caller = Command::new(&bench.workload);
    caller.args(["tick", "--calls", CALLS, "--dir"]).arg(&volume.dir);
    let mut caller = Running::start(caller, &folder, "caller", &bench.interrupt)?;
    let mut command = watch(&bench.podstuck, &volume.kubelet_root);
    command.args(["--pod-uid", POD]);
    let began = now_ms()?;
    let mut podstuck = Running::start(command, &folder, "podstuck", &bench.interrupt)?;
    podstuck.wait_for(PODSTUCK_MARKER, ATTACH_LIMIT)?;
    let start_record_ms = now_ms()? - began;
    caller.succeed(LIMIT, Duration::from_millis(10), || {})?;
    let end_ms = podstuck.stop(Again::No)?.0.as_secs_f64() * 1e3;

    let report = parse(&caller.printed()?)?;
    let counted = seen::podstuck(&podstuck.printed()?)?.of_pod.as_ref().map_or(0, total);
    // No call is lost, so the counted calls are the last ones.
    let missed = report.calls.saturating_sub(counted);
    let first = usize::try_from(missed)
        .ok()
        .and_then(|missed| report.began_ns.get(missed))
        .with_context(|| format!("podstuck counted {counted} of {} calls", report.calls))?;
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    Ok(Times { first_count_ms: *first as f64 / 1e6 - began, start_record_ms, end_ms })
}
