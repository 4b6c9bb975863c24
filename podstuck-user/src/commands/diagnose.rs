//! `podstuck diagnose`: one question, "why is this stuck?", one answer.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    Exit, Failure, away,
    reporter::Reporter,
    trace::{self, Until},
};
use crate::{
    cli::{Diagnose, Tracing},
    detect::{
        Verdict,
        ledger::Ledger,
        rank,
        record::{self, Here},
        stage,
    },
    export::Shot,
    identity::{WantedError, pod_record::PodRecord},
    kernel::facts,
    model::{
        series::SeriesTable,
        summary::Completeness,
        time::{Clock, Monotonic},
    },
};

/// Runs the command.
pub fn run(mut options: Diagnose, verbose: u8) -> Result<Exit, Failure> {
    let Tracing { export, node, .. } = &mut options.tracing;
    // `-` is no path, but standard input.
    let record = options.pod_json.iter_mut().filter(|path| path.as_os_str() != "-");
    away::leave(export.iter_mut().chain(record).chain(away::of_node(node)))?;
    let record = options.pod_json.as_deref().map(PodRecord::read).transpose();
    let record = record.map_err(|error| Failure::Usage(error.into()))?;
    let target = &mut options.tracing.target;
    let mut by_record = None;
    if target.is_whole_node() {
        by_record = record.clone();
        target.pod_uid = record.as_ref().map(|record| record.pod.uid.clone());
    }
    match trace::run(&options.tracing, Until::Firm { limit: options.timeout, record }, verbose) {
        // The record says more than that there is nothing of the pod here.
        Err(Failure::Usage(error)) if is_unknown(&error) => match by_record {
            Some(record) => answer_from(&record, &options).map_err(Failure::Usage),
            None => Err(Failure::Usage(error)),
        },
        other => other,
    }
}

fn is_unknown(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(WantedError::Unknown { .. }))
}

/// The answer about a pod of which nothing is on this node.
fn answer_from(record: &PodRecord, options: &Diagnose) -> anyhow::Result<Exit> {
    let (clock, pod) = (Clock::start(), &record.pod);
    let gone = stage::stage(pod, None);
    let here = Here {
        node: &facts::node_name(),
        stage: Some(gone.stage),
        now: Timestamp::now(),
        at: Monotonic::now(),
    };
    let tracing = &options.tracing;
    let reporter = Reporter::new(tracing.output, tracing.export.as_deref(), true)?;
    let mut ledger = Ledger::new(clock);
    if let Some(draft) = record::verdict(record, here) {
        let told = ledger.admit(Verdict::Found(Box::new(draft)));
        told.iter().for_each(|finding| reporter.finding(finding));
    }
    // Nothing was traced; but a reader of the directory must not take an older run for this one.
    reporter.last_export(|| Shot {
        series: SeriesTable::new(),
        findings: ledger.all().cloned().collect(),
        completeness: Completeness::default(),
        window: Duration::ZERO,
        start: clock.at(clock.started()),
    });
    let answer = rank::diagnosis(Some(&format!("pod {}", pod.uid)), vec![gone], 0.0, ledger.all());
    reporter.diagnosis(&answer);
    Ok(if answer.causes.is_empty() { Exit::Clean } else { Exit::Found })
}
