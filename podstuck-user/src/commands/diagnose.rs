//! `podstuck diagnose`: one question, "why is this stuck?", one answer.

use jiff::Timestamp;

use super::{
    Exit, Failure,
    reporter::Reporter,
    trace::{self, Until},
};
use crate::{
    cli::Diagnose,
    detect::{
        Verdict,
        ledger::Ledger,
        rank,
        record::{self, Here},
        stage,
    },
    identity::{WantedError, pod_record::PodRecord},
    kernel::facts,
    model::time::{Clock, Monotonic},
};

/// Runs the command.
pub fn run(mut options: Diagnose, verbose: u8) -> Result<Exit, Failure> {
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
    let mut ledger = Ledger::new(clock);
    if let Some(draft) = record::verdict(record, here) {
        ledger.admit(Verdict::Found(Box::new(draft)));
    }
    let answer = rank::diagnosis(Some(&format!("pod {}", pod.uid)), vec![gone], 0.0, ledger.all());
    let tracing = &options.tracing;
    Reporter::new(tracing.output, tracing.export.as_deref(), true)?.diagnosis(&answer);
    Ok(if answer.causes.is_empty() { Exit::Clean } else { Exit::Found })
}
