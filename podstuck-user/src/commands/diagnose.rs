//! `podstuck diagnose`: one question, "why is this stuck?", one answer.

use super::away;
use crate::{
    cli::{Diagnose, Tracing},
    event::{Event, Run, Thresholds, What},
    model::{pod_record::PodRecord, summary::Start},
};
use crate::{
    live::{
        presenter::Presenter,
        reporter::{Form, Reporter},
        trace::{self, Until},
    },
    outcome::{Exit, Failure},
};
use podstuck_confine::{clock, facts};
use podstuck_node::identity::{WantedError, pod_record};

/// Runs the command.
pub fn run(mut options: Diagnose, verbose: u8) -> Result<Exit, Failure> {
    let Tracing { export, record: recording, node, api, .. } = &mut options.tracing;
    // `-` is standard input, not a path.
    let record = options.pod_json.iter_mut().filter(|path| path.as_os_str() != "-");
    let of_all = away::of_node(node).chain(away::of_api(api));
    away::leave(export.iter_mut().chain(record).chain(recording).chain(of_all))?;
    let record = options.pod_json.as_deref().map(pod_record::read).transpose();
    let record = record.map_err(|error| Failure::Usage(error.into()))?.map(Box::new);
    let target = &mut options.tracing.target;
    let mut by_record = None;
    if target.is_whole_node() {
        by_record = record.clone();
        target.pod_uid = record.as_ref().map(|record| record.pod.uid.clone());
    }
    match trace::run(
        &options.tracing,
        Until::Firm { limit: options.timeout, record, brief: options.brief },
        verbose,
    ) {
        // The record says more than that the pod has no traces here.
        Err(Failure::Usage(error)) => match (error.downcast::<WantedError>(), by_record) {
            (Ok(WantedError::Elsewhere { record, was_here, .. }), _) => {
                // The node's name in Kubernetes may differ from its host name.
                let here = record.node.clone().filter(|_| was_here);
                let here = here.unwrap_or_else(facts::node_name);
                answer_from(&record, here, &options).map_err(Failure::Usage)
            }
            (Ok(WantedError::Unknown { .. }), Some(record)) => {
                answer_from(&record, facts::node_name(), &options).map_err(Failure::Usage)
            }
            (Ok(error), _) => Err(Failure::Usage(error.into())),
            (Err(error), _) => Err(Failure::Usage(error)),
        },
        other => other,
    }
}

/// The answer about a pod without traces on this node. Nothing is traced; but a reader of the export directory must
/// not take an older run for this one.
fn answer_from(record: &PodRecord, node: String, options: &Diagnose) -> anyhow::Result<Exit> {
    let clock = clock::start();
    let tracing = &options.tracing;
    let thresholds =
        Thresholds { hung: tracing.hung_after, not_attempted: tracing.not_attempted_after };
    let run = Run {
        clock,
        start: Start { target: Some(format!("pod {}", record.pod.uid)), ..Start::default() },
        own_mnt_ns: 0,
        thresholds,
        one_answer: true,
        pod: Some(record.pod.clone()),
        container: None,
        directory: None,
    };
    let reporter =
        Reporter::new(tracing.output, tracing.export.as_deref(), Form::of(true, options.brief))?;
    let mut presenter = Presenter::new(run, reporter);
    let at = clock.started();
    // The node has nothing of the pod, so that no scan is made.
    let events = [
        What::Sample(std::sync::Arc::default()),
        What::Record { record: Box::new(record.clone()), node },
    ];
    for what in events {
        presenter.take(&Event { at, what });
    }
    Ok(presenter.answer(at))
}
