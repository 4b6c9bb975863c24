//! Finds the cause that keeps an object, from the objects at the API server: for pods, claims, volumes, attachments,
//! nodes, namespaces and the objects that these wait for. It keeps no state between events: [`judge`] is a function of
//! [`Facts`], which record the questions that it could not answer.

mod attachment;
mod case;
mod chain;
mod control_plane;
mod daemon_set;
mod device_driver;
mod finalizer;
mod foreground;
mod job;
mod kubelet;
mod machine;
mod namespace;
mod node;
mod pod;
mod refused;
mod remedy;
mod resource_claim;
mod unreadable;
mod volume;
mod waiting;
mod webhook;

use std::{collections::BTreeSet, time::Duration};

use crate::{
    family::Family,
    model::cluster::{Facts, Key, Kind, Known},
};

pub use case::{Case, Found, State, Step};
pub use chain::{Answer, answer};

/// The family's causes. Causes in a pod's record alone belong to `pod_record`.
pub(crate) static FAMILY: Family = Family {
    causes: &[
        &node::NOT_HEARD,
        &node::OFF,
        &node::GONE,
        &finalizer::OBJECT_FINALIZER,
        &finalizer::CONTROLLER_GONE,
        &webhook::UNAVAILABLE,
        &refused::REMOVAL_REFUSED,
        &control_plane::WITHOUT_LEADER,
        &daemon_set::NOT_SYNCED,
        &namespace::CONTENT_REMAINS,
        &namespace::API_UNAVAILABLE,
        &namespace::CONVERSION_FAILS,
        &unreadable::UNREADABLE,
        &volume::CLAIM_IN_USE,
        &volume::BOUND,
        &volume::ATTACHED,
        &attachment::IN_USE_ON_NODE,
        &volume::DETACH_FAILS,
        &volume::ATTACHED_VOLUME_GONE,
        &resource_claim::RESERVED,
        &resource_claim::NOT_RELEASED,
        &device_driver::NOT_ON_NODE,
        &foreground::DEPENDENTS,
        &node::VIRTUAL,
        &node::WINDOWS,
    ],
    trackers: &[],
};

/// A healthy deletion finishes within this time: kubelet and controllers act within seconds, and retry within a few
/// more.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Judges what keeps an object.
pub fn judge(key: &Key, facts: &Facts) -> Case {
    judge_below(key, facts, &BTreeSet::new())
}

/// Judges an object that the objects `above` wait for.
fn judge_below(key: &Key, facts: &Facts, above: &BTreeSet<Key>) -> Case {
    let object = match facts.object(key) {
        Known::Is(object) => object,
        Known::Missing => return Case::without(key, State::Gone),
        Known::Unread => return Case::without(key, State::Unread),
    };
    let mut case = Case::new(key, &object, facts.now);
    if case.state == State::NotDeleted {
        if key.kind == Kind::POD {
            pod::not_deleted(&mut case, &object, facts);
        } else if key.kind == Kind::NODE {
            node::not_deleted(&mut case, &object, facts);
        } else if key.kind == Kind::DAEMON_SET {
            daemon_set::not_deleted(&mut case, &object, facts);
        } else if key.kind == Kind::ATTACHMENT {
            attachment::not_deleted(&mut case, &object, facts);
        }
        case.waits_for.retain(|next| next != key && !above.contains(next));
        return case;
    }
    match (&*key.kind.group, &*key.kind.name) {
        ("", "Pod") => pod::judge(&mut case, &object, facts),
        ("", "PersistentVolumeClaim") => volume::judge_claim(&mut case, &object, facts),
        ("", "PersistentVolume") => volume::judge_volume(&mut case, &object, facts),
        ("storage.k8s.io", "VolumeAttachment") => {
            volume::judge_attachment(&mut case, &object, facts);
        }
        ("resource.k8s.io", "ResourceClaim") => {
            finalizer::judge(&mut case, &object, facts, |name, case| {
                (name == resource_claim::PROTECTION)
                    .then(|| resource_claim::judge(case, &object, facts))
                    .flatten()
            });
        }
        ("", "Namespace") => namespace::judge(&mut case, &object, facts),
        _ => finalizer::judge(&mut case, &object, facts, |_, _| None),
    }
    case.waits_for.retain(|next| next != key && !above.contains(next));
    case
}

#[cfg(test)]
mod tests;
