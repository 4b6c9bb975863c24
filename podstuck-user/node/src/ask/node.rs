//! Answers a question by reading this node.

use super::Look;
use crate::state::{
    asked::{Asked, spawned},
    holders,
};
use podstuck_confine::helper::Share;
use podstuck_model::{
    answer,
    holder::{About, Snapshot},
    query::{Answer, NoAnswer, Wants},
};

/// This node.
#[derive(Clone, Copy, Debug)]
pub struct Node;

impl Look for Node {
    async fn answer(&self, share: Share, wants: Wants) -> Answer {
        answer!(wants, question => question.answer(share).await)
    }

    async fn holders(&self, about: Vec<About>) -> Result<Vec<Snapshot>, NoAnswer> {
        spawned(move || holders::snapshots(about)).await.flatten()
    }
}
