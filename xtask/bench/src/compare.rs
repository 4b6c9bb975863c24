//! All tracers on all workloads, in turn.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::place::{Place, Volume};
use super::round::{Bench, Row, Subject};
use super::stats::summarize;
use super::table::{Section, document};
use super::tool::Tool;
use super::tracer::Tracer;
use super::workload::Workload;
use super::{machine, picture};

/// Number of rounds in which the programs' run time is measured: it varies less than the time of a call.
const PROGRAM_TIME_ROUNDS: u32 = 3;

/// The options of the measurement.
pub(crate) struct Choice {
    pub(crate) rounds: u32,
    pub(crate) scale: f64,
    pub(crate) workloads: Vec<Workload>,
    /// The first is no tracer.
    pub(crate) tracers: Vec<Tracer>,
}

/// Measures, prints, and writes `raw.csv`, `summary.csv`, `table.md` and `picture.svg`.
pub(crate) fn run(bench: &Bench, place: &mut Place, choice: &Choice, results: &Path) -> Result<()> {
    let machine = machine::describe();
    println!("{}", machine.join("; "));
    let Choice { workloads, tracers, .. } = choice;
    let volumes = volumes(place, workloads)?;
    let present: Vec<Tracer> = tracers.iter().copied().filter(|t| lacks(*t).is_none()).collect();
    for reason in tracers.iter().filter_map(|tracer| lacks(*tracer)) {
        println!("{reason}");
    }

    let mut rows = Vec::new();
    let mut complaints = Vec::new();
    let began = Instant::now();
    for subject in plan(choice, &present) {
        let Some((_, Ok(volume))) = volumes.iter().find(|(w, _)| *w == subject.workload) else {
            continue;
        };
        // A failure is reported at the end and does not prevent the other measurements.
        let (workload, tracer) = (subject.workload.title(), subject.tracer.title());
        match bench.measure(subject, volume) {
            Ok(row) => {
                if let Some(contradiction) = &row.contradiction {
                    complaints.push(format!("{tracer}, {workload}: {contradiction}"));
                }
                println!("{}", line(&row, began));
                rows.push(row);
            }
            Err(error) => complaints.push(format!("{tracer}, {workload}: {error:#}")),
        }
        if bench.interrupt.came() {
            complaints.push("interrupted".to_owned());
            break;
        }
    }

    let sections: Vec<Section> = volumes
        .iter()
        .map(|(workload, volume)| Section {
            workload: *workload,
            missing: volume.as_ref().err().cloned(),
            tracers: tracers
                .iter()
                .map(|tracer| {
                    let summary = summarize(&rows, *workload, *tracer);
                    let reason =
                        if lacks(*tracer).is_some() { "not installed" } else { "not measured" };
                    (*tracer, summary.ok_or(reason))
                })
                .collect(),
        })
        .collect();
    let text = document(&machine, choice.rounds, &sections);
    println!("\n{text}");
    write_csv(&results.join("raw.csv"), &rows)?;
    let summaries = sections.iter().flat_map(|s| &s.tracers).filter_map(|(_, s)| s.as_ref().ok());
    write_csv(&results.join("summary.csv"), summaries)?;
    let table = results.join("table.md");
    fs::write(&table, text).with_context(|| format!("cannot write {}", table.display()))?;
    picture::draw(&results.join("picture.svg"), &sections)?;
    println!(
        "raw.csv, summary.csv, table.md and picture.svg are in {}; {} measurements in {:.0} s",
        results.display(),
        rows.len(),
        began.elapsed().as_secs_f64()
    );
    if !complaints.is_empty() {
        bail!(
            "{} of the measurements went wrong:\n  {}",
            complaints.len(),
            complaints.join("\n  ")
        );
    }
    Ok(())
}

fn lacks(tracer: Tracer) -> Option<String> {
    tracer.tool().filter(|tool| tool.find().is_none()).map(Tool::missing)
}

type Volumes = Vec<(Workload, Result<Volume, String>)>;

fn volumes(place: &mut Place, workloads: &[Workload]) -> Result<Volumes> {
    let mut volumes = Volumes::new();
    for workload in workloads {
        let volume = place.volume(workload.file_system())?.map_err(Tool::missing);
        match &volume {
            Ok(volume) if *workload == Workload::Busy => place.make_busy(volume)?,
            Ok(_) => {}
            Err(missing) => println!("{}: {missing}", workload.title()),
        }
        volumes.push((*workload, volume));
    }
    Ok(volumes)
}

/// Each round runs all workloads, and for each all tracers. The order of the tracers is rotated and reversed from
/// round to round, so that no tracer always comes first or after the same one.
fn plan(choice: &Choice, tracers: &[Tracer]) -> Vec<Subject> {
    let Choice { rounds, scale, workloads, .. } = choice;
    let mut plan = Vec::new();
    let with_programs: Vec<Tracer> =
        tracers.iter().copied().filter(|tracer| tracer.has_programs()).collect();
    let measured = (*rounds).min(PROGRAM_TIME_ROUNDS);
    let timed = (0..*rounds).map(|round| (round, false, tracers));
    let programs = (0..measured).map(|i| (rounds + i, true, with_programs.as_slice()));
    for (round, program_time, tracers) in timed.chain(programs) {
        // During the bystander workload, the programs do not run.
        let traced = |w: &&Workload| !(program_time && **w == Workload::Bystander);
        for workload in workloads.iter().filter(traced) {
            for tracer in order(tracers, round) {
                let calls = workload.calls(tracer, round, *scale);
                plan.push(Subject { round, workload: *workload, tracer, calls, program_time });
            }
        }
    }
    plan
}

fn order(tracers: &[Tracer], round: u32) -> Vec<Tracer> {
    let mut order = tracers.to_vec();
    if !order.is_empty() {
        // Every second round, so that a round is followed by its reverse.
        order.rotate_left((round / 2) as usize % tracers.len());
    }
    if !round.is_multiple_of(2) {
        order.reverse();
    }
    order
}

fn line(row: &Row, began: Instant) -> String {
    let seen = row.seen_of_pod.or(row.seen);
    let seen = seen.map_or_else(String::new, |seen| format!(", saw {seen} of {}", row.truth));
    let time = match row.program_ns_per_call {
        Some(ns) => format!("{ns:.0} ns of programs per call"),
        None => format!("{:.0} ns per call", row.ns_per_call),
    };
    format!(
        "{:5.0} s  round {} {} {}: {} calls, {time}{seen}",
        began.elapsed().as_secs_f64(),
        row.round + 1,
        row.workload,
        row.tracer,
        row.calls
    )
}

fn write_csv<T: Serialize>(path: &Path, rows: impl IntoIterator<Item = T>) -> Result<()> {
    let fail = || format!("cannot write {}", path.display());
    let mut writer = csv::Writer::from_path(path).with_context(fail)?;
    for row in rows {
        writer.serialize(row).with_context(fail)?;
    }
    writer.flush().with_context(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tracer_has_its_turn_at_every_place() {
        let tracers = [Tracer::None, Tracer::NoneAgain, Tracer::Strace];
        assert_eq!(order(&tracers, 0), tracers);
        assert_eq!(order(&tracers, 1), [Tracer::Strace, Tracer::NoneAgain, Tracer::None]);
        let first: Vec<Tracer> = (0..6).map(|round| order(&tracers, round)[0]).collect();
        assert!(tracers.iter().all(|tracer| first.contains(tracer)));
        assert!(order(&[], 5).is_empty());
    }
}
