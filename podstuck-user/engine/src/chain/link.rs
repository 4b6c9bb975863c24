//! One link, and the words for its facts.

use crate::model::{
    chain::{Link, LinkFact, Who},
    halted::Halted,
    path::{safe, safe_path},
    said::Said,
};

/// Maximum length of a container's name.
pub(super) const CONTAINER: usize = 63;

/// A link from a fact of a scan.
pub(super) fn seen(
    who: Who,
    must: &str,
    waits_for: Option<String>,
    fact: String,
    source: &str,
) -> Link {
    Link { waits_for, ..Link::new(who, must, fact, source) }
}

/// Sets what the link waits for.
pub(super) fn waits_for(link: Link, what: &str) -> Link {
    Link { waits_for: Some(what.to_owned()), ..link }
}

/// Replaces the fact by the component's log message, if there is one.
pub(super) fn logged(link: Link, said: Option<&Said>) -> Link {
    match said {
        Some(said) => Link { facts: logs(said), ..link },
        None => link,
    }
}

/// A component's log message, as the only fact.
pub(super) fn logs(said: &Said) -> Vec<LinkFact> {
    vec![LinkFact { fact: said.quote("it"), source: said.source.clone() }]
}

/// Why a component does nothing, as a fact.
pub(super) fn halted(why: &Halted) -> String {
    match why {
        Halted::Stopped => "it is stopped, and does nothing until it receives SIGCONT".into(),
        Halted::Frozen { group } => format!("its control group {} is frozen", safe_path(group)),
        Halted::NoDescriptors { open, most, .. } => {
            format!("it has {open} file descriptors open, of at most {most}")
        }
        Halted::NoTasks { group, tasks, most } => {
            let path = safe_path(group);
            format!("its control group {path} has {tasks} of the {most} tasks that it may have")
        }
        Halted::Waits { tid, state, channel } => {
            let channel = safe(channel.as_bytes());
            format!("its thread {tid} waits in the kernel function {channel} (state {state})")
        }
    }
}
