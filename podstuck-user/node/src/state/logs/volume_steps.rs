//! Volumes that kubelet counts as attached and not as mounted, by its log, and those that it has mounted.
//!
//! kubelet mounts what it counts as attached within its next loop, a tenth of a second later, if the pod is still to have
//! the volume, and unmounts only what it counts as mounted. Each of these steps names the volume in its log
//! (`GenerateMsg` in pkg/volume/util/operationexecutor, unchanged from 1.9 to 1.36). So a volume whose last step is the
//! attachment is not mounted as far as kubelet knows.

use std::{collections::HashMap, sync::LazyLock};

use regex::Regex;

use super::fixed;
use crate::identity::uid::is_pod_uid;
use podstuck_model::said::Report;

/// Volumes followed: nearly all are mounted next.
const VOLUMES: usize = 1024;

/// A volume in a message, as a text or within a quoted one: its name in the pod's directory, kubelet's name for it, the
/// pod. Successful teardowns name both in the other order.
static STEP: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r#"for volume \\*"(?:(?<spec>[^"\\\s]+)\\*" \(UniqueName: \\*"(?<unique>[^"\\\s]+)\\*"\)"#,
        r#"|(?<unique_first>[^"\\\s]+)\\*" \(OuterVolumeSpecName: \\*"(?<spec_last>[^"\\\s]*)\\*"\))"#,
        r#" pod \\*"[^"\\\s]+\\*" \(UID: \\*"(?<uid>[0-9a-f-]+)\\*"\)"#
    ))
});

/// A volume whose last step is the attachment: the pod's UID, kubelet's name for the volume, and its name for one pod.
pub(super) type Attached = (String, String, String);

/// The volumes whose last step is the attachment.
#[derive(Default)]
pub(super) struct VolumeSteps {
    attached: HashMap<(String, String), String>,
}

impl VolumeSteps {
    /// Continues an earlier read.
    pub(super) fn after(attached: Vec<Attached>) -> Self {
        let attached = attached.into_iter().map(|(uid, unique, volume)| ((uid, unique), volume));
        Self { attached: attached.collect() }
    }

    /// The state for the next read.
    pub(super) fn known(&self) -> Vec<Attached> {
        let known = self.attached.iter();
        known.map(|((uid, unique), volume)| (uid.clone(), unique.clone(), volume.clone())).collect()
    }

    /// Takes a message. An attachment, the first step after it and a mount are reported by the pod's UID and the volume. A
    /// message that kubelet is not proven to have written proves no attachment, and may be a later step.
    pub(super) fn listen(
        &mut self,
        message: &str,
        is_proven: bool,
    ) -> Option<(String, String, Report)> {
        let begins = |words| message.trim_start_matches('"').starts_with(words);
        let is_attached = is_proven && begins("Controller attach succeeded for volume ");
        let is_set_up = begins("MountVolume.SetUp succeeded for volume ");
        if !is_attached && !is_set_up && self.attached.is_empty() || !message.contains("(UID: ") {
            return None;
        }
        let found = STEP.captures(message)?;
        let group = |a, b| found.name(a).or_else(|| found.name(b)).map_or("", |it| it.as_str());
        let (uid, unique) = (found["uid"].to_owned(), group("unique", "unique_first"));
        let key = (uid.clone(), unique.to_owned());
        if is_set_up {
            self.attached.remove(&key);
        } else if !is_attached {
            let volume = self.attached.remove(&key)?;
            return Some((uid, volume, Report::VolumeStep));
        }
        let has_room = self.attached.len() < VOLUMES || self.attached.contains_key(&key);
        if !has_room || !is_pod_uid(uid.as_bytes()) {
            return None;
        }
        let volume = name(unique, &uid, group("spec", "spec_last"));
        if is_set_up {
            return Some((uid, volume, Report::SetUp));
        }
        self.attached.insert(key, volume.clone());
        Some((uid, volume, Report::Attached))
    }
}

/// The pod and the volume of an error about a mount. The operation itself names no pod where the plugin first mounts the
/// volume's device, once for all pods (`MountVolume` in pkg/volume/util/operationexecutor).
pub(super) fn failed_mount(error: &str) -> Option<(String, String)> {
    let found = STEP.captures(error).filter(|_| error.starts_with("MountVolume."))?;
    let (spec, unique, uid) = (found.name("spec")?, found.name("unique")?, found["uid"].to_owned());
    let volume = name(unique.as_str(), &uid, spec.as_str());
    Some((uid, volume))
}

/// kubelet's name for a volume of one pod. For a plugin that attaches, it names the volume for all pods; except for CSI,
/// whose handle is known, the pod's directory has only the volume's name there.
fn name(unique: &str, uid: &str, spec: &str) -> String {
    let second = unique.match_indices('/').nth(1).map_or(unique.len(), |(at, _)| at);
    match &unique[..second] {
        "kubernetes.io/csi" => unique.to_owned(),
        plugin => format!("{plugin}/{uid}-{spec}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f0e0d0c-1111-4222-8333-444455556666";

    fn reported(messages: &[String]) -> Vec<(String, Report)> {
        let mut steps = VolumeSteps::default();
        let reported = messages.iter().filter_map(|message| {
            // Each line may be the first of a read.
            steps = VolumeSteps::after(steps.known());
            steps.listen(message, true)
        });
        reported.map(|(_, volume, report)| (volume, report)).collect()
    }

    fn attached(quote: &str, unique: &str) -> String {
        let q = if quote.is_empty() { "\"" } else { "\\\"" };
        format!(
            "{quote}Controller attach succeeded for volume {q}pvc-1{q} (UniqueName: {q}{unique}{q}) pod \
             {q}web-0{q} (UID: {q}{UID}{q}) device path: {q}{q}{quote}"
        )
    }

    #[test]
    fn an_attachment_and_the_step_after_it_are_reported() {
        let rbd = format!("kubernetes.io/rbd/{UID}-pvc-1");
        for quote in ["", "\""] {
            let of_rbd = attached(quote, "kubernetes.io/rbd/rbd:img");
            assert_eq!(reported(&[of_rbd]), [(rbd.clone(), Report::Attached)]);
            let of_csi = attached(quote, "kubernetes.io/csi/d^h");
            assert_eq!(reported(&[of_csi])[0].0, "kubernetes.io/csi/d^h");
        }
        let volume = "\"pvc-1\" (UniqueName: \"kubernetes.io/rbd/rbd:img\") pod \"web-0\"";
        let failed = "\"Operation for \\\"{volumeName:kubernetes.io/rbd/rbd:img podName: nodeName:}\\\" failed. \
             Error: MountVolume.MountDevice failed for volume \\\"pvc-1\\\" (UniqueName: \
             \\\"kubernetes.io/rbd/rbd:img\\\") pod \\\"web-0\\\"";
        let torn_down = "UnmountVolume.TearDown succeeded for volume \"kubernetes.io/rbd/rbd:img\" \
             (OuterVolumeSpecName: \"pvc-1\")";
        let again = "UnmountVolume.TearDown failed for volume \"kubernetes.io/rbd/rbd:img\" (UniqueName: \
             \"kubernetes.io/rbd/rbd:img\")";
        let mounted = format!("MountVolume.SetUp succeeded for volume {volume} (UID: \"{UID}\") ");
        let log = [attached("", "kubernetes.io/rbd/rbd:img"), mounted.clone(), mounted];
        let reports: Vec<Report> = reported(&log).into_iter().map(|(_, report)| report).collect();
        assert_eq!(reports, [Report::Attached, Report::SetUp, Report::SetUp]);
        let later = [
            format!("{again} pod \"{UID}\" (UID: \"{UID}\") : exit status 32"),
            format!("MountVolume.WaitForAttach entering for volume {volume} (UID: \"{UID}\") "),
            format!("operationExecutor.UnmountVolume started for volume {volume} (UID: \"{UID}\")"),
            format!("{failed} (UID: \\\"{UID}\\\") : exit status 32\""),
            format!("{torn_down} pod \"{UID}\" (UID: \"{UID}\"). InnerVolumeSpecName"),
        ];
        for step in later {
            let log = [step.clone(), attached("", "kubernetes.io/rbd/rbd:img"), step.clone()];
            let both = [(rbd.clone(), Report::Attached), (rbd.clone(), Report::VolumeStep)];
            assert_eq!(reported(&log), both, "{step}");
        }
    }
}
