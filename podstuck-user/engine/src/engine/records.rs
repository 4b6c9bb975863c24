//! What the API server's records add to a finding, whichever tracker it is from.

use super::Engine;
use crate::{
    model::node_record::NodeRecord,
    rules::{claim, orphan},
    verdict::Draft,
};

impl Engine {
    /// Adds what is known of the pod and of its volume.
    pub(super) fn add_records(&self, draft: &mut Draft) {
        let lacks = |node: &&NodeRecord| node.lacks(draft.target.pod.as_ref());
        if let Some(node) = self.nodes.iter().find(lacks) {
            orphan::nobody_waits(draft, node.read);
        }
        if let Some(record) = &self.record {
            claim::tell(draft, record);
        }
    }
}
