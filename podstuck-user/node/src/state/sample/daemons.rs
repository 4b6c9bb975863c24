//! Kubelets and runtimes that were started during the run, and where they keep their things. Those that were
//! there before were asked then.

use std::{collections::BTreeMap, path::PathBuf, time::Instant};

use super::Places;
use crate::{
    identity::{
        data_roots::of_runtime,
        runtimes::Daemons,
        target_roots::{Holds, TargetRoot},
        trust::Belief,
    },
    state::{kubelet, namespaces, runtime},
};
use podstuck_confine::{back_off::BackOff, proc};

/// A process, by its id and when it was started.
type Started = (u32, u64);

/// Those that were asked.
#[derive(Debug, Default)]
pub(super) struct NewDaemons {
    /// When each is asked again; `None` for those that have said all.
    again: BTreeMap<Started, Option<BackOff>>,
    /// Where they said.
    found: Vec<TargetRoot>,
}

/// Kubelets and runtimes that run now, each with its start.
pub fn known(daemons: &Daemons) -> Vec<Started> {
    let runtimes = daemons.runtimes.iter().map(|(pid, _)| pid);
    daemons.kubelets.iter().chain(runtimes).filter_map(|pid| started(*pid)).collect()
}

impl NewDaemons {
    /// Asks those that are new; whether they have said something new. kubelets' roots are looked at from now on,
    /// unless it was said where to look.
    pub(super) fn learn(&mut self, daemons: &Daemons, places: &mut Places) -> bool {
        let now = known(daemons);
        self.again.retain(|one, _| now.contains(one));
        // What only one that has ended could see is not to be found again.
        self.found.retain(|root| root.process().is_none_or(|pid| daemons.kubelets.contains(&pid)));
        let before = self.found.len();
        for pid in &daemons.kubelets {
            self.ask(*pid, places, |places| {
                let (settings, unread) = kubelet::settings(&places.host_root, *pid);
                let settings = settings?;
                let root = settings.root.filter(|_| places.takes_new_roots);
                if let Some(root) =
                    root.as_ref().filter(|root| !places.kubelet_roots.contains(root))
                {
                    match daemons.belief(*pid) {
                        Belief::Service => places.kubelet_roots.insert(0, root.clone()),
                        Belief::Administrator => places.kubelet_roots.push(root.clone()),
                    }
                }
                let roots = root.map(|root| seen_by(*pid, root)).into_iter().collect();
                Some((roots, unread.is_empty()))
            });
        }
        for (pid, component) in &daemons.runtimes {
            self.ask(*pid, places, |places| {
                let settings = runtime::settings(&places.host_root, *pid, *component)?;
                Some((of_runtime(*component, &settings), settings.unread.is_none()))
            });
        }
        self.found.len() != before
    }

    /// What all of them have said.
    pub(super) fn found(&self) -> &[TargetRoot] {
        &self.found
    }

    /// `ask` tells where, and whether that is all.
    fn ask(
        &mut self,
        pid: u32,
        places: &mut Places,
        ask: impl FnOnce(&mut Places) -> Option<(Vec<TargetRoot>, bool)>,
    ) {
        let Some(process) = started(pid).filter(|one| !places.asked.contains(one)) else { return };
        let again = self.again.entry(process).or_insert_with(|| Some(BackOff::default()));
        if !again.as_mut().is_some_and(|it| it.is_due(Instant::now())) {
            return;
        }
        let answer = ask(places);
        // Another one may have its id by now.
        if started(pid) != Some(process) {
            return;
        }
        let Some((roots, is_all)) = answer else { return };
        if is_all {
            *again = None;
        }
        for root in roots {
            if !self.found.contains(&root) {
                tracing::info!("new: {root:?}");
                self.found.push(root);
            }
        }
    }
}

fn started(pid: u32) -> Option<Started> {
    Some((pid, proc::started(pid)?))
}

/// As the host has it, or as that kubelet does where it sees other mounts.
fn seen_by(pid: u32, root: PathBuf) -> TargetRoot {
    let root = TargetRoot::of_host(root, Holds::Pods);
    let host = namespaces::of_process(1).or_else(|| namespaces::of_process(std::process::id()));
    match namespaces::of_process(pid).filter(|own| Some(*own) != host) {
        Some(own) => root.seen_by(pid, own),
        None => root,
    }
}
