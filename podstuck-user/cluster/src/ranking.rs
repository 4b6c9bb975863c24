//! The causes of one pod at the API server and on its node as one list, in the order in which they must be released.

use podstuck_engine::cluster::{Case, Found};
use podstuck_model::evidence::{Certainty, Source};

use crate::examine::NodesAnswer;

/// Who has found a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The API server's objects.
    Api,
    /// podstuck on the node.
    Node,
    /// Both.
    Both,
}

/// A cause, and who has found it.
#[derive(Clone, Debug)]
pub(crate) struct Ranked {
    /// The cause.
    pub(crate) found: Found,
    /// Who has found it.
    pub(crate) by: By,
    turn: Turn,
}

/// When a cause must be released. kubelet makes its last requests after all is gone from the node, and controllers
/// remove their finalizers after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// The API server decides: the node has done its part, or does not report.
    Api,
    /// It blocks the pod on its node.
    Node,
    /// kubelet's last requests.
    LastRequests,
    /// After all the others.
    Later,
    /// It is not known to block the pod.
    Beside,
}

/// The causes of a pod, without or with its node's answer.
pub(crate) fn ranked(case: &Case, node: Option<&NodesAnswer>) -> Vec<Ranked> {
    let now = if case.examine.is_some() { Turn::LastRequests } else { Turn::Api };
    let of_api = |found: &Found| Ranked {
        turn: if found.later { Turn::Later } else { now },
        found: found.clone(),
        by: By::Api,
    };
    let mut all: Vec<Ranked> = case.findings.iter().map(of_api).collect();
    for cause in node.iter().flat_map(|node| &node.causes) {
        let turn = if cause.blocks == Some(true) { Turn::Node } else { Turn::Beside };
        let is_left = node.is_some_and(|node| node.is_left);
        match all.iter_mut().find(|it| it.found.id == cause.found.id) {
            Some(known) => known.merge(&cause.found, turn, is_left),
            None => all.push(Ranked { turn, found: cause.found.clone(), by: By::Node }),
        }
    }
    // Stable: each side's own order stays.
    all.sort_by_key(|it| it.turn);
    all
}

impl Ranked {
    /// Adds what the node shows about the same cause. The node decides about a cause that is certain there, but one that
    /// comes later waits for what is left on the node.
    fn merge(&mut self, of_node: &Found, turn: Turn, is_left: bool) {
        self.by = By::Both;
        let own = &mut self.found;
        if of_node.certainty == Certainty::Firm && !(own.later && is_left) {
            (self.turn, own.later) = (turn, false);
        }
        if of_node.certainty > own.certainty {
            own.certainty = of_node.certainty;
            own.confidence = of_node.confidence;
            own.not_known.clone_from(&of_node.not_known);
            own.explanation.clone_from(&of_node.explanation);
            if own.remedies.iter().all(|it| it.command.is_none()) {
                own.remedies.clone_from(&of_node.remedies);
            }
        }
        // The API server has shown its own facts already.
        let of_node = of_node.evidence.iter().filter(|it| it.source != Source::Record);
        own.evidence.extend(of_node.cloned());
    }
}
