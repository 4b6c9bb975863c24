//! What a cluster's API server has: its objects as they are read, and the questions by which they are read.
//!
//! The decision asks [`Facts`]; what is not known yet is noted there. A reader answers what was noted, and the decision is
//! made again, until nothing is wanted. So what is decided and what is read for it cannot differ, and a test needs no server.

mod facts;
mod kind;
mod object;
mod selector;

pub use facts::{AGAIN, Answer, Facts, Known, Kubelet, Question, Survey, Unread, Why};
pub use kind::{CORE, Key, Kind};
pub use object::{
    ClaimRef, Condition, ContainerStatus, Endpoint, ManagedFields, Meta, Object, Owner, Rule,
    ServiceRef, Spec, Status, Taint, VolumeError, Webhook, WebhookClient,
};
pub use selector::Selector;
