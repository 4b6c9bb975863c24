//! Shell completion of values: names of causes and labs, and the pods of this node.
//!
//! The program itself answers the shell's request (`COMPLETE=bash podstuck`), before it does anything else.

use std::{fs, path::Path};

use clap_complete::engine::CompletionCandidate;
use podstuck_engine::catalogue;

/// Where kubelet keeps the logs of each pod: `NAMESPACE_NAME_UID`.
const LOGS: &str = "/var/log/pods";
/// Limit of candidates: a list to choose from.
const MOST: usize = 1000;

/// Every cause, with its title.
pub(super) fn causes() -> Vec<CompletionCandidate> {
    let described = |cause: &podstuck_engine::cause::Cause| {
        let title = cause.title.replace("**", "");
        CompletionCandidate::new(cause.id.as_str()).help(Some(title.into()))
    };
    catalogue::all().map(described).collect()
}

/// Every case of the lab.
pub(super) fn labs() -> Vec<CompletionCandidate> {
    let described = |case: &podstuck_lab::Case| {
        CompletionCandidate::new(case.id).help(Some(case.summary.into()))
    };
    podstuck_lab::cases().map(described).collect()
}

/// Pods of this node, as `--pod` takes them.
pub(super) fn pods() -> Vec<CompletionCandidate> {
    pods_of(Path::new(LOGS)).into_iter().map(|(pod, _)| CompletionCandidate::new(pod)).collect()
}

/// Their UIDs, each with the pod's name.
pub(super) fn uids() -> Vec<CompletionCandidate> {
    let described =
        |(pod, uid): (String, String)| CompletionCandidate::new(uid).help(Some(pod.into()));
    pods_of(Path::new(LOGS)).into_iter().map(described).collect()
}

/// `NAMESPACE/NAME` and UID of each directory of logs. Names in another form than kubelet's are left out: a shell
/// would interpret them.
fn pods_of(logs: &Path) -> Vec<(String, String)> {
    let names = fs::read_dir(logs).into_iter().flatten().flatten().take(MOST);
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut pods: Vec<(String, String)> = names.filter_map(|name| pod(&name)).collect();
    pods.sort();
    pods
}

fn pod(directory: &str) -> Option<(String, String)> {
    let mut parts = directory.split('_');
    let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    let is_plain = |part: &str| {
        let may = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        !part.is_empty() && part.chars().all(may)
    };
    let plain = parts.next().is_none() && [namespace, name, uid].into_iter().all(is_plain);
    plain.then(|| (format!("{namespace}/{name}"), uid.to_owned()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn pods_are_offered_and_hostile_names_are_not() {
        let logs = tempfile::tempdir().unwrap();
        for name in ["shop_cart-0_1-2-3", "a_b_c", "shop_$(reboot)_4", "one", "a_b_c_d", "a__c"] {
            fs::create_dir(logs.path().join(name)).unwrap();
        }
        let pods = pods_of(logs.path());
        let expected = [("a/b", "c"), ("shop/cart-0", "1-2-3")];
        assert_eq!(pods, expected.map(|(pod, uid)| (pod.to_owned(), uid.to_owned())));
        assert!(pods_of(&logs.path().join("missing")).is_empty());
    }

    #[test]
    fn causes_and_labs_are_those_of_the_catalogue() {
        let has = |all: Vec<CompletionCandidate>, name: &str| {
            all.iter().any(|candidate| candidate.get_value() == name)
        };
        assert!(has(causes(), catalogue::all().next().unwrap().id.as_str()));
        assert!(has(labs(), podstuck_lab::cases().next().unwrap().id));
    }
}
