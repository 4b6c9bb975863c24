//! A sample of the node as a difference to the previous sample: most of a node is unchanged two seconds later.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use podstuck_model::{
    container::ContainerState,
    crowd::Crowd,
    disk::Disk,
    halted::HaltedKubelet,
    linked_root::LinkedRoot,
    mounts::{Mounts, NodeMounts},
    node::{LeftRootfs, NodeSample, PodState},
    pod_group::PodGroup,
    raw_path,
    runtime::{GoneRuntime, HaltedShim, OutOfStep, Runtime},
    space::Space,
    time::Monotonic,
};

/// The difference between two samples.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Delta {
    at: Monotonic,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    begun: Option<Monotonic>,
    rest: Duration,
    kubelets: Vec<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    stopped: Vec<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    halted_kubelets: Vec<HaltedKubelet>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    silent: Vec<u32>,
    #[serde(with = "raw_path::list", skip_serializing_if = "Vec::is_empty", default)]
    unread: Vec<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    kubelet_since: Option<Monotonic>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    linked: Vec<LinkedRoot>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    crowded: Vec<Crowd>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    kubelet_group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pods: Option<Vec<Slot<PodState>>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    cgroups: Option<Vec<Slot<PodGroup>>>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    disks: Vec<Disk>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    spaces: Option<Vec<Slot<Space>>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    rootfs: Option<Vec<Slot<LeftRootfs>>>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    runtimes: Vec<Runtime>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    gone: Vec<GoneRuntime>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    shims: Vec<HaltedShim>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    out_of_step: Vec<OutOfStep>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    containers: Option<Vec<Slot<ContainerState>>>,
    /// By mount namespace; null for one that is gone.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    tables: BTreeMap<u32, Option<Arc<Mounts>>>,
    host: Option<u32>,
}

/// A list item: the index of an equal item in the previous list, or the item.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Slot<T> {
    Same(usize),
    New(T),
}

impl Delta {
    /// The difference from one sample to the next.
    pub(super) fn between(before: &NodeSample, now: &NodeSample) -> Self {
        let (old, new) = (&before.mounts.tables, &now.mounts.tables);
        let same = |namespace: &u32, table: &Arc<Mounts>| {
            old.get(namespace).is_some_and(|known| Arc::ptr_eq(known, table) || known == table)
        };
        let changed = new.iter().filter(|(namespace, table)| !same(namespace, table));
        let changed = changed.map(|(namespace, table)| (*namespace, Some(table.clone())));
        let gone = old.keys().filter(|namespace| !new.contains_key(namespace));
        Self {
            at: now.at,
            begun: now.begun,
            rest: now.rest,
            kubelets: now.kubelets.clone(),
            stopped: now.stopped.clone(),
            halted_kubelets: now.halted_kubelets.clone(),
            silent: now.silent.clone(),
            unread: now.unread.clone(),
            linked: now.linked.clone(),
            crowded: now.crowded.clone(),
            kubelet_since: now.kubelet_since,
            kubelet_group: now.kubelet_group.clone(),
            pods: list(&before.pods, &now.pods),
            cgroups: list(&before.cgroups, &now.cgroups),
            disks: now.disks.clone(),
            spaces: list(&before.spaces, &now.spaces),
            rootfs: list(&before.rootfs, &now.rootfs),
            runtimes: now.runtimes.clone(),
            gone: now.gone.clone(),
            shims: now.shims.clone(),
            out_of_step: now.out_of_step.clone(),
            containers: list(&before.containers, &now.containers),
            tables: changed.chain(gone.map(|namespace| (*namespace, None))).collect(),
            host: now.mounts.host,
        }
    }

    /// The next sample after `before`.
    pub(super) fn apply(self, before: &NodeSample) -> NodeSample {
        let mut tables = before.mounts.tables.clone();
        for (namespace, table) in self.tables {
            match table {
                Some(table) => drop(tables.insert(namespace, table)),
                None => drop(tables.remove(&namespace)),
            }
        }
        NodeSample {
            at: self.at,
            begun: self.begun,
            rest: self.rest,
            kubelets: self.kubelets,
            stopped: self.stopped,
            halted_kubelets: self.halted_kubelets,
            silent: self.silent,
            unread: self.unread,
            linked: self.linked,
            crowded: self.crowded,
            kubelet_since: self.kubelet_since,
            kubelet_group: self.kubelet_group,
            pods: restore(&before.pods, self.pods),
            cgroups: restore(&before.cgroups, self.cgroups),
            disks: self.disks,
            spaces: restore(&before.spaces, self.spaces),
            rootfs: restore(&before.rootfs, self.rootfs),
            runtimes: self.runtimes,
            gone: self.gone,
            shims: self.shims,
            out_of_step: self.out_of_step,
            containers: restore(&before.containers, self.containers),
            mounts: NodeMounts { tables, host: self.host },
        }
    }
}

/// The difference of two lists; `None` when they are equal.
fn list<T: Clone + PartialEq>(before: &[T], now: &[T]) -> Option<Vec<Slot<T>>> {
    if before == now {
        return None;
    }
    let slot = |(at, item): (usize, &T)| {
        // Nearly always at the same index.
        let same = if before.get(at) == Some(item) {
            Some(at)
        } else {
            before.iter().position(|known| known == item)
        };
        same.map_or_else(|| Slot::New(item.clone()), Slot::Same)
    };
    Some(now.iter().enumerate().map(slot).collect())
}

fn restore<T: Clone>(before: &[T], slots: Option<Vec<Slot<T>>>) -> Vec<T> {
    let Some(slots) = slots else { return before.to_vec() };
    let items = slots.into_iter().filter_map(|slot| match slot {
        Slot::Same(at) => before.get(at).cloned(),
        Slot::New(item) => Some(item),
    });
    items.collect()
}
