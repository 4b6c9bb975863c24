//! Replaces names, consistently, in everything that is written, so that a recording may be given away.
//!
//! A text is split into words. A word of the tool's own vocabulary stays, and so does a number; every other word
//! becomes a made-up one, the same each time, and a UID becomes another UID. The fixed parts of a path (`pods`,
//! `volumes`, `kubernetes.io~csi`, `mount`) are vocabulary, so that a replay finds the same. In the tool's own
//! sentences, plain words stay unless they occur as a name elsewhere.

use std::collections::HashMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Serialize;
use serde_json::Value;

use podstuck_node::identity::uid::parse_pod_uid;

/// Fields with texts of the tool or the kernel.
const OWN: [&str; 32] = [
    "backend",
    "c",
    "call",
    "call_name",
    "complaint",
    "component",
    "cgroup_layout",
    "error",
    "feeds",
    "fs_type",
    "how",
    "kernel",
    "kind",
    "not_covered",
    "options",
    "phase",
    "probes_attached",
    "probes_missing",
    "registration",
    "report",
    "series",
    "since",
    "span",
    "stack",
    "state",
    "through",
    "tracker",
    "version",
    "w",
    "wait_channel",
    "what",
    "syscall",
];

/// Fields with the tool's own sentences, when they are strings. Every name in them has a field of its own, too.
const SENTENCES: [&str; 8] =
    ["api", "degraded", "helper", "not-entered", "not_returned", "refused", "sentence", "target"];

/// Words that name nothing of a customer: parts of the layouts of kubelet, runtimes and kernel.
const WORDS: &str = "pod pods volume volumes volume-subpaths plugins plugins_registry containers \
    kubernetes.io~csi kubernetes.io~empty-dir kubernetes.io~projected kubernetes.io~secret \
    kubernetes.io~configmap kubernetes.io~downward-api kubernetes.io~local-volume \
    kubernetes.io~iscsi kubernetes.io~nfs kubernetes.io~host-path kubernetes.io csi empty-dir \
    projected secret configmap downward-api local-volume iscsi nfs host-path subpath docker-volume \
    container-layer pod-directory container-bundle vol_data.json mount globalmount kubelet var lib \
    run log etc dev proc sys fs cgroup kubepods kubepods.slice besteffort burstable guaranteed \
    system.slice user.slice init.scope docker containerd crio dockerd runc moby k8s.io \
    io.containerd.runtime.v2.task io.containerd.snapshotter.v1.overlayfs overlay overlay2 snapshots \
    diff merged work upper rootfs task root fd fdinfo cwd exe maps mountinfo status stat cmdline \
    tmpfs ext4 xfs btrfs fuse nfs4 cifs fuseblk shm tmp of type device directory mount file the is \
    in no and a at it umount unlink unlinkat rmdir statx readdir swaps loop backing_file host \
    kube-proxy systemd umount.nfs fusermount fusermount3 sleep block none self ns mnt net unix \
    memory pids freezer cpu cpuacct cgroup.procs freezer.state empty no such was found its has not responded \
    Persistent Ephemeral Missing Unknown netns nsfs sandboxes userdata or resource busy \
    dial connect connection orphaned but failed to path not Failed delete update get for calling webhook admission \
    denied refused Unauthorized forbidden certificate expired unmount command plugin matched \
    Unmounting arguments Output mounted exit Invalid argument tcp lookup deadline exceeded context stop kill \
    container signal init operation permitted does exist encrypted logical multipath FAILED LOGGED_IN live connecting \
    running offline blocked Blocked Online pcie rdma fc not-asked no-port not-kubelet unknown";

/// Prefixes that identify the kind of an object: what follows them is replaced.
const BEGINNINGS: [&str; 6] =
    ["kube-api-access-", "default-token-", "cri-containerd-", "docker-", "crio-", "pvc-"];

/// Holds the replacement of each word.
#[derive(Debug)]
pub(super) struct Redactor {
    words: HashMap<String, String>,
    uids: HashMap<String, String>,
}

impl Default for Redactor {
    fn default() -> Self {
        let known = WORDS.split_whitespace().map(|word| (word.to_owned(), word.to_owned()));
        Self { words: known.collect(), uids: HashMap::new() }
    }
}

impl Redactor {
    /// Encodes a line as JSON, without names.
    pub(super) fn line(&mut self, line: &impl Serialize) -> serde_json::Result<Vec<u8>> {
        let mut value = serde_json::to_value(line)?;
        self.value(&mut value);
        self.sentences(&mut value, false);
        serde_json::to_vec(&value)
    }

    /// Redacts everything but sentences: the names in them are known only afterwards.
    fn value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => {
                // A name that is not UTF-8.
                if let (1, Some(Value::String(bytes))) = (fields.len(), fields.get("base64")) {
                    let bytes = BASE64_STANDARD.decode(bytes).unwrap_or_default();
                    *value = Value::String(self.text(&String::from_utf8_lossy(&bytes)));
                    return;
                }
                fields.remove("path_bytes");
                for (name, item) in fields {
                    // A text of the tool, or an object with more in it.
                    let own = OWN.contains(&name.as_str()) && !item.is_object();
                    if !own && !is_sentence(name, item) && !is_time(item) {
                        self.value(item);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn sentences(&mut self, value: &mut Value, is_one: bool) {
        match value {
            Value::String(text) if is_one => *text = self.each_word(text, Self::word_of_sentence),
            Value::Array(items) => items.iter_mut().for_each(|it| self.sentences(it, is_one)),
            Value::Object(fields) => {
                for (name, item) in fields {
                    let is_one = is_sentence(name, item);
                    self.sentences(item, is_one);
                }
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str) -> String {
        self.each_word(text, |this, word, _| this.word(word))
    }

    /// Replaces each word; `replace` also gets whether the word is a part of a path.
    fn each_word(
        &mut self,
        text: &str,
        replaced: impl Fn(&mut Self, &str, bool) -> String,
    ) -> String {
        let mut out = String::with_capacity(text.len());
        // All other characters of a name, including control characters, belong to it.
        let is_part = |c: char| !(c == ' ' || c.is_ascii_punctuation()) || "-_.~".contains(c);
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            if !word.is_empty() {
                let is_in_path = out.ends_with('/') || after.starts_with('/');
                out.push_str(&replaced(self, word, is_in_path));
            }
            let other = after.find(is_part).unwrap_or(after.len());
            out.push_str(&after[..other]);
            rest = &after[other..];
        }
        out
    }

    /// A plain word that is no known name stays. One in a path, or with digits and signs in it, may be a name that is
    /// seen for the first time.
    fn word_of_sentence(&mut self, word: &str, is_in_path: bool) -> String {
        let plain = word.trim_end_matches('.');
        let is_plain = !plain.is_empty() && plain.bytes().all(|byte| byte.is_ascii_alphabetic());
        let is_name = self.words.get(plain).is_some_and(|made_up| made_up != plain);
        match is_plain && !is_in_path && !is_name {
            true => word.to_owned(),
            false => self.word(plain) + &word[plain.len()..],
        }
    }

    fn word(&mut self, word: &str) -> String {
        if word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return word.to_owned();
        }
        let of_group =
            word.strip_prefix("pod").and_then(|rest| Some(("pod", parse_pod_uid(rest)?)));
        let uid = of_group.or_else(|| Some(("", parse_pod_uid(word)?)));
        if let Some((prefix, uid)) = uid {
            let made_up = self.uid(uid);
            let has_underscores = word.contains('_');
            return prefix.to_owned()
                + &if has_underscores { made_up.replace('-', "_") } else { made_up };
        }
        if let Some(known) = self.words.get(word) {
            return known.clone();
        }
        for beginning in BEGINNINGS {
            if let Some(rest) = word.strip_prefix(beginning).filter(|rest| !rest.is_empty()) {
                return format!("{beginning}{}", self.made_up(rest));
            }
        }
        self.made_up(word)
    }

    /// Another UID of the same form: the UID of an API pod has dashes, that of a static pod has none.
    fn uid(&mut self, uid: String) -> String {
        let next = self.uids.len() + 1;
        let is_static = !uid.contains('-');
        let made_up = || match is_static {
            true => format!("{next:032x}"),
            false => format!("00000000-0000-4000-8000-{next:012x}"),
        };
        self.uids.entry(uid).or_insert_with(made_up).clone()
    }

    /// A name by number, in the order of first appearance: the original cannot be guessed from it.
    fn made_up(&mut self, word: &str) -> String {
        let next = format!("name-{}", self.words.len());
        self.words.entry(word.to_owned()).or_insert(next).clone()
    }
}

fn is_sentence(name: &str, item: &Value) -> bool {
    let is_text = |item: &Value| item.is_string();
    SENTENCES.contains(&name)
        && (is_text(item) || item.as_array().is_some_and(|items| items.iter().all(is_text)))
}

/// Times in the form of RFC 3339, which name nothing.
fn is_time(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    fn redacted(lines: &[Value]) -> String {
        let mut redactor = Redactor::default();
        let lines = lines.iter().map(|line| redactor.line(line).unwrap());
        lines.map(|line| String::from_utf8(line).unwrap() + "\n").collect()
    }

    #[test]
    fn a_sentence_stays_one_and_contains_no_name() {
        let target = format!("pod bank/vault ({UID}, by its directory of logs)");
        let pod = json!({"uid": UID, "namespace": "bank", "name": "vault"});
        let api = "no answer of the API server: https://api.bank.example:6443: no route to vault.";
        let output = redacted(&[
            json!({"run": {"start": {"target": target, "api": api}, "pod": pod}}),
            json!({"degraded": ["the disk of /mnt/payroll does not answer"]}),
        ]);
        for name in ["bank", "vault", "payroll", "0f0e", "1111"] {
            assert!(!output.contains(name), "{name} in {output}");
        }
        for words in [
            ", by its directory of logs)",
            "no answer of the API server: https:",
            "no route to name-",
            "the disk of /mnt/name-",
            " does not answer",
        ] {
            assert!(output.contains(words), "{words}: {output}");
        }
    }

    /// These words identify a cause in a log's text, also in a redacted recording.
    #[test]
    fn error_words_of_components_are_kept() {
        for words in [
            "Failed to delete status for pod: failed calling webhook \"",
            "Failed to update status for pod: Unauthorized",
            "admission webhook \"",
            " is forbidden",
            "dial unix /run/",
            ": connect: no such file or directory",
            ": connect: connection refused",
            "found, but failed to rmdir() subpath at path /var/lib/kubelet/",
            ": not a directory",
            "unmount command failed, status: ",
            ": no volume plugin matched",
        ] {
            let output = redacted(&[json!({"text": format!("vault: {words} vault")})]);
            let output: Value = serde_json::from_str(&output).unwrap();
            let text = output["text"].as_str().unwrap();
            assert!(text.contains(words) && !text.contains("vault"), "{text}");
        }
    }

    #[test]
    fn what_kubelets_list_shows_can_be_read_without_its_names() {
        use podstuck_model::{
            cluster::{Change, KubeletsList, Listed, NotRead},
            query::Answer,
        };
        let latest = Change {
            at: jiff::Timestamp::UNIX_EPOCH,
            namespace: "shop".into(),
            name: "cart-0".into(),
        };
        let listed = Listed { uid: UID.into(), deletion: None };
        let list = KubeletsList { pods: vec![listed], latest: Some(latest), is_well: true };
        let why = [NotRead::NotAsked, NotRead::NoPort, NotRead::NotKubelet, NotRead::Unknown];
        let why = why.into_iter().chain([NotRead::Forbidden]).map(Err);
        for found in why.chain([Ok(list)]) {
            let text =
                redacted(&[serde_json::to_value(Answer::KubeletsPods(found.clone())).unwrap()]);
            let Answer::KubeletsPods(read) = serde_json::from_str(&text).unwrap() else { panic!() };
            match found {
                Err(_) => assert_eq!(read, found),
                Ok(_) => assert!(
                    !text.contains("cart-0") && !text.contains("shop") && !text.contains(UID),
                    "{text}"
                ),
            }
        }
    }

    #[test]
    fn a_uid_becomes_the_same_other_one_in_each_spelling() {
        let group = format!("/kubepods/pod{UID}");
        let slice = format!("pod{}", UID.replace('-', "_"));
        let file = "0123456789abcdef0123456789abcdef";
        let output =
            redacted(&[json!({"uid": UID, "cgroup": group, "slice": slice, "other": file})]);
        let output: Value = serde_json::from_str(&output).unwrap();
        let uid = output["uid"].as_str().unwrap();
        assert!(podstuck_node::identity::uid::is_pod_uid(uid.as_bytes()) && uid != UID, "{output}");
        assert_eq!(output["cgroup"], format!("/kubepods/pod{uid}"));
        assert_eq!(output["slice"], format!("pod{}", uid.replace('-', "_")));
        let other = output["other"].as_str().unwrap();
        assert!(other.len() == 32 && other != file, "{output}");
    }
}
