//! Distinguishes the node's own clean-up from calls of a workload in its volumes.

use crate::model::{
    identity::{Component, TargetKind},
    operation::Operation,
};

/// Whether a call is part of the node's own clean-up: on a target with an owner, and not by a workload.
pub(crate) fn is_clean_up(op: &Operation) -> bool {
    let owned = !matches!(op.target.kind, TargetKind::Other);
    owned && op.actor.component != Component::Workload
}
