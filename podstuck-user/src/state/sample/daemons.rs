//! Kubelets and runtimes that were started during the run, and where they keep their things. Those that were
//! there before were asked then.

use std::{collections::BTreeMap, path::PathBuf};

use super::Places;
use crate::{
    identity::{
        data_roots::of_runtime,
        runtimes::Daemons,
        target_roots::{Holds, TargetRoot},
    },
    proc,
    state::{kubelet, namespaces, runtime},
};

/// How often one is asked that does not answer.
const ATTEMPTS: u8 = 3;

/// A process, by its id and when it was started.
type Started = (u32, u64);

/// Those that were asked.
#[derive(Debug, Default)]
pub(super) struct NewDaemons {
    /// How often one may be asked still.
    attempts: BTreeMap<Started, u8>,
    /// Where they said.
    found: Vec<TargetRoot>,
}

/// Kubelets and runtimes that run now, each with its start.
pub(crate) fn known(daemons: &Daemons) -> Vec<Started> {
    let runtimes = daemons.runtimes.iter().map(|(pid, _)| pid);
    daemons.kubelets.iter().chain(runtimes).filter_map(|pid| started(*pid)).collect()
}

impl NewDaemons {
    /// Asks those that are new; whether they have said something new. kubelets' roots are looked at from now on,
    /// unless it was said where to look.
    pub(super) fn learn(&mut self, daemons: &Daemons, places: &mut Places) -> bool {
        let now = known(daemons);
        self.attempts.retain(|one, _| now.contains(one));
        // What only one that has ended could see is not to be found again.
        self.found.retain(|root| root.process().is_none_or(|pid| daemons.kubelets.contains(&pid)));
        let before = self.found.len();
        for pid in &daemons.kubelets {
            self.ask(*pid, places, |places| {
                let settings = kubelet::told(&places.host_root, *pid).0?;
                let root = settings.root.filter(|_| places.takes_new_roots);
                if let Some(root) =
                    root.as_ref().filter(|root| !places.kubelet_roots.contains(root))
                {
                    places.kubelet_roots.push(root.clone());
                }
                Some(root.map(|root| seen_by(*pid, root)).into_iter().collect())
            });
        }
        for (pid, component) in &daemons.runtimes {
            self.ask(*pid, places, |places| {
                Some(of_runtime(*component, &runtime::told(&places.host_root, *pid, *component)?))
            });
        }
        self.found.len() != before
    }

    /// What all of them have said.
    pub(super) fn found(&self) -> &[TargetRoot] {
        &self.found
    }

    fn ask(
        &mut self,
        pid: u32,
        places: &mut Places,
        ask: impl FnOnce(&mut Places) -> Option<Vec<TargetRoot>>,
    ) {
        let Some(process) = started(pid).filter(|one| !places.asked.contains(one)) else { return };
        let left = self.attempts.entry(process).or_insert(ATTEMPTS);
        if *left == 0 {
            return;
        }
        *left -= 1;
        let answer = ask(places);
        // Another one may have its id by now.
        if started(pid) != Some(process) {
            return;
        }
        let Some(roots) = answer else { return };
        *left = 0;
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
