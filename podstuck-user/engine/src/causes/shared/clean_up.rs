//! The node's own clean-up, as opposed to what a workload does in its volumes.

use crate::model::{
    identity::{Component, TargetKind},
    operation::Operation,
};

/// Whether this is a part of the node's own clean-up: of something that has an owner, and not by a
/// container that tidies up its own volume.
pub(crate) fn is_clean_up(op: &Operation) -> bool {
    let owned = !matches!(op.target.kind, TargetKind::Other);
    owned && op.actor.component != Component::Workload
}
