//! Threads that hang, and slow unmounts.

use std::path::Path;

use podstuck_common::record;

use super::Attributor;
use crate::{
    event::What,
    model::{
        call::Call,
        hung::Phase,
        identity::{Component, Target, TargetKind},
        stuck::StuckThread,
    },
};
use podstuck_node::{
    identity::targets::Known,
    scope::Scope,
    state::hung::{PhaseTook, Sighting},
};

impl Attributor {
    /// A hung thread, if it hangs in a removal, and is of interest.
    pub(crate) fn stuck(&mut self, seen: Sighting) -> Option<StuckThread> {
        let known = seen
            .path
            .as_deref()
            .and_then(|path| self.target_seen_by(&seen.actor, seen.thread.pid, path));
        let (target_id, target) = known.unwrap_or_else(|| (0, self.targets.unknown()));
        let actor = self.actor_on(seen.thread.pid, &seen.actor, (target_id, &target));
        let deletes = seen.phase != Phase::InSyscall || is_removal(&seen.syscall);
        let owned = !matches!(target.kind, TargetKind::Other);
        // A lookup is of interest only as the start of a removal. An open may wait for the other end of a pipe, which
        // is no fault.
        let removes = deletes || (owned && actor.component != Component::Workload);
        let pipe = seen.wait_channel.as_deref() == Some("wait_for_partner");
        let path = seen.path.as_deref();
        if !removes || pipe || !is_of_interest(&self.scope, &target, path, actor.component) {
            return None;
        }
        let mnt_ns = seen.actor.mnt_ns;
        let Sighting { thread, phase, syscall, path, mount, began, since, before_start, .. } = seen;
        let Sighting { at, over, times, wait_channel, stack, progress, disks, lock, .. } = seen;
        Some(StuckThread {
            thread,
            phase,
            syscall,
            path,
            mount,
            target_id,
            target,
            actor,
            mnt_ns,
            began,
            since,
            before_start,
            at,
            over,
            times,
            wait_channel,
            stack,
            progress,
            disks,
            lock,
        })
    }

    /// A phase of an unmount whose end no probe sees, if it is of interest.
    pub(crate) fn phase(&mut self, took: &PhaseTook) -> Option<What> {
        let known = self.target_seen_by(&took.actor, took.pid, &took.path);
        let (target_id, target) = known.unwrap_or_else(|| (0, self.targets.unknown()));
        if !self.scope.includes(&target, Some(&took.path)) {
            return None;
        }
        let component = self.actor_on(took.pid, &took.actor, (target_id, &target)).component;
        Some(What::Phase { span: took.span, target_id, component, took: took.duration })
    }

    /// The target of a path that a process has named. A process in a container may mount and create anything.
    fn target_seen_by(&mut self, seen: &record::Caller, pid: u32, path: &Path) -> Option<Known> {
        if self.targets.roots().has_view(seen.mnt_ns) {
            self.targets.of_in(seen.mnt_ns, path)
        } else if self.actor(pid, seen).actor.pod.is_none() {
            self.targets.of(path)
        } else {
            None
        }
    }
}

/// A kubelet that waits for another pod's volume may do nothing for the pod in question.
fn is_of_interest(
    scope: &Scope,
    target: &Target,
    path: Option<&Path>,
    component: Component,
) -> bool {
    let owned = !matches!(target.kind, TargetKind::Other);
    let keeps_all = owned && component == Component::Kubelet && scope.pod.is_some();
    keeps_all || scope.includes(target, path)
}

fn is_removal(syscall: &str) -> bool {
    syscall.starts_with("rename") || Call::ALL.iter().any(|call| call.name() == syscall)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::identity::Pod;

    #[test]
    fn a_kubelet_that_waits_for_another_pod_is_of_interest_where_one_pod_is_asked_about() {
        let of = |kind| {
            let pod = Some(Pod { uid: "b".into(), namespace: None, name: None });
            Target { kind, pod, ..Target::unknown() }
        };
        let asked = Scope { pod: Some("a".into()), ..Scope::default() };
        let volume = of(TargetKind::PodVolume);
        assert!(is_of_interest(&asked, &volume, None, Component::Kubelet));
        assert!(!is_of_interest(&asked, &volume, None, Component::Containerd));
        assert!(!is_of_interest(&asked, &of(TargetKind::Other), None, Component::Kubelet));
        let container = Scope { container: Some("c".into()), ..Scope::default() };
        assert!(!is_of_interest(&container, &volume, None, Component::Kubelet));
    }
}
