//! Names replaced, consistently, in everything that is written: so that a recording may leave the house.
//!
//! A text is taken apart into words. A word of the tool's own vocabulary stays, and so does a number
//! or a UID; every other word becomes a made-up one, the same each time. What is logic in a path
//! (`pods`, `volumes`, `kubernetes.io~csi`, `mount`) is vocabulary, so that a replay finds the same.

use std::collections::HashMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Serialize;
use serde_json::Value;

use crate::identity::uid::is_pod_uid;

/// Fields whose texts are the tool's own or the kernel's.
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

/// Words that name no customer's thing: parts of the layouts of kubelet, runtimes and kernel.
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
    Persistent Ephemeral Missing Unknown netns nsfs sandboxes userdata or resource busy";

/// Beginnings that tell what something is, whatever its name: what follows them is replaced.
const BEGINNINGS: [&str; 6] =
    ["kube-api-access-", "default-token-", "cri-containerd-", "docker-", "crio-", "pvc-"];

/// Remembers what each word became.
#[derive(Debug)]
pub(super) struct Redactor {
    words: HashMap<String, String>,
}

impl Default for Redactor {
    fn default() -> Self {
        let known = WORDS.split_whitespace().map(|word| (word.to_owned(), word.to_owned()));
        Self { words: known.collect() }
    }
}

impl Redactor {
    /// A line, as JSON, without names.
    pub(super) fn line(&mut self, line: &impl Serialize) -> serde_json::Result<Vec<u8>> {
        let mut value = serde_json::to_value(line)?;
        self.value(&mut value);
        serde_json::to_vec(&value)
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => {
                // A name that is no text.
                if let (1, Some(Value::String(bytes))) = (fields.len(), fields.get("base64")) {
                    let bytes = BASE64_STANDARD.decode(bytes).unwrap_or_default();
                    *value = Value::String(self.text(&String::from_utf8_lossy(&bytes)));
                    return;
                }
                fields.remove("path_bytes");
                for (name, item) in fields {
                    // A word of the tool's own, or an object with more in it.
                    let own = OWN.contains(&name.as_str()) && !item.is_object();
                    if !own && !is_time(item) {
                        self.value(item);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        // Whatever else a name may hold, control characters included, belongs to it.
        let is_part = |c: char| !(c == ' ' || c.is_ascii_punctuation()) || "-_.~".contains(c);
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            if !word.is_empty() {
                out.push_str(&self.word(word));
            }
            let other = after.find(is_part).unwrap_or(after.len());
            out.push_str(&after[..other]);
            rest = &after[other..];
        }
        out
    }

    fn word(&mut self, word: &str) -> String {
        let number = word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let uid = word.strip_prefix("pod").unwrap_or(word);
        if number || is_pod_uid(word.as_bytes()) || is_pod_uid(uid.as_bytes()) {
            return word.to_owned();
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

    /// By number, in the order of their first sight: what it was cannot be guessed from it.
    fn made_up(&mut self, word: &str) -> String {
        let next = format!("name-{}", self.words.len());
        self.words.entry(word.to_owned()).or_insert(next).clone()
    }
}

/// Times in the form of RFC 3339, which name nothing.
fn is_time(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok())
}
