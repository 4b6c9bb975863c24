//! A pod that something holds, and what an answer about it must say.

use std::time::Duration;

use podstuck_test_node::Node;
use serde_json::Value;

use super::{
    asked::{Asked, is_chosen},
    faults::Setup,
    pods::on_disk,
};

/// What ends a case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The first command that is printed.
    Command,
    /// What no command can do, such as to bring a driver back.
    Advice,
    /// Nothing is wrong: it is asked about while it goes on.
    Time,
    /// Nothing is wrong: its time of grace is not over.
    Grace,
    /// Nothing is wrong: it is not deleted.
    Never,
}

/// What all pods of a node notice: such cases are played by themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    None,
    /// None, and what is advised is for the whole node.
    Advised,
    /// kubelet is restarted, as by an upgrade.
    KubeletRestarted,
    /// kubelet has ended.
    KubeletEnded,
    /// kubelet is stopped by a signal.
    KubeletStopped,
    /// The runtime does not answer.
    RuntimeStopped,
    /// The runtime has ended.
    RuntimeEnded,
}

/// A pod that something holds.
pub struct Case {
    /// Of the case, of the pod, and of all that it takes.
    pub name: &'static str,
    /// The pod, or a list with it.
    pub pod: fn(&str) -> Value,
    /// What is done while it runs.
    pub faults: Setup,
    /// The cause that must come first; empty where no cause can be known, and a note must say what is missing.
    pub cause: &'static str,
    /// How sure.
    pub certainty: &'static str,
    /// The cause that must come behind it, for what holds the pod next.
    pub next: Option<&'static str>,
    /// What ends it.
    pub end: End,
    /// What the advice comes to, where that is what ends it, alone or after the command.
    pub advised: Option<fn(&Node)>,
    /// What happens to the node before the deletion.
    pub trouble: Trouble,
}

impl Case {
    pub const PLAIN: Self = Self {
        name: "",
        pod: on_disk,
        faults: |_, _| Vec::new(),
        cause: "",
        certainty: "firm",
        next: None,
        end: End::Command,
        advised: None,
        trouble: Trouble::None,
    };

    /// What stands in the API server's record only.
    pub fn is_unknowable(&self) -> bool {
        self.cause.is_empty() || (self.is_by_record() && api_is_down())
    }

    fn is_by_record(&self) -> bool {
        ["pod-finalizer", "pod-not-deleted", "grace-period-or-prestop"].contains(&self.cause)
    }

    /// Whether a watch that goes on must tell it. It asks the API server once, when it begins; that a pod is to go it
    /// hears from kubelet, unless that is what does not run.
    pub fn is_reported_live(&self) -> bool {
        let hears = !matches!(self.trouble, Trouble::KubeletStopped | Trouble::KubeletEnded);
        hears && !self.cause.is_empty() && !self.is_by_record()
    }

    /// Whether what is printed must release the pod.
    pub fn is_released(&self) -> bool {
        // What kubelet has lost, the API server knows.
        let is_lost = self.cause == "vol-data-missing-or-corrupt" && api_is_down();
        let is_ended = self.end == End::Command || self.advised.is_some();
        is_ended && !self.is_unknowable() && !is_lost
    }

    /// Whether the first cause is that of the case, as sure as it is to be; none where none can be known.
    pub fn is_right(&self, asked: &Asked) -> bool {
        let first = asked.first();
        if self.is_unknowable() {
            return first.is_null();
        }
        first["id"] == self.cause && first["certainty"] == self.certainty
    }

    /// What was wrong with an answer.
    pub fn complaints(&self, asked: &Asked, released_after: Option<Duration>) -> Vec<String> {
        let first = asked.first();
        let mut wrong = Vec::new();
        let note_text = match self.trouble {
            Trouble::KubeletStopped => "is stopped by a signal: it does nothing",
            _ => "no kubelet runs on this node: no component removes",
        };
        if self.cause.is_empty() && !asked.notes().any(|note| note.contains(note_text)) {
            wrong.push("no note that no component tries".into());
        }
        if self.is_unknowable() {
            if asked.status != Some(5) || !first.is_null() {
                wrong.push(format!("{} by no record, exit status {:?}", first["id"], asked.status));
            }
            return wrong;
        }
        if first["id"] != self.cause {
            wrong.push(format!("{} first, and not {}", first["id"], self.cause));
        } else if first["certainty"] != self.certainty {
            wrong.push(format!("only {}", first["certainty"]));
        } else if first["blocks_deletion"] != !matches!(self.end, End::Grace | End::Never) {
            wrong.push(format!("that it holds the pod is {}", first["blocks_deletion"]));
        }
        // Whose volume it is, only the API server says.
        let claim = format!("claim default/{0}, PersistentVolume pv-{0}, driver ", self.name);
        let is_claimed = first["volume"]["plugin"] == "kubernetes.io/csi" && !api_is_down();
        if is_claimed && !first["evidence"].to_string().contains(&claim) {
            wrong.push("the answer does not say whose claim it is".into());
        }
        if self.next.is_some() && self.next != asked.causes().get(1).copied() {
            wrong.push(format!("{:?} after it, and not {:?}", asked.causes().get(1), self.next));
        }
        if asked.status != Some(i32::from(self.end != End::Never)) {
            wrong.push(format!("exit status {:?}", asked.status));
        }
        if self.is_released() && released_after.is_none() {
            wrong.push("the pod is not released".into());
        }
        wrong
    }
}

/// Whether the API server does not answer.
pub fn api_hangs() -> bool {
    is_chosen("PODSTUCK_NODE_API", "hung")
}

/// Whether the API server's port has no listener.
pub fn api_refuses() -> bool {
    is_chosen("PODSTUCK_NODE_API", "refused")
}

/// Whether it is of no use, one way or the other.
pub fn api_is_down() -> bool {
    api_hangs() || api_refuses()
}
