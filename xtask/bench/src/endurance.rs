//! Very many deletions: checks that podstuck counts every one and does not grow.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::place::{FileSystem, POD, Place, Volume};
use super::round::{ATTACH_LIMIT, Bench, POLL, SETTLE, parse};
use super::running::{Again, Running};
use super::seen;
use super::tracer::{PODSTUCK_MARKER, watch};
use super::usage;
use super::workload::total;

/// Sufficient for a slow machine.
const LIMIT: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

struct Case {
    name: &'static str,
    kind: &'static str,
    threads: u64,
    calls: u64,
    portion: u64,
}

/// Portions limit the memory: an empty file on tmpfs takes about one KiB.
const CASES: [Case; 4] = [
    Case {
        name: "10 million files",
        kind: "unlinkat",
        threads: 2,
        calls: 10_000_000,
        portion: 100_000,
    },
    Case {
        name: "10 million files, many threads",
        kind: "unlinkat",
        threads: 64,
        calls: 10_000_000,
        portion: 10_000,
    },
    Case {
        name: "5 million entries in 100,000 directories",
        kind: "tree",
        threads: 2,
        calls: 5_000_000,
        portion: 250_000,
    },
    // The removal of each volume itself is an additional call.
    Case {
        name: "10 million directories in 100,000 volumes",
        kind: "volumes",
        threads: 2,
        calls: 10_100_000,
        portion: 100,
    },
];

#[derive(Serialize)]
struct Sample {
    case: &'static str,
    second: f64,
    rss_kib: u64,
    cpu_s: f64,
}

/// Runs all cases, prints the results, and writes `endurance.csv`.
pub(crate) fn run(bench: &Bench, place: &mut Place, scale: f64, results: &Path) -> Result<()> {
    let volume =
        place.volume(FileSystem::Tmpfs)?.map_err(|tool| anyhow::anyhow!(tool.missing()))?;
    let path = results.join("endurance.csv");
    let mut csv = csv::Writer::from_path(&path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    let mut complaints = Vec::new();
    for case in &CASES {
        let (samples, contradiction) = endure(bench, &volume, case, scale)?;
        complaints.extend(contradiction.map(|text| format!("{}: {text}", case.name)));
        for sample in samples {
            csv.serialize(sample).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    csv.flush().with_context(|| format!("cannot write {}", path.display()))?;
    println!("memory and CPU time of each second: {}", path.display());
    if !complaints.is_empty() {
        bail!("podstuck did not count exactly: {}", complaints.join("; "));
    }
    Ok(())
}

fn endure(
    bench: &Bench,
    volume: &Volume,
    case: &Case,
    scale: f64,
) -> Result<(Vec<Sample>, Option<String>)> {
    let folder = bench.folder.join("endurance");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut command = watch(&bench.podstuck, &volume.kubelet_root);
    command.args(["--pod-uid", POD]);
    let mut podstuck = Running::start(command, &folder, "podstuck", &bench.interrupt)?;
    podstuck.wait_for(PODSTUCK_MARKER, ATTACH_LIMIT)?;
    std::thread::sleep(SETTLE);

    let calls = ((case.calls as f64 * scale) as u64).max(2);
    let mut command = Command::new(&bench.workload);
    command
        .arg(case.kind)
        .arg("--dir")
        .arg(&volume.dir)
        .args(["--threads", &case.threads.to_string()]);
    command.args(["--calls", &calls.to_string(), "--portion", &case.portion.to_string()]);
    let cpu_before = usage::group_cpu_s(podstuck.pid());
    let began = Instant::now();
    let mut workload = Running::start(command, &folder, "workload", &bench.interrupt)?;
    let mut samples: Vec<Sample> = Vec::new();
    let mut sample = || {
        let cpu_s = usage::group_cpu_s(podstuck.pid()) - cpu_before;
        let rss_kib = usage::rss_kib(podstuck.pid()).unwrap_or(0);
        samples.push(Sample {
            case: case.name,
            second: began.elapsed().as_secs_f64(),
            rss_kib,
            cpu_s,
        });
    };
    sample();
    let mut next = Instant::now() + SECOND;
    workload.succeed(LIMIT, POLL, || {
        if Instant::now() >= next {
            sample();
            next += SECOND;
        }
    })?;
    sample();
    let seconds = began.elapsed().as_secs_f64();
    let (detached, _) = podstuck.stop(Again::No)?;
    let report = parse(&workload.printed()?)?;
    let seen = seen::podstuck(&podstuck.printed()?)?;
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;

    let truth = report.truth();
    let exact = seen.of_pod.as_ref() == Some(&truth);
    let memory: Vec<u64> = samples.iter().map(|sample| sample.rss_kib).collect();
    let mib = |kib: Option<&u64>| kib.map_or(0.0, |kib| *kib as f64 / 1024.0);
    let cpu_s = samples.last().map_or(0.0, |sample| sample.cpu_s);
    println!(
        "{}: {} calls in {seconds:.0} s by {} threads, {:.0} ns per call; counted {}{}, lost {} \
         calls and {} events; {cpu_s:.2} s of CPU, {:.1} % of one core; memory {:.1} MiB first, \
         {:.1} last, {:.1} at most; ended in {:.0} ms",
        case.name,
        report.calls,
        case.threads,
        report.ns_per_call,
        seen.of_pod.as_ref().map_or(0, total),
        if exact { ", exactly the truth" } else { ", NOT the truth" },
        seen.lost_calls,
        seen.lost_events,
        100.0 * cpu_s / seconds,
        mib(memory.first()),
        mib(memory.last()),
        mib(memory.iter().max()),
        detached.as_secs_f64() * 1e3,
    );
    let contradiction =
        (!exact).then(|| format!("counted {:?}, but the truth is {truth:?}", seen.of_pod));
    Ok((samples, contradiction))
}
