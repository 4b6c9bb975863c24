//! A FlexVolume that is left: the driver's program fails, or kubelet does not find the plugin again. kubelet unmounts
//! nothing of such a volume by itself.

use std::{collections::BTreeMap, path::Path};

use crate::{
    cause::{Cause, Kind, Origin, TriedWith, log, or_seen, seen, way},
    causes::shared::{
        repeated::{OfPods, Repeated},
        stat_errors::FRESH,
    },
    command::{Step, View},
    event::{Event, What},
    family::Family,
    ids,
    model::{
        chain::Who,
        degraded::Feed,
        diagnosis::Stage,
        evidence::Source,
        finding::Severity,
        identity::Component,
        node::{NodeSample, PodState, VolumeState},
        path::{safe, safe_path},
        said::Said,
        shell::word,
        time::Monotonic,
    },
    tracker::{Claim, Context, Scope, Steps, Subject, Tracker, TrackerId, TrackerSpec, yields},
    verdict::{Draft, Verdict},
};

/// Its cause and tracker.
pub(crate) static FAMILY: Family = Family {
    causes: &[&FLEX_VOLUME_ERROR],
    trackers: &[TrackerSpec {
        id: TrackerId::FlexVolume,
        feeds: &[Feed::Node, Feed::Logs],
        yields: &[
            yields(
                TrackerId::Busy,
                Claim::Suspicion,
                Scope::Target,
                "an attempt is made, and fails",
            ),
            yields(
                TrackerId::HungCall,
                Claim::Suspicion,
                Scope::Target,
                "an attempt is made, and does not return",
            ),
            yields(
                TrackerId::VolumeCommand,
                Claim::Finding,
                Scope::Pod,
                "an attempt is made, and does not return",
            ),
            yields(
                TrackerId::NetworkStorage,
                Claim::Finding,
                Scope::Target,
                "the driver fails because of the file system",
            ),
            yields(
                TrackerId::FileSystem,
                Claim::Finding,
                Scope::Target,
                "the driver fails because of the file system",
            ),
        ],
        new: || Box::<FlexVolumes>::default(),
    }],
};

/// The driver's answer, or that it gives none (pkg/volume/flexvolume/driver-call.go, `handleCmdResponse`).
const FAILED: [&str; 2] =
    ["unmount command failed, status: ", "failed to unmarshal output for command: unmount"];
/// kubelet's error when it finds no plugin for a volume on the disk (pkg/volume/plugins.go).
const NO_PLUGIN: &str = "no volume plugin matched";

/// kubelet's own error after the driver has reported success: it removes the mount point then, and the kernel refuses to
/// remove one that is still mounted (`TearDownAt` in pkg/volume/flexvolume/unmounter.go).
const STILL_BUSY: (&str, &str) = ("remove /", ": device or resource busy");

pub(crate) static FLEX_VOLUME_ERROR: Cause = Cause {
    id: ids::FLEX_VOLUME_ERROR,
    title: "kubelet cannot unmount a FlexVolume: its driver fails, or kubelet does not find the plugin",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A FlexVolume driver is a program that kubelet runs to unmount the volume. It \
        returns a failure at each attempt, for instance because an object that it looks up for \
        the volume no longer exists, or it reports success and does not unmount, or kubelet no \
        longer finds the plugin after a restart. \
        kubelet does not unmount a FlexVolume by itself.",
    confirmed_by: &[
        seen(
            "kubelet's log has the driver's failure for the pod, more than once, or kubelet's own failure to remove the \
             mount point after the driver's success, or that no volume plugin matches",
            &[Origin::Log],
        ),
        seen(
            "the volume is below a directory of a FlexVolume driver (VENDOR~DRIVER) and is still mounted",
            &[Origin::Mounts],
        ),
        or_seen("or nothing is mounted there, and its directory is left", &[Origin::Files]),
    ],
    log: log("kubelet", "unmount command failed, status: Failure, reason: ..."),
    look_alikes: &[],
    ways_out: &[
        way("fix the error that the driver reports", ""),
        way("`umount` the volume: kubelet's next attempt then finds nothing to do", ""),
        way(
            "where nothing is mounted, remove its directory: kubelet then does not run the driver",
            "",
        ),
    ],
    field: &[
        "rook#4695",
        "kubernetes#71400",
        "kubernetes#80972",
        "kubernetes#105390",
        "ubiquity#121",
    ],
    tried: &[TriedWith::Test],
    source: &[
        "kubernetes pkg/volume/flexvolume/driver-call.go, handleCmdResponse",
        "kubernetes pkg/volume/plugins.go, FindPluginByName",
    ],
};

/// kubelet's errors about FlexVolumes, by pod.
#[derive(Default)]
pub(crate) struct FlexVolumes {
    errors: OfPods,
    /// By pod UID: the target ID of the finding.
    found: BTreeMap<String, u64>,
}

impl FlexVolumes {
    fn listen(&mut self, context: &Context<'_>, said: &Said) {
        let is_error = fails(said) || has_no_plugin(said) || is_left_mounted(said);
        if said.component != Component::Kubelet || said.uid.is_empty() || !is_error {
            return;
        }
        self.errors.note(context, said);
    }

    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        let (tracker, at) = (TrackerId::FlexVolume, sample.at);
        let mut before = std::mem::take(&mut self.found);
        for (uid, error) in self.errors.iter() {
            // kubelet looks for the plugin of a volume on the disk once, at its start.
            let is_fresh = context.now.since(error.last) <= FRESH || has_no_plugin(&error.said);
            let Some(pod) = sample.pod(uid).filter(|_| is_fresh) else { continue };
            let Some(volume) = left(pod, &error.said.volume) else { continue };
            // Without a plugin, kubelet drops a volume that is not mounted. After an unmount, the directory can be removed.
            let is_left = is_left_mounted(&error.said);
            if volume.mounts.is_empty() && (is_left || has_no_plugin(&error.said)) {
                continue;
            }
            let subject = Subject { target_id: volume.target_id, path: &volume.path, pod: uid, at };
            // The attempt that is refused as busy is the removal of the mount point, which no process holds.
            if !is_left && context.is_explained(tracker, &subject) {
                continue;
            }
            before.remove(uid);
            self.found.insert(uid.clone(), volume.target_id);
            steps.found(Some(draft(context, error, pod, volume, at)));
        }
        let over = before.into_values();
        steps.say(over.map(|target_id| Verdict::Over { tracker, target_id, at }));
    }
}

/// Whether the driver's call fails.
fn fails(said: &Said) -> bool {
    FAILED.iter().any(|words| said.text.starts_with(words))
}

fn has_no_plugin(said: &Said) -> bool {
    said.text.trim_end().ends_with(NO_PLUGIN)
}

/// Whether the driver has reported success without an unmount.
fn is_left_mounted(said: &Said) -> bool {
    let (begin, end) = STILL_BUSY;
    said.text.starts_with(begin) && said.text.trim_end().ends_with(end)
}

/// The volume in question, if it is a FlexVolume. kubelet's unique name of a volume ends with the volume's name.
fn left<'a>(pod: &'a PodState, unique: &str) -> Option<&'a VolumeState> {
    let mut volumes = pod.volumes.iter().filter(|it| is_flex(&it.path));
    let is_named = |volume: &&VolumeState| {
        let name = volume.path.file_name().map(|name| name.to_string_lossy());
        name.is_some_and(|name| unique.ends_with(&*name))
    };
    match unique {
        "" => volumes.next().filter(|_| volumes.next().is_none()),
        _ => volumes.find(is_named),
    }
}

/// Whether a volume is in a directory `VENDOR~DRIVER` of a pod's volumes that is not one of kubelet's own plugins.
fn is_flex(volume: &Path) -> bool {
    let plugin = volume.parent().and_then(|plugin| plugin.file_name()?.to_str());
    let is_of_volumes = volume.ancestors().nth(2).is_some_and(|it| it.ends_with("volumes"));
    is_of_volumes && plugin.is_some_and(|it| it.contains('~') && !it.starts_with("kubernetes.io~"))
}

fn draft(
    context: &Context<'_>,
    error: &Repeated,
    pod: &PodState,
    volume: &VolumeState,
    at: Monotonic,
) -> Draft {
    let (tracker, cause) = (TrackerId::FlexVolume, &FLEX_VOLUME_ERROR);
    let (id, target, path) = (volume.target_id, volume.target.clone(), volume.path.clone());
    let mut draft = Draft::about_state(tracker, cause, id, target, path, at);
    error.tell(&mut draft);
    (draft.severity, draft.blocks_deletion) = (Severity::Warning, Some(true));
    let plugin = volume.path.parent().and_then(Path::file_name).unwrap_or_default();
    let driver = safe(plugin.to_string_lossy().replace('~', "/").as_bytes()).into_owned();
    let (is_lost, is_left) = (has_no_plugin(&error.said), is_left_mounted(&error.said));
    draft.held_by(match is_lost {
        true => Who::component("kubelet", None)
            .and(&format!(", which finds no plugin for the FlexVolume driver {driver}")),
        false => Who::component(format!("the FlexVolume driver {driver}"), None),
    });
    if is_lost {
        draft.doubt("whether kubelet has found the plugin since: it says nothing of that");
    } else if error.lines < 2 {
        draft.lacks("a second failure in the log: a single one may be transient");
    }
    draft.explanation = match is_lost {
        _ if is_left => format!(
            "kubelet runs the FlexVolume driver {driver} to unmount the volume. The driver reports success, and the volume \
             is still mounted: kubelet then fails to remove the mount point, and tries again with pauses of up to two \
             minutes. It does not unmount the volume by itself."
        ),
        true => format!(
            "At its start, kubelet found the volume's directory and no plugin for it, under the name {driver} that the \
             directory has. kubelet does not unmount the volume then, neither by the driver nor by itself, and does not \
             try again."
        ),
        false => format!(
            "kubelet runs the FlexVolume driver {driver} to unmount the volume, and the driver fails. kubelet retries \
             with pauses of up to two minutes, and does not unmount the volume by itself."
        ),
    };
    match (volume.mounts.first(), pod.seen_by) {
        (Some(mount), Some((pid, namespace))) => {
            let point = safe_path(&mount.point);
            draft.fact(
                format!("{point} is still mounted: {}", mount.what),
                Source::mountinfo(&mount.source),
            );
            let view = View::in_namespace(context, namespace, pid);
            draft.remedy(
                view.on_mount("umount", &mount.point, Some(mount.id)).so(if is_lost {
                    ", which kubelet leaves mounted"
                } else {
                    ", which its driver fails to unmount"
                }),
                "low while no process uses the mount; what the driver would clean up besides the mount, \
                 such as an attachment, stays",
            );
        }
        (Some(_), None) => {}
        (None, _) => {
            let path = safe_path(&volume.path);
            draft.fact(format!("{path} is left"), Source::file("kubelet's directory"));
            draft.fact("nothing is mounted there", Source::proc("mountinfo"));
            let at = word(&volume.path);
            let does =
                format!("remove {path}, a link or an empty directory: kubelet then runs no driver");
            draft.remedy(
                Step::new(does, format!("rm -d {at}"))
                    .verified_by(format!("! [ -e {at} ] && ! [ -L {at} ]")),
                "none for data: rm -d removes no directory that has something in it. What the driver would clean up, \
                 such as an attachment, stays",
            );
        }
    }
    if !is_lost {
        let act = match is_left {
            true => "fix the driver, whose `unmount` reports success and does not unmount",
            false => "fix the error that the driver reports: kubelet's next attempt then succeeds",
        };
        draft.advice(act, "none");
    }
    draft
}

impl Tracker for FlexVolumes {
    fn id(&self) -> TrackerId {
        TrackerId::FlexVolume
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Said(said) => self.listen(context, said),
            What::Sample(sample) => self.sampled(context, sample, steps),
            _ => {}
        }
    }

    fn dropped(&self) -> u64 {
        self.errors.dropped()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{
        model::evidence::Certainty,
        testing::{Alone, found, holder_of, mounted as mount_at, pod_state, volume_state},
    };

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
    /// As in rook issue 4695.
    const ROOK: &str = "unmount command failed, status: Failure, reason: failed to get persistent volume fs-store: \
        persistentvolumes \"fs-store\" not found";

    fn verdict(text: &str, times: u64, plugin: &str, is_mounted: bool) -> Option<Draft> {
        let mut alone = Alone::<FlexVolumes>::new();
        let at = Timestamp::from_second(590).unwrap();
        let said = Said::new(Component::Kubelet, "log of kubelet", UID, at, text);
        let volume = format!("flexvolume-ceph.rook.io/rook/{UID}-fs-store");
        let now = Monotonic(600_000_000_000);
        alone.take(now, What::Said(Box::new(Said { times, volume, ..said })));
        let path = format!("/k/pods/{UID}/volumes/{plugin}/fs-store");
        let volume = volume_state(
            path.clone(),
            is_mounted.then(|| mount_at(Path::new(&path), 12)).into_iter().collect(),
        );
        let pods =
            vec![PodState { seen_by: Some((1, 1)), volumes: vec![volume], ..pod_state(UID) }];
        let sample = NodeSample { at: now, pods, ..NodeSample::default() };
        found(alone.take(now, What::Sample(sample.into())).verdicts).pop()
    }

    #[test]
    fn a_driver_that_fails_while_its_volume_is_mounted_is_the_cause() {
        let draft = verdict(ROOK, 3, "ceph.rook.io~rook", true).unwrap();
        draft.assert_is("flexvolume-driver-error", Certainty::Firm);
        assert_eq!(holder_of(&draft.held_by), "the FlexVolume driver ceph.rook.io/rook");
        assert!(draft.remedies[0].words().contains("umount"), "{:?}", draft.remedies[0]);
        let once = verdict(ROOK, 1, "ceph.rook.io~rook", true).unwrap();
        assert_ne!(once.certainty(), Certainty::Firm);
    }

    /// A driver that ends without an answer.
    #[test]
    fn a_driver_whose_output_is_no_answer_fails() {
        let text = "failed to unmarshal output for command: unmount, output: \"panic\\n\", error: invalid character 'p' looking \
            for beginning of value";
        let draft = verdict(text, 3, "ceph.rook.io~rook", true).unwrap();
        draft.assert_is("flexvolume-driver-error", Certainty::Firm);
    }

    /// ubiquity#121: the driver has unmounted the volume, and fails all the same.
    #[test]
    fn where_nothing_is_mounted_the_directory_is_removed() {
        let draft = verdict(ROOK, 3, "ceph.rook.io~rook", false).unwrap();
        draft.assert_is("flexvolume-driver-error", Certainty::Firm);
        let command = draft.remedies[0].command.as_deref().unwrap_or_default();
        assert!(command.starts_with("rm -d ") && command.contains("/fs-store"), "{command}");
    }

    /// kubernetes-cifs-volumedriver#2.
    #[test]
    fn a_driver_that_reports_success_and_does_not_unmount_is_the_cause() {
        let busy =
            format!("remove /k/pods/{UID}/volumes/juliohm~cifs/fs-store: device or resource busy");
        let draft = verdict(&busy, 3, "juliohm~cifs", true).unwrap();
        draft.assert_is("flexvolume-driver-error", Certainty::Firm);
        assert_eq!(holder_of(&draft.held_by), "the FlexVolume driver juliohm/cifs");
        assert!(draft.explanation.contains("reports success"), "{}", draft.explanation);
        assert!(draft.remedies[0].words().contains("umount"), "{:?}", draft.remedies[0]);
        assert!(verdict(&busy, 3, "juliohm~cifs", false).is_none(), "it can be removed now");
    }

    #[test]
    fn what_is_not_a_flex_volume_is_no_drivers() {
        let lost = "UnmountVolume.FindPluginByName failed: no volume plugin matched";
        assert!(verdict(lost, 1, "hulk~lvm", false).is_none(), "kubelet drops it");
        assert!(verdict(ROOK, 3, "kubernetes.io~csi", true).is_none());
        assert!(verdict("unlinkat x: busy", 3, "ceph.rook.io~rook", true).is_none());
        let lost = verdict(lost, 1, "hulk~lvm", true).unwrap();
        lost.assert_is("flexvolume-driver-error", Certainty::Likely);
        let who = "kubelet, which finds no plugin for the FlexVolume driver hulk/lvm";
        assert_eq!(holder_of(&lost.held_by), who);
    }
}
