//! Pods that the API server asked kubelet to delete, by kubelet's log (`syncLoopIteration` in pkg/kubelet, at level 2).
//!
//! Since 1.21 that line names a pod without its UID, and a successor may have the same name. So a UID counts only
//! where kubelet logs it with that name and no pod of that name is added in between. The API server creates no
//! second pod of a name before the first one is gone, so the line means the pod with that UID.

use std::{collections::BTreeMap, sync::LazyLock};

use jiff::Timestamp;
use podstuck_model::bounded::Bounded;
use regex::Regex;
use serde::{Deserialize, Serialize};

use super::fixed;

/// Names remembered, and pods reported.
const REMEMBERED: usize = 4096;

/// `pods=["NAMESPACE/NAME"]`; without quotes up to 1.25, and several with blanks or commas between.
static CHANGE: LazyLock<Regex> =
    LazyLock::new(|| fixed(r#"^"SyncLoop (ADD|DELETE)" source="api" pods=\[([a-z0-9./", -]*)\]"#));
/// Up to 1.20: `NAME_NAMESPACE(UID)`, with commas between.
static OLD_CHANGE: LazyLock<Regex> =
    LazyLock::new(|| fixed(r#"^SyncLoop \((ADD|DELETE), "api"\): "([a-z0-9.()_, -]*)"$"#));
static OLD_POD: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"^([a-z0-9.-]+)_([a-z0-9-]+)\(([0-9a-f-]+)\)$"));

/// Namespace and name.
pub(super) type Name = (String, String);

/// The current pod of a name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Current {
    uid: Option<String>,
    /// When kubelet was asked to delete it, while its UID is not known.
    deleted: Option<Timestamp>,
    /// When kubelet added it, while its UID is not known.
    added: Option<Timestamp>,
    /// Number of the pod, counted over all names.
    life: u64,
    /// Two UIDs were logged with the name, so it is not known which pod the name means.
    is_ambiguous: bool,
}

/// The state after the lines read so far.
#[derive(Default)]
pub(super) struct Deletions {
    current: Bounded<Name, Current, REMEMBERED>,
    found: Bounded<String, Timestamp, REMEMBERED>,
    added: Bounded<String, Timestamp, REMEMBERED>,
    lives: u64,
    /// By `life`: the UID, or `None` where it is ambiguous.
    uids: Bounded<u64, Option<String>, REMEMBERED>,
}

impl Deletions {
    /// Takes a message of kubelet's and the time when it was written.
    pub(super) fn listen(&mut self, message: &str, at: impl Fn() -> Option<Timestamp>) {
        if let Some(found) = CHANGE.captures(message) {
            let names = found[2].split([',', ' ']).map(|name| name.trim_matches('"'));
            for (namespace, name) in names.filter_map(|name| name.split_once('/')) {
                self.change(&found[1], (namespace.into(), name.into()), &at);
            }
        } else if let Some(found) = OLD_CHANGE.captures(message) {
            for pod in found[2].split(", ").filter_map(|pod| OLD_POD.captures(pod)) {
                let name = (pod[2].to_owned(), pod[1].to_owned());
                if &found[1] == "ADD" {
                    self.change("ADD", name.clone(), &at);
                }
                self.named(&name.0, &name.1, &pod[3]);
                if &found[1] == "DELETE" {
                    self.change("DELETE", name, &at);
                }
            }
        }
    }

    fn change(&mut self, what: &str, name: Name, at: &impl Fn() -> Option<Timestamp>) {
        if what == "ADD" {
            let next = Current { added: at(), ..self.next() };
            self.current.insert(name, next);
            return;
        }
        let Some(at) = at() else { return };
        let next = self.next();
        let current = self.current.or_insert_with(name, || next);
        match &current.uid {
            Some(uid) => self.found.insert(uid.clone(), at),
            None => current.deleted = Some(at),
        }
    }

    /// kubelet logs a pod's name and UID. Static pods are left out: they stay when their mirror pod is deleted. Their
    /// UIDs have no dashes.
    pub(super) fn named(&mut self, namespace: &str, name: &str, uid: &str) {
        if !uid.contains('-') {
            return;
        }
        let name = (namespace.to_owned(), name.to_owned());
        let next = self.next();
        let current = self.current.or_insert_with(name, || next);
        current.is_ambiguous |= current.uid.as_deref().is_some_and(|known| known != uid);
        current.uid = Some(uid.to_owned());
        let one = current.uid.clone().filter(|_| !current.is_ambiguous);
        self.uids.insert(current.life, one);
        let (added, deleted) = (current.added.take(), current.deleted.take());
        if let Some(at) = added.filter(|_| !current.is_ambiguous) {
            self.added.insert(uid.to_owned(), at);
        }
        if let Some(at) = deleted {
            self.found.insert(uid.to_owned(), at);
        }
    }

    fn next(&mut self) -> Current {
        self.lives += 1;
        Current { life: self.lives, ..Current::default() }
    }

    /// The `life` of the current pod of a name.
    pub(super) fn life(&mut self, name: &Name) -> u64 {
        let next = self.next();
        self.current.or_insert_with(name.clone(), || next).life
    }

    /// The UID of a pod that kubelet named without it; `None` where it has logged no UID, or two, since then.
    pub(super) fn uid(&self, name: &Name, life: u64) -> Option<&str> {
        if let Some(known) = self.uids.get(&life) {
            return known.as_deref();
        }
        let current = self.current.get(name)?;
        current.uid.as_deref().filter(|_| current.life == life && !current.is_ambiguous)
    }

    /// Namespace and name of the pod of this name; `None` where two namespaces have one.
    pub(super) fn in_any_namespace(&self, name: &str) -> Option<Name> {
        let mut all = self.current.iter().map(|(known, _)| known).filter(|known| known.1 == name);
        let first = all.next()?;
        all.next().is_none().then(|| first.clone())
    }

    /// Continues after an earlier part of the log.
    pub(super) fn after(known: Vec<(Name, Current)>) -> Self {
        let lives = known.iter().map(|(_, pod)| pod.life).max().unwrap_or(0);
        let mut deletions = Self { lives, ..Self::default() };
        // The most recently used are inserted last.
        known.into_iter().rev().for_each(|(name, pod)| deletions.current.insert(name, pod));
        deletions
    }

    /// The state that the next part of the log continues with.
    pub(super) fn known(&self) -> Vec<(Name, Current)> {
        self.current.iter().map(|(name, pod)| (name.clone(), pod.clone())).collect()
    }

    /// Forgets the current pods: lines were left out, in which any pod may have been added.
    pub(super) fn interrupted(&mut self) {
        self.current = Bounded::default();
    }

    /// The names of pods that kubelet was asked to delete and whose UID it has not logged: it logs one at the pod's
    /// start, and the log may begin later.
    pub(super) fn unnamed(&self) -> Vec<Name> {
        let is_unnamed = |(_, pod): &(&Name, &Current)| pod.uid.is_none() && pod.deleted.is_some();
        self.current.iter().filter(is_unnamed).map(|(name, _)| name.clone()).collect()
    }

    /// The pods to be deleted, by UID, with the time of the entry.
    pub(super) fn into_found(self) -> BTreeMap<String, Timestamp> {
        self.found.iter().map(|(uid, at)| (uid.clone(), *at)).collect()
    }

    /// The pods that kubelet has added, by UID, with the time of the entry.
    pub(super) fn added(&self) -> BTreeMap<String, Timestamp> {
        self.added.iter().map(|(uid, at)| (uid.clone(), *at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0c0d635e-34d6-401c-9482-6a04c554872d";
    const OTHER: &str = "77b896dc-1b3a-4bb7-98d3-f18c64114e2e";
    const STATIC: &str = "0123456789abcdef0123456789abcdef";

    /// The pods to be deleted, after these lines: `ADD` and `DELETE` of the one name, or a UID logged with it.
    fn found(lines: &[&str]) -> Vec<String> {
        let mut deletions = Deletions::default();
        for line in lines {
            match *line {
                "ADD" | "DELETE" => listen(
                    &mut deletions,
                    &format!("\"SyncLoop {line}\" source=\"api\" pods=[\"default/web-4zhtdymg\"]"),
                ),
                uid => deletions.named("default", "web-4zhtdymg", uid),
            }
        }
        deletions.into_found().into_keys().collect()
    }

    fn listen(deletions: &mut Deletions, message: &str) {
        deletions.listen(message, || Some(Timestamp::UNIX_EPOCH));
    }

    #[test]
    fn a_pod_is_known_by_the_uid_that_kubelet_logs_with_its_name() {
        assert_eq!(found(&["ADD", UID, "DELETE", UID]), [UID]);
        assert_eq!(found(&["DELETE", UID]), [UID], "the log begins late");
        assert_eq!(found(&["ADD", "DELETE", UID]), [UID], "deleted before it was started");
        assert_eq!(found(&["ADD", UID, "DELETE", "ADD", UID]), [UID], "kubelet was restarted");
        let mut late = Deletions::default();
        assert!(late.unnamed().is_empty());
        listen(&mut late, "\"SyncLoop DELETE\" source=\"api\" pods=[\"default/web\"]");
        assert_eq!(late.unnamed(), [("default".into(), "web".into())]);
        listen(&mut late, "\"SyncLoop ADD\" source=\"api\" pods=[\"default/web\"]");
        assert!(late.unnamed().is_empty(), "a successor");
        assert!(found(&["ADD", UID]).is_empty());
        assert!(found(&["DELETE"]).is_empty(), "whose name it was is not known");
    }

    #[test]
    fn a_successor_of_the_same_name_is_not_taken_for_the_one_that_goes() {
        assert_eq!(found(&["ADD", UID, "DELETE", "ADD", OTHER]), [UID]);
        assert!(found(&["DELETE", "ADD", OTHER]).is_empty());
        assert_eq!(found(&["ADD", UID, "DELETE", "ADD", OTHER, UID]), [UID], "it is still killed");
        assert_eq!(found(&["DELETE", "ADD", OTHER, "DELETE"]), [OTHER]);
    }

    #[test]
    fn a_name_means_one_pod_as_long_as_that_is_there() {
        let mut deletions = Deletions::default();
        let name = ("default".to_owned(), "web".to_owned());
        let add = "\"SyncLoop ADD\" source=\"api\" pods=[\"default/web\"]";
        listen(&mut deletions, add);
        let first = deletions.life(&name);
        assert_eq!(deletions.uid(&name, first), None);
        deletions.named("default", "web", UID);
        assert_eq!(deletions.uid(&name, first), Some(UID));
        assert_eq!(deletions.in_any_namespace("web"), Some(name.clone()));
        let mut later = Deletions::after(deletions.known());
        listen(&mut later, add);
        let second = later.life(&name);
        later.named("default", "web", OTHER);
        assert_eq!((later.uid(&name, first), later.uid(&name, second)), (None, Some(OTHER)));
        assert_eq!(deletions.uid(&name, first), Some(UID), "known where it was said");
        later.named("default", "web", UID);
        assert_eq!(later.uid(&name, second), None, "both are named");
        later.named("shop", "web", UID);
        assert_eq!(later.in_any_namespace("web"), None);
    }

    #[test]
    fn a_static_pod_stays_when_its_mirror_is_deleted() {
        assert!(found(&[STATIC, "DELETE", STATIC]).is_empty());
    }

    #[test]
    fn after_lines_that_were_left_out_a_name_says_nothing() {
        let mut deletions = Deletions::default();
        listen(&mut deletions, "\"SyncLoop DELETE\" source=\"api\" pods=[\"default/web\"]");
        deletions.interrupted();
        deletions.named("default", "web", UID);
        assert!(deletions.into_found().is_empty());
    }

    /// As written by 1.36, 1.24 (a node of kubevirt's) and 1.19; and by no kubelet.
    #[test]
    fn the_line_is_known_in_the_form_of_all_versions() {
        let table = [
            (
                "\"SyncLoop DELETE\" source=\"api\" pods=[\"shop/web-0\",\"shop/cart-1\"]",
                vec!["cart-1", "web-0"],
            ),
            (
                "\"SyncLoop DELETE\" source=\"api\" pods=[shop/web-0 shop/cart-1]",
                vec!["cart-1", "web-0"],
            ),
            (
                "SyncLoop (DELETE, \"api\"): \"web-0_shop(0c0d635e-34d6-401c-9482-6a04c554872d), \
                 cart-1_shop(77b896dc-1b3a-4bb7-98d3-f18c64114e2e)\"",
                vec!["cart-1", "web-0"],
            ),
            ("\"SyncLoop DELETE\" source=\"file\" pods=[\"shop/web-0\"]", vec![]),
            ("\"SyncLoop REMOVE\" source=\"api\" pods=[\"shop/web-0\"]", vec![]),
            (
                "SyncLoop (REMOVE, \"api\"): \"web-0_shop(0c0d635e-34d6-401c-9482-6a04c554872d)\"",
                vec![],
            ),
            (
                "\"x\" err=\"\\\"SyncLoop DELETE\\\" source=\\\"api\\\" pods=[\\\"shop/web-0\\\"]\"",
                vec![],
            ),
        ];
        for (line, expected) in table {
            let mut deletions = Deletions::default();
            deletions.named("shop", "web-0", UID);
            deletions.named("shop", "cart-1", OTHER);
            listen(&mut deletions, line);
            let found = deletions.into_found();
            let names = [(OTHER, "cart-1"), (UID, "web-0")];
            let deleted: Vec<&str> = names
                .iter()
                .filter(|(uid, _)| found.contains_key(*uid))
                .map(|(_, name)| *name)
                .collect();
            assert_eq!(deleted, expected, "{line}");
        }
    }
}
