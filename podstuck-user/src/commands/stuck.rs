//! Between the run and the thread that follows stuck calls: hints there, news back.

use std::path::{Path, PathBuf};

use podstuck_common::record::{CountKey, RecordHead, call, reason};

use super::session::Session;
use crate::{
    detect::Sighted,
    model::{
        call::Call,
        hung::{Hung, Phase, Since},
        identity::{Component, Target, TargetKind},
        operation::Operation,
        path::{JsonPath, safe},
        time::Monotonic,
    },
    source::tables::Drained,
    state::{
        stuck::{Hint, News, Sighting, Took, Unmounted},
        thread::Thread,
    },
};

/// What the run is restricted to, for what no probe has filtered.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    /// UID of the pod.
    pub(super) pod: Option<String>,
    /// The directory.
    pub(super) path: Option<PathBuf>,
}

impl Scope {
    fn includes(&self, target: &Target, path: Option<&Path>) -> bool {
        let uid = target.pod.as_ref().map(|pod| &pod.uid);
        self.pod.as_ref().is_none_or(|wanted| uid == Some(wanted))
            && self.path.as_ref().is_none_or(|top| path.is_some_and(|path| path.starts_with(top)))
    }
}

impl Session {
    /// A program that is there to unmount was executed.
    pub(super) fn executed(&mut self, head: &RecordHead) {
        debug_assert_eq!(head.call, call::EXEC);
        let at = Monotonic(head.end_ns);
        self.stuck.hint(Hint::Executed { pid: head.tgid, at, actor: head.actor });
    }

    /// A call was told by the probes: it may have been stuck, and may be so after its return.
    pub(super) fn was_stuck(&mut self, op: &Operation, head: &RecordHead) {
        let thread = Thread { pid: op.actor.pid, tid: op.tid };
        if op.has(reason::SLOW) {
            self.stuck.hint(Hint::Returned(thread));
            self.reporter.hung(&returned(op));
        }
        if op.call == Call::Umount2 {
            let unmounted = Unmounted {
                thread,
                entered: Monotonic(head.end_ns.saturating_sub(head.duration_ns)),
                returned: op.end,
                ok: head.errno == 0,
                path: op.path.clone(),
                actor: head.actor,
            };
            self.stuck.hint(Hint::Unmounted(unmounted));
        }
    }

    /// Counts have come: who deletes, and what has not returned.
    pub(super) fn under_way(&mut self, drained: &Drained) {
        let on_target = |key: &CountKey| (key.target != 0).then_some(key.tgid);
        let mut pids: Vec<u32> = drained.counts.iter().filter_map(|(k, _)| on_target(k)).collect();
        pids.sort_unstable();
        pids.dedup();
        self.stuck.hint(Hint::Deleted(pids));
        self.stuck.hint(Hint::InFlight(drained.in_flight.clone()));
    }

    /// Takes news of threads that are stuck, or were.
    pub(super) fn news(&mut self, news: News) {
        match news {
            News::Seen(sighting) => self.sighted(*sighting),
            News::Took(Took { span, path, pid, actor, duration }) => {
                let known = self.names.target_of(&path);
                let (target_id, target) = known.unwrap_or_else(|| self.names.nowhere());
                if self.scope.includes(&target, Some(&path)) {
                    let component = self.names.actor_on(pid, &actor, &target).component;
                    self.aggregate.add_phase(span, target_id, component, duration);
                }
            }
        }
    }

    fn sighted(&mut self, sighting: Sighting) {
        let path = sighting.path.as_deref();
        let known = path.and_then(|path| self.names.target_of(path));
        let (target_id, target) = known.unwrap_or_else(|| self.names.nowhere());
        let actor = self.names.actor_on(sighting.thread.pid, &sighting.actor, &target);
        let deletes = sighting.phase != Phase::InSyscall || is_removal(&sighting.syscall);
        let owned = !matches!(target.kind, TargetKind::Other);
        // A look is of interest only as the beginning of a removal. An open may wait for the other
        // end of a pipe, which is no fault.
        let is_removal = deletes || (owned && actor.component != Component::Workload);
        let pipe = sighting.wait_channel.as_deref() == Some("wait_for_partner");
        if !is_removal || pipe || !self.scope.includes(&target, path) {
            return;
        }
        self.reporter.hung(&describe(&sighting, &target));
        let seen = Sighted { sighting, target_id, target, actor };
        if let Some(verdict) = self.detectors.sighted(seen) {
            self.tell(verdict);
        }
    }
}

fn is_removal(syscall: &str) -> bool {
    syscall.starts_with("rename") || Call::ALL.iter().any(|call| call.name() == syscall)
}

fn describe(seen: &Sighting, target: &Target) -> Hung {
    let comm = seen.actor.comm.split(|byte| *byte == 0).next().unwrap_or_default();
    Hung {
        syscall: safe(seen.syscall.as_bytes()).into_owned(),
        path: JsonPath(seen.path.clone().unwrap_or_default()),
        pid: seen.thread.pid,
        tid: seen.thread.tid,
        comm: safe(comm).into_owned(),
        age_s: seen.at.since(seen.began).as_secs_f64(),
        since: seen.since,
        phase: seen.phase,
        since_before_start: seen.before_start,
        over: seen.over,
        outcome: None,
        state: seen.times.map(|times| times.state),
        wchan: seen.wait_channel.clone(),
        stack: seen.stack.clone(),
        victim: target.pod.clone(),
        volume: target.volume.clone(),
    }
}

/// A call that took long and is over: also one whose outcome is harmless.
fn returned(op: &Operation) -> Hung {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::identity::Pod;

    #[test]
    fn a_restricted_run_tells_its_own_only() {
        let of = |uid: &str| Target {
            pod: Some(Pod { uid: uid.into(), namespace: None, name: None }),
            ..Target::unknown()
        };
        let scope = Scope { pod: Some("a".into()), path: None };
        assert!(scope.includes(&of("a"), None) && !scope.includes(&of("b"), None));
        assert!(!scope.includes(&Target::unknown(), None));
        let scope = Scope { pod: None, path: Some("/v".into()) };
        assert!(scope.includes(&of("b"), Some(Path::new("/v/x"))));
        assert!(
            !scope.includes(&of("b"), Some(Path::new("/w"))) && !scope.includes(&of("b"), None)
        );
        assert!(Scope::default().includes(&of("b"), None));
    }
}
