//! Answers a question by reading this node.

use std::sync::Arc;

use super::Look;
use crate::state::{
    asked::{AsWhom, Asked, spawned},
    holders,
};
use podstuck_confine::helper::Share;
use podstuck_model::{
    answer,
    holder::{About, Snapshot},
    query::{Answer, NoAnswer, Wants},
};

/// This node.
#[derive(Clone, Debug)]
pub struct Node(Arc<AsWhom>);

impl Node {
    /// This node, whose kubelet is asked with these credentials.
    pub fn new(whom: AsWhom) -> Self {
        Self(Arc::new(whom))
    }
}

impl Look for Node {
    async fn answer(&self, share: Share, wants: Wants) -> Answer {
        answer!(wants, question => question.answer(share, &self.0).await)
    }

    async fn holders(&self, about: Vec<About>) -> Result<Vec<Snapshot>, NoAnswer> {
        spawned(move || holders::snapshots(about)).await.flatten()
    }
}
