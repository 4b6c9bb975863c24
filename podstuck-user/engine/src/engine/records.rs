//! The facts that the API server's records add to a finding of any tracker.

use crate::{
    causes::{busy_mount, orphan, shared::claim},
    command::THIS_NODE,
    engine::Engine,
    model::{identity::Pod, node_record::NodeRecord, shell::is_object_name},
    verdict::Draft,
};

/// Maximum number of stored pods that the API server does not have.
const MISSING: usize = 4096;

impl Engine {
    /// Takes the Node object.
    pub(super) fn learn_node(&mut self, mut node: NodeRecord) {
        let of_before = self.nodes.iter().position(|known| known.node == node.node);
        // A pod that was missing once stays missing: UIDs are not reused.
        if let Some(known) = of_before.map(|at| self.nodes.remove(at)) {
            let is_new = |pod: &Pod| node.missing.iter().all(|it| it.uid != pod.uid);
            let before: Vec<Pod> = known.missing.into_iter().filter(is_new).collect();
            node.missing.extend(before);
            node.missing.truncate(MISSING);
        }
        self.nodes.push(node);
    }

    /// Adds the facts about the pod and its volume.
    pub(super) fn add_records(&self, draft: &mut Draft) {
        let lacks = |node: &&NodeRecord| node.lacks(draft.target.pod.as_ref());
        if let Some(node) = self.nodes.iter().find(lacks) {
            orphan::blocks_no_pod(draft, node.read);
        }
        if let Some(node) = self.node_name().filter(|name| is_object_name(name)) {
            for command in draft.remedies.iter_mut().filter_map(|remedy| remedy.command.as_mut()) {
                *command = command.replace(THIS_NODE, node);
            }
        }
        if let Some(record) = &self.record {
            claim::tell(draft, record);
            busy_mount::nested::tell_propagation(draft, record);
        }
    }

    /// The node's name in the API, from the Node object or from the record of a pod that is here.
    fn node_name(&self) -> Option<&str> {
        if let [node] = self.nodes.as_slice() {
            return Some(&node.node);
        }
        let record = self.record.as_ref()?;
        let is_here = self.sample.as_ref()?.pod(&record.pod.uid).is_some();
        record.node.as_deref().filter(|_| is_here)
    }
}
