//! The API objects of a cluster, as they are read, and the questions by which they are read.
//!
//! The decision reads [`Facts`], which record each open question. A reader answers the open questions, and the
//! decision is repeated until none is open. So the facts that are read are exactly those that are used, and a test
//! needs no server.

mod facts;
mod kind;
mod kubelets_list;
mod last_request;
mod object;
mod removal;
mod selector;

pub use facts::{AGAIN, Answer, Facts, Known, Kubelet, Question, Survey, Unread, Why};
pub use kind::{CORE, Key, Kind};
pub use kubelets_list::{Change, KubeletsList, Listed, NotRead};
pub use last_request::{Last, LastRequest, NODES};
pub use object::{
    ClaimRef, Condition, Consumer, ContainerStatus, Endpoint, ManagedFields, Meta, Object, Owner,
    Rule, ServiceRef, Spec, Status, Taint, VolumeError, Webhook, WebhookClient,
};
pub use removal::{By, Refusal, Removal};
pub use selector::Selector;
