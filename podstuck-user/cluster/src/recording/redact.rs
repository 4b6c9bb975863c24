//! Replaces names consistently, so that a recording can be shared and still yields the same answer.

use std::{collections::BTreeMap, net::IpAddr};

use jiff::Timestamp;
use podstuck_model::cluster::Kind;
use serde_json::{Map, Value};

/// Fields whose values are terms of the API.
const OF_THE_API: [&str; 22] = [
    "accessModes",
    "about",
    "answer",
    "by",
    "effect",
    "failurePolicy",
    "format",
    "matchPolicy",
    "operation",
    "operations",
    "operator",
    "phase",
    "podReplacementPolicy",
    "podstuck",
    "question",
    "reason",
    "scope",
    "status",
    "type",
    "unread",
    "version",
    "what",
];
/// Maps whose keys are names.
const MAPS: [&str; 6] =
    ["annotations", "labels", "matchLabels", "totals", "writers", "f:finalizers"];
/// Words that are kept: those of Kubernetes' own objects and clients, and of the API server's messages.
const WORDS: &str = "apps batch status scale beta beta1 core io k8s kubernetes v v1 v1beta1 v2 \
    kube system public node lease default kubelet kubectl controller manager scheduler apiserver leader external attacher \
    foregroundDeletion orphan True False Unknown \
    cloudprovider shutdown out self remediation medik8s fence agents cluster x machine openshift selfnoderemediations fenceagentsremediations machines metal3 baremetalhost \
    terminated stopped Deleted Succeeded \
    job generic garbage collector serviceaccounts ServiceAccount \
    some Some resources are remaining has resource instances content in the namespace finalizers failed to delete all \
    types discovery conversion webhook for calling no endpoints available service not found is unavailable and or of a \
    detach volume attached csi driver error rpc code desc in use by pod timed out waiting context deadline exceeded";

/// The replacement of each name.
pub(super) struct Redactor(BTreeMap<String, String>);

impl Default for Redactor {
    fn default() -> Self {
        let of_kinds = Kind::ALL.iter().flat_map(|kind| {
            [&kind.group, &kind.version, &kind.plural, &kind.name].map(|text| text.to_string())
        });
        let kept = of_kinds.flat_map(|text| words(&text)).chain(words(WORDS));
        Self(kept.map(|word| (word.clone(), word)).collect())
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|it| !it.is_empty())
        .map(str::to_owned)
        .collect()
}

impl Redactor {
    /// Replaces the names in a value.
    pub(super) fn value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => {
                for (name, item) in fields {
                    // The field holds a term or a list of terms. An object may contain names.
                    let is_word = item.is_string() || item.is_array();
                    if !(is_word && OF_THE_API.contains(&name.as_str())) {
                        self.value(item);
                    }
                    if let (true, Value::Object(map)) = (MAPS.contains(&name.as_str()), item) {
                        let of_map: Map<String, Value> = std::mem::take(map);
                        map.extend(of_map.into_iter().map(|(key, it)| (self.text(&key), it)));
                    }
                }
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str) -> String {
        if text.parse::<Timestamp>().is_ok() {
            return text.to_owned();
        }
        let is_of_name = |c: char| c.is_alphanumeric() || "-._/".contains(c);
        let mut redacted = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            redacted.push_str(&self.name(name));
            let end = after.find(is_of_name).unwrap_or(after.len());
            redacted.push_str(&after[..end]);
            rest = &after[end..];
        }
        redacted
    }

    /// Keeps Kubernetes' own names unchanged, such as a finalizer's, which identifies its controller.
    fn name(&mut self, name: &str) -> String {
        if name.contains("kubernetes.io") || name.contains("k8s.io") {
            return name.to_owned();
        }
        if name.parse::<IpAddr>().is_ok() {
            return "192.0.2.1".to_owned();
        }
        let mut redacted = String::with_capacity(name.len());
        for part in name.split_inclusive(|c: char| "-._/".contains(c)) {
            let word = part.trim_end_matches(['-', '.', '_', '/']);
            redacted.push_str(&self.word(word));
            redacted.push_str(&part[word.len()..]);
        }
        redacted
    }

    /// Returns a replacement of the same length; a hash becomes a hash. Length and form identify generated names.
    fn word(&mut self, word: &str) -> String {
        if word.is_empty() || word.bytes().all(|byte| byte.is_ascii_digit()) {
            return word.to_owned();
        }
        let next = self.0.len();
        let is_hash =
            word.len() >= 4 && word.bytes().all(|byte| b"0123456789abcdef".contains(&byte));
        let first = if is_hash { "" } else { "n" };
        let made_up = || format!("{first}{next:0digits$x}", digits = word.len() - first.len());
        self.0.entry(word.to_owned()).or_insert_with(made_up).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn redacted(mut value: Value) -> Value {
        Redactor::default().value(&mut value);
        value
    }

    #[test]
    fn a_name_becomes_the_same_word_wherever_it_stands() {
        let value = redacted(json!({
            "name": "cart-0", "labels": {"cart": "blue"}, "matchLabels": {"cart": "blue"},
            "message": "pod cart-0 (10.1.2.3): in use", "time": "2026-11-28T09:00:00Z",
        }));
        let cart = value["name"].as_str().unwrap().strip_suffix("-0").unwrap().to_owned();
        assert!(cart.starts_with('n'), "{cart}");
        assert_eq!(value["message"], format!("pod {cart}-0 (192.0.2.1): in use"));
        assert_eq!(value["labels"], value["matchLabels"]);
        assert!(value["labels"].get(&cart).is_some_and(|it| it != "blue"), "{value}");
        assert_eq!(value["time"], "2026-11-28T09:00:00Z");
    }

    #[test]
    fn what_decides_stays() {
        let kept = json!({
            "kind": "PersistentVolumeClaim", "finalizers": ["kubernetes.io/pvc-protection", "foregroundDeletion"],
            "status": "Unknown", "reason": "NodeStatusUnknown", "namespace": "kube-node-lease",
            "apiGroups": ["", "*"], "manager": "kube-controller-manager",
            "message": "Some resources are remaining: pods. has 1 resource instances",
        });
        assert_eq!(redacted(kept.clone()), kept);
    }

    #[test]
    fn a_lease_keeps_the_form_by_which_its_controller_is_known() {
        let value = redacted(
            json!({"name": "c1f6bfd2.queue.acme.example", "finalizer": "queue.acme.example/held"}),
        );
        let (hash, domain) = value["name"].as_str().unwrap().split_once('.').unwrap();
        let pod = redacted(json!("queue-5d9f7c6b8-x7zqk"));
        let (_, generated) = pod.as_str().unwrap().rsplit_once('-').unwrap();
        assert!(generated.len() == 5 && generated != "x7zqk");
        assert!(hash.len() == 8 && u32::from_str_radix(hash, 16).is_ok() && hash != "c1f6bfd2");
        assert!(value["finalizer"].as_str().unwrap().starts_with(domain));
        assert!(!value.to_string().contains("acme"));
    }
}
