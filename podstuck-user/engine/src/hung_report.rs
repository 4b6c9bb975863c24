//! Reports of hung calls, also of those without a known cause.

use crate::model::{
    hung::{Hung, Phase, Since},
    operation::Operation,
    path::{JsonPath, safe},
    stuck::StuckThread,
};

/// Reports a thread that is stuck, or no longer is.
pub(crate) fn stuck(seen: &StuckThread) -> Hung {
    Hung {
        syscall: safe(seen.syscall.as_bytes()).into_owned(),
        path: JsonPath(seen.path.clone().unwrap_or_default()),
        pid: seen.thread.pid,
        tid: seen.thread.tid,
        comm: seen.actor.comm.clone(),
        age_s: seen.at.since(seen.began).as_secs_f64(),
        since: seen.since,
        phase: seen.phase,
        since_before_start: seen.before_start,
        over: seen.over,
        outcome: None,
        state: seen.times.map(|times| times.state),
        wchan: seen.wait_channel.clone(),
        stack: seen.stack.clone(),
        victim: seen.target.pod.clone(),
        volume: seen.target.volume.clone(),
    }
}

/// Reports a slow call that has returned, whatever its outcome.
pub(crate) fn returned(op: &Operation) -> Hung {
    Hung {
        syscall: op.call.name().into(),
        path: JsonPath(op.path.clone()),
        pid: op.actor.pid,
        tid: op.tid,
        comm: op.actor.comm.clone(),
        age_s: op.duration.as_secs_f64(),
        since: Since::Probe,
        phase: Phase::InSyscall,
        since_before_start: false,
        over: true,
        outcome: Some(op.outcome),
        state: None,
        wchan: None,
        stack: Vec::new(),
        victim: op.target.pod.clone(),
        volume: op.target.volume.clone(),
    }
}
