//! Directories of kubelets and runtimes that contain what they delete, by mounts that no container can create.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use super::views::View;
use crate::identity::{
    data_roots::of_mount,
    target_roots::{Holds, TargetRoot},
};
use podstuck_model::mounts::Mounts;

/// What was found in tables that have not changed since.
#[derive(Default)]
pub(super) struct TargetRootFinder {
    tables: BTreeMap<u32, (Arc<Mounts>, Vec<TargetRoot>)>,
}

impl TargetRootFinder {
    /// By what the host and kubelets see mounted.
    pub(super) fn sample(
        &mut self,
        kubelet_roots: &[PathBuf],
        views: &[View],
        host: Option<u32>,
    ) -> Vec<TargetRoot> {
        self.tables.retain(|namespace, _| views.iter().any(|view| view.namespace == *namespace));
        for view in views {
            let known = self.tables.get(&view.namespace);
            if !known.is_some_and(|(table, _)| Arc::ptr_eq(table, &view.mounts)) {
                let found = (view.mounts.clone(), of_view(kubelet_roots, view, host));
                self.tables.insert(view.namespace, found);
            }
        }
        self.tables.values().flat_map(|(_, roots)| roots).cloned().collect()
    }
}

fn of_view(kubelet_roots: &[PathBuf], view: &View, host: Option<u32>) -> Vec<TargetRoot> {
    let mounted = view.mounts.all.iter().filter_map(of_mount);
    let mounted = mounted.map(|(path, holds)| TargetRoot::of_host(path, holds));
    let mut found: Vec<TargetRoot> = Vec::new();
    let mut add = |root: TargetRoot| {
        if !found.contains(&root) {
            found.push(root);
        }
    };
    if Some(view.namespace) == host {
        mounted.for_each(add);
        return found;
    }
    // What is mounted there may cover what the host has at that path.
    let usual = kubelet_roots.iter().map(|root| TargetRoot::of_host(root, Holds::Pods));
    mounted.chain(usual).for_each(|root| add(root.seen_by(view.pid, view.namespace)));
    found
}
