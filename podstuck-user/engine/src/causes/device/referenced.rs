//! Volumes' devices that kubelet does not release, because something else still refers to them. kubelet logs that
//! for no pod in particular; the node's mounts show whether it still holds.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use podstuck_common::component::name_hash;

use crate::{
    bounded::Bounded,
    causes::device::{self, block_volume::made_of, causes::STILL_REFERENCED},
    command::View,
    event::{Event, What},
    ids,
    model::{
        block_volume::BlockVolume,
        evidence::Source,
        finding::Severity,
        identity::Target,
        mounts::{Mount, Mounts},
        node::NodeSample,
        path::{safe, safe_path},
        said::{Complaint, Report, Said},
    },
    tracker::{Context, Steps, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

/// Volumes remembered.
const REMEMBERED: usize = 256;
/// How long kubelet's last line counts after its next attempt is due: kubelet logs each failed attempt.
const LASTS: Duration = Duration::from_secs(300);

/// The last line about a volume.
struct Word {
    said: Said,
    reported: bool,
}

/// The last lines, by kubelet's name of the volume.
#[derive(Default)]
pub(crate) struct DeviceReferences {
    words: Bounded<String, Word, REMEMBERED>,
}

impl DeviceReferences {
    fn listen(&mut self, context: &Context<'_>, said: &Said, steps: &mut Steps) {
        if !said.is_of_a_device() {
            return;
        }
        let before = self.words.get(&said.volume);
        if before.is_some_and(|before| before.said.at > said.at) {
            return;
        }
        let reported = before.is_some_and(|before| before.reported);
        if said.report == Some(Report::DeviceReleased) {
            self.words.remove(&said.volume);
            steps.say(reported.then(|| over(&said.volume, context)));
        } else if said.complaint.is_some_and(Complaint::is_of_a_device) {
            self.words.insert(said.volume.clone(), Word { said: said.clone(), reported });
        }
    }

    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        for (volume, word) in self.words.iter_mut() {
            let due = context.when(word.said.retry.unwrap_or(word.said.at));
            let target_id = name_hash(volume.as_bytes());
            let draft = device::referenced::draft(context, &word.said, target_id, sample);
            let draft = draft.filter(|_| context.now.since(due) <= LASTS);
            if draft.is_none() && word.reported {
                steps.say([over(volume, context)]);
            }
            word.reported = draft.is_some();
            steps.found(draft);
        }
    }
}

fn over(volume: &str, context: &Context<'_>) -> Verdict {
    let (tracker, target_id) = (TrackerId::DeviceReference, name_hash(volume.as_bytes()));
    Verdict::Over { tracker, target_id, at: context.now }
}

impl Tracker for DeviceReferences {
    fn id(&self) -> TrackerId {
        TrackerId::DeviceReference
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Said(said) => self.listen(context, said, steps),
            What::Sample(sample) => self.sampled(context, sample, steps),
            _ => {}
        }
    }

    fn dropped(&self) -> u64 {
        self.words.dropped()
    }
}

/// References named.
const NAMED: usize = 8;
/// Part of the path by which kubelet recognises its own mounts of the device (`HasMountRefs` in
/// pkg/volume/util).
const OF_KUBELET: &str = "/plugins/kubernetes.io/";

/// The finding, by kubelet's line and the state of the node; `None` if the node shows that no reference is left.
pub(crate) fn draft(
    context: &Context<'_>,
    said: &Said,
    target_id: u64,
    sample: &NodeSample,
) -> Option<Draft> {
    let (tracker, cause, at) = (TrackerId::DeviceReference, &STILL_REFERENCED, sample.at);
    let target = Target::unknown().into();
    let path = PathBuf::from(&said.volume);
    let mut draft = Draft::about_state(tracker, cause, target_id, target, path, at);
    draft.severity = Severity::Info;
    draft.blocks_deletion = Some(false);
    let text = format!("kubelet says, last at {:.0}: {}", said.at, said.text);
    draft.fact_since(text, Source::Log(said.source.clone()), context.when(said.at));
    draft.first = context.when(said.at);
    draft.explanation = "No pod of this node needs the volume any more, but kubelet does not \
        release its device. No pod's record waits for that. The volume stays attached, so a pod \
        on another node may wait for it."
        .into();
    match said.complaint {
        Some(Complaint::DeviceMounted) => mounted(&mut draft, context, said, sample)?,
        Some(Complaint::DeviceMapped) => mapped(&mut draft, said, sample),
        _ => {
            draft.doubt("what has the device open: kubelet's log does not name it");
            draft.advice(
                "`lsblk` shows what is built on the device and where it is mounted; `podstuck \
                 holders --device MAJOR:MINOR` shows what uses its file system in any mount \
                 namespace",
                "none",
            );
        }
    }
    Some(draft)
}

/// Of a volume with a file system. What kubelet sees decides.
pub(super) fn mounted(
    draft: &mut Draft,
    context: &Context<'_>,
    said: &Said,
    sample: &NodeSample,
) -> Option<()> {
    let (namespace, table, staged) = staged(said, sample)?;
    let others: Vec<&Mount> = references(table, staged).collect();
    draft.path.clone_from(&staged.point);
    if others.is_empty() {
        return None;
    }
    draft.fact(
        format!("{} is still mounted: {}", safe_path(&staged.point), staged.describe()),
        Source::mountinfo(&table.source),
    );
    for other in others.iter().take(NAMED) {
        let fact = format!(
            "the same directory is also mounted at {}: {}",
            safe_path(&other.point),
            other.describe()
        );
        draft.fact(fact, Source::mountinfo(&table.source));
    }
    if others.len() > NAMED {
        let fact = format!("and at {} more places", others.len() - NAMED);
        draft.fact(fact, Source::mountinfo(&table.source));
    }
    draft.rule_out(
        ids::LEAKED_SUPERBLOCK_BLOCKS_DEVICE,
        "the device is still mounted in kubelet's mount namespace",
    );
    let view = View::in_namespace(context, namespace, table.pid);
    for other in others.iter().take(4) {
        match pod_of(&other.point) {
            Some(uid) => draft.advice(
                format!(
                    "find out why the volume of pod {uid} is still mounted: `podstuck diagnose --pod-uid {uid}`"
                ),
                "none",
            ),
            None => draft.remedy(
                view.on_mount("umount", &other.point, Some(other.id))
                    .so(", which keeps the device open"),
                "low if the process that mounted it has ended: check first; the unmount fails \
                 while the mount is in use",
            ),
        };
    }
    Some(())
}

/// The mount that kubelet's error names, in the host's view or a kubelet's.
fn staged<'a>(said: &Said, sample: &'a NodeSample) -> Option<(u32, &'a Mounts, &'a Mount)> {
    let host = sample.mounts.host;
    let is_view = |namespace: u32, table: &Mounts| {
        Some(namespace) == host || sample.kubelets.contains(&table.pid)
    };
    let mut all = sample.mounts.all();
    all.find(|(namespace, table, mount)| {
        // Go quotes the path, which changes nothing in a plain one.
        let named = || said.text.contains(&format!("\"{}\"", mount.point.display()));
        mount.point.to_string_lossy().contains(OF_KUBELET) && is_view(*namespace, table) && named()
    })
}

/// Mounts that kubelet takes for references: of the same device and directory, and not its own.
pub(super) fn references<'a>(
    table: &'a Mounts,
    staged: &'a Mount,
) -> impl Iterator<Item = &'a Mount> {
    let point = staged.point.to_string_lossy().into_owned();
    let own = point.find(OF_KUBELET).map_or(point.clone(), |at| point.split_at(at).1.to_owned());
    table.all.iter().filter(move |mount| {
        let same = mount.device == staged.device && mount.root == staged.root;
        same && mount.id != staged.id && !mount.point.to_string_lossy().contains(&own)
    })
}

/// The UID of the pod in whose directory a path lies.
fn pod_of(path: &Path) -> Option<String> {
    let mut names = path.iter();
    names.find(|name| *name == "pods")?;
    let uid = names.next()?.to_str()?;
    let plain = uid.len() == 36 && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    plain.then(|| uid.to_owned())
}

/// Of a raw block volume: kubelet has maps of it for other pods.
pub(super) fn mapped(draft: &mut Draft, said: &Said, sample: &NodeSample) {
    let named = |path: &Path| {
        let directory = path.parent().map(|it| it.display().to_string());
        directory.is_some_and(|it| said.text.contains(&format!("\"{it}\"")))
    };
    // kubelet ignores a map over which nothing is bound (`GetDeviceBindMountRefs`).
    let is_this =
        |volume: &&BlockVolume| volume.mounts.iter().any(|mount| named(mount.point.as_path()));
    let pods = sample.pods.iter();
    let found: Vec<_> = pods
        .flat_map(|pod| pod.devices.iter().filter(is_this).map(move |volume| (pod, volume)))
        .collect();
    draft.rule_out(
        ids::LEAKED_SUPERBLOCK_BLOCKS_DEVICE,
        "it is a raw block volume, and kubelet mounts no file system of it",
    );
    for (pod, volume) in found.iter().take(NAMED) {
        let uid = safe(pod.uid.as_bytes());
        let fact = format!("it is still mapped for pod {uid}: {}", safe_path(volume.path()));
        draft.fact(fact, Source::file("kubelet's directories"));
        for user in volume.users.iter().take(NAMED) {
            draft.fact(made_of(user).to_string(), Source::proc(&user.source));
        }
    }
    if found.is_empty() {
        draft.doubt("for which pod it is still mapped: only the log says that it is");
    }
    draft.advice(
        "find out why it is still mapped: `podstuck diagnose --pod-uid UID` for the pod whose UID is the map's \
         name",
        "none",
    );
}
