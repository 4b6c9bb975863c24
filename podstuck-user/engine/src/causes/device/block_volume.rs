//! Raw block volumes that stay mapped after the pod's containers have ended, by kubelet's log and the holders. kubelet
//! unmaps them in its own plugin directories and not in the pod's, so the probes see no call on them, and the samples
//! see what is left.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    backoff,
    bounded::Bounded,
    causes::{
        device::causes::BLOCK_VOLUME_IN_USE,
        shared::holders::{detach_loop, free, tell},
    },
    command::View,
    event::{Event, What},
    model::{
        block_volume::{BlockVolume, DeviceUser},
        chain::Who,
        csi::VolumeData,
        evidence::Source,
        holder::{About, Holder, How, Snapshot},
        identity::Component,
        mounted::Mounted,
        node::{NodeSample, PodState},
        path::{JsonPath, safe, safe_path},
        said::{Complaint, Said},
        time::Monotonic,
    },
    query::{Query, Wants},
    tracker::{Context, Steps, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

/// How long a volume must stay mapped if kubelet has logged no failure: kubelet unmaps within moments.
const LASTS: Duration = Duration::from_secs(30);
/// Samples, two seconds apart, before the first question about a map's holders.
const LOOKS_NEEDED: u32 = 2;
/// Samples between two questions.
const AGAIN: u32 = 10;
/// Volumes remembered.
const REMEMBERED: usize = 1024;

/// A volume that is left.
pub(crate) struct Left {
    /// Its state in the last sample.
    pub(crate) volume: BlockVolume,
    /// When it was first seen after the pod's containers had ended.
    pub(crate) since: Monotonic,
    /// When it was last seen.
    pub(crate) at: Monotonic,
    /// kubelet's last attempt to unmap it, if that failed and is recent.
    pub(crate) said: Option<Said>,
    /// The holders of its map.
    pub(crate) holders: Option<Snapshot>,
    looks: u32,
    reported: bool,
}

/// The volumes of the last sample that are left, by target ID.
#[derive(Default)]
pub(crate) struct BlockVolumes {
    left: BTreeMap<u64, Left>,
    /// By UID and volume: kubelet's last line about it.
    said: Bounded<(String, String), Said, REMEMBERED>,
}

impl BlockVolumes {
    fn listen(&mut self, said: &Said) {
        if said.is_kubelets_of_a_volume() {
            let key = (said.uid.clone(), said.volume.clone());
            if self.said.get(&key).is_none_or(|before| before.at <= said.at) {
                self.said.insert(key, said.clone());
            }
        }
    }

    /// The last line about a volume, if it is a recent error: after a longer silence, a later attempt has not met
    /// it.
    fn said(&self, context: &Context<'_>, pod: &PodState, volume: &BlockVolume) -> Option<Said> {
        let of_this = |(uid, name): &(String, String)| *uid == pod.uid && volume.is_called(name);
        let said = self.said.iter().find(|(key, _)| of_this(key)).map(|(_, said)| said)?;
        let lasts = context.now.since(context.when(said.at)) <= backoff::CAP * 2;
        (said.report.is_none() && lasts).then(|| said.clone())
    }

    fn sampled(&mut self, sample: &NodeSample, context: &Context<'_>, steps: &mut Steps) {
        let (tracker, at) = (self.id(), sample.at);
        let mut before = std::mem::take(&mut self.left);
        let ended = |pod: &&PodState| pod.populated == Some(false) && pod.started;
        for pod in sample.pods.iter().filter(ended) {
            for volume in pod.devices.iter().filter(|volume| volume.target_id != 0) {
                let target_id = volume.target_id;
                let said = self.said(context, pod, volume);
                let new = || {
                    let volume = volume.clone();
                    let (looks, reported) = (0, false);
                    Left { volume, since: at, at, said: None, holders: None, looks, reported }
                };
                let known = before.remove(&target_id).unwrap_or_else(new);
                let looks = known.looks + 1;
                let mut left = Left { volume: volume.clone(), at, said, looks, ..known };
                if let Some(mount) = left.volume.mounts.first()
                    && left.looks % AGAIN == LOOKS_NEEDED
                {
                    let (pid, namespace, path) = (mount.pid, mount.namespace, mount.point.clone());
                    let point = JsonPath(path.clone());
                    let wants = Wants::Holders(About::Mount { pid, namespace, path: point });
                    steps.ask([Query { tracker, target_id, path, wants }]);
                }
                left.judge(context, steps);
                self.left.insert(target_id, left);
            }
        }
        let gone = before.into_iter().filter(|(_, left)| left.reported);
        steps.say(gone.map(|(target_id, _)| Verdict::Over { tracker, target_id, at }));
    }
}

impl Left {
    fn judge(&mut self, context: &Context<'_>, steps: &mut Steps) {
        let lasts = self.said.is_some() || self.at.since(self.since) >= LASTS;
        let draft = draft(context, self).filter(|_| lasts);
        if draft.is_none() && self.reported {
            let (tracker, target_id) = (TrackerId::BlockVolume, self.volume.target_id);
            steps.say([Verdict::Over { tracker, target_id, at: self.at }]);
        }
        self.reported = draft.is_some();
        steps.found(draft);
    }
}

impl Tracker for BlockVolumes {
    fn id(&self) -> TrackerId {
        TrackerId::BlockVolume
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Said(said) => self.listen(said),
            What::Sample(sample) => self.sampled(sample, context, steps),
            what => {
                if let Some((query, taken)) = what.holders()
                    && let Some(left) = self.left.get_mut(&query.target_id)
                {
                    left.holders = Some(taken.clone());
                    left.judge(context, steps);
                }
            }
        }
    }

    fn dropped(&self) -> u64 {
        self.said.dropped()
    }
}

/// Mounts and users of the device named.
const NAMED: usize = 8;

/// The finding; `None` if neither a log nor a holder shows why the volume is left.
pub(crate) fn draft(context: &Context<'_>, left: &Left) -> Option<Draft> {
    let Left { volume, said, .. } = left;
    let culprits: Vec<&Holder> = left
        .holders
        .iter()
        .flat_map(|taken| taken.culprits())
        .filter(|holder| holder.component != Some(Component::Kubelet))
        .collect();
    if said.is_none() && culprits.is_empty() && volume.users.is_empty() {
        return None;
    }
    let path = volume.path().to_owned();
    let target = (volume.target_id, volume.target.clone());
    let mut draft = Draft::about_state(
        TrackerId::BlockVolume,
        &BLOCK_VOLUME_IN_USE,
        target.0,
        target.1,
        path,
        left.at,
    );
    draft.blocks_deletion = Some(true);
    draft.first = left.since;
    what_is_left(&mut draft, volume);
    if let Some(said) = said {
        let text = format!("kubelet says, last at {:.0}: {}", said.at, said.text);
        draft.fact_since(text, Source::Log(said.source.clone()), context.when(said.at));
    }
    if let Some(top) = tops(volume).next() {
        draft.held_by(made_of(top));
    }
    tell(&mut draft, &culprits);
    for user in volume.users.iter().take(NAMED) {
        draft.fact(made_of(user).to_string(), Source::proc(&user.source));
    }
    let is_held = !culprits.is_empty() || !volume.users.is_empty();
    let refuses = refuses(left).filter(|_| !is_held);
    if let Some(driver) = &refuses {
        draft.held_by(Who::component(format!("CSI driver {driver}"), None));
        draft.explanation = format!(
            "The pod's containers have ended, and its raw block volume is still mapped. kubelet \
             asks the CSI driver {driver} to remove its map of the device, and the driver answers \
             with an error each time. No process uses the device: the driver itself fails."
        );
        draft.doubt("why the driver fails: only its own log says more");
        by_hand(&mut draft, context, volume);
        return Some(draft);
    }
    if let Some(mount) = cannot_be_removed(left).filter(|_| !is_held) {
        unmount_the_map(&mut draft, context, mount);
        return Some(draft);
    }
    draft.explanation = if is_held {
        "The pod's containers have ended, and its raw block volume is still mapped. While a \
         process has the device open, unmapping it may fail; kubelet retries with pauses of up to \
         two minutes."
    } else {
        "The pod's containers have ended, and its raw block volume is still mapped. kubelet fails \
         to unmap it; no process was seen that uses it."
    }
    .into();
    match said.as_ref().map(|said| said.complaint) {
        None => draft.doubt("whether kubelet fails to unmap it: no log says so"),
        _ if !is_held => {
            draft.doubt(
                "which process uses the device: none was found, and only the log says that the \
                 unmap fails",
            );
        }
        _ if culprits.is_empty() => {
            draft.doubt(
                "whether that makes an unmount fail: no process was found that uses the map itself",
            );
        }
        Some(Some(Complaint::MapBusy)) => {}
        _ => draft.doubt(
            "whether the attempt failed because of that: the log does not say that the map is busy",
        ),
    }
    remedies(&mut draft, context, volume, &culprits);
    Some(draft)
}

/// The driver that answers kubelet's last attempt with an error, if the map's holders are known.
fn refuses(left: &Left) -> Option<String> {
    let said = left.said.as_ref()?;
    let is_its = said.complaint == Some(Complaint::DriverError) && !is_busy(&said.text);
    is_its.then(|| left.volume.driver())?.filter(|_| left.holders.is_some())
}

fn is_busy(text: &str) -> bool {
    ["busy", "in use"].iter().any(|words| text.contains(words))
}

/// The mount on kubelet's own map, if kubelet fails to remove the map because something is mounted there.
fn cannot_be_removed(left: &Left) -> Option<&Mounted> {
    let said = left.said.as_ref()?;
    let map = left.volume.map.as_deref()?;
    let is_it = said.text.contains("remove ") && said.text.contains("device or resource busy");
    left.volume.mounts.iter().find(|mount| mount.point == map).filter(|_| is_it)
}

/// Whether what is mounted is no device but a file: devices lie on devtmpfs, in a container's `/dev` on a tmpfs.
fn is_file(mount: &Mounted) -> bool {
    !["(devtmpfs)", "(tmpfs)"].iter().any(|kind| mount.what.contains(kind))
}

/// Adds the unmount that kubelet does not do before it removes its map.
fn unmount_the_map(draft: &mut Draft, context: &Context<'_>, mount: &Mounted) {
    draft.held_by(Who::component("kubelet", None));
    draft.must = Some("unmount its map of the volume before it removes it");
    let (why, no_device) = if is_file(mount) {
        (
            "What is mounted there is a file of a file system and no device, and kubelet unmounts only a device: the CSI \
             driver's own mount of the device, which kubelet should have mapped, is not in the node's mount namespace.",
            true,
        )
    } else {
        ("It fails to unmount it first; no process was seen that uses it.", false)
    };
    draft.explanation = format!(
        "The pod's containers have ended, and kubelet cannot remove its map of the raw block volume, because something is \
         still mounted on it. {why}"
    );
    let view = View::in_namespace(context, mount.namespace, mount.pid);
    draft.remedy(
        view.on_mount("umount", &mount.point, Some(mount.id))
            .so(", kubelet's map of the volume, which kubelet then removes"),
        "low: the pod's containers have ended, and no process was found that uses it. The volume itself stays",
    );
    if no_device {
        draft.advice(
            "mount kubelet's directory into the container of the CSI driver's node pod with `mountPropagation: \
             Bidirectional`: what the driver mounts is on the node then",
            "low: the driver's pods start again; pods that start later have the device",
        );
        draft.doubt("why the driver's mount of the device is not on the node");
    } else {
        draft.doubt("why kubelet does not unmount it: its log has only the removal that fails");
    }
}

/// Adds the unmount that the driver should do, and the repair of the driver.
fn by_hand(draft: &mut Draft, context: &Context<'_>, volume: &BlockVolume) {
    const PUBLISHED: &str = "/volumeDevices/publish/";
    let is_published = |mount: &&Mounted| mount.point.to_string_lossy().contains(PUBLISHED);
    if let Some(mount) = volume.mounts.iter().find(is_published) {
        let view = View::in_namespace(context, mount.namespace, mount.pid);
        let step = view.on_mount("umount", &mount.point, Some(mount.id));
        draft.remedy(
            step.so(", the driver's map of the device, as the driver should"),
            "low: the pod's containers have ended, and no process was found that uses it. A \
             driver that finds nothing mounted must report success",
        );
    }
    draft.advice(
        "update or restart the driver on this node; its log has its answer to NodeUnpublishVolume for this volume",
        "low: volumes stay mounted while the driver restarts",
    );
}

fn what_is_left(draft: &mut Draft, volume: &BlockVolume) {
    let driver = match &volume.data {
        Some(VolumeData::Known { driver, handle, .. }) => {
            let [driver, handle] = [driver, handle].map(|text| safe(text.as_bytes()));
            format!(", volume {handle} of the driver {driver}")
        }
        _ => String::new(),
    };
    if let Some(link) = &volume.link {
        let device = volume.leads_to.as_deref().map(safe_path);
        let to = device.map(|device| format!(", which leads to {device}")).unwrap_or_default();
        let fact = format!("the pod's link {} is still there{to}{driver}", safe_path(link));
        draft.fact(fact, Source::file("kubelet's directories"));
    } else if let Some(map) = &volume.map {
        let fact = format!("kubelet's map {} is still there{driver}", safe_path(map));
        draft.fact(fact, Source::file("kubelet's directories"));
    }
    for mount in volume.mounts.iter().take(NAMED) {
        draft.fact(
            format!("the device is still mapped at {}: {}", safe_path(&mount.point), mount.what),
            Source::mountinfo(&mount.source),
        );
    }
}

/// `loop4 is built on /k/map`
pub(crate) fn made_of(user: &DeviceUser) -> Who {
    let what = if user.what.is_empty() { String::new() } else { format!(" ({})", user.what) };
    Who::object(&user.name).and(&format!("{what} is built on {}", user.of))
}

/// The devices on which none is made, but which are made of one that is made of the volume's.
fn tops(volume: &BlockVolume) -> impl Iterator<Item = &DeviceUser> {
    let is_of = |upper: &DeviceUser, lower: &DeviceUser| {
        upper.of.strip_prefix("/dev/").unwrap_or(&upper.of) == lower.name
    };
    let users = &volume.users;
    users.iter().filter(move |user| {
        users.iter().any(|lower| is_of(user, lower))
            && !users.iter().any(|upper| is_of(upper, user))
    })
}

/// The end of a device that is made of another one.
fn close(draft: &mut Draft, user: &DeviceUser) {
    const RISK: &str = "a process that still uses it loses what it has not written";
    let DeviceUser { name, of, .. } = user;
    if let Some(step) = detach_loop(name, of.as_ref()) {
        draft.remedy(step.so(&format!(", which is built on {of}")), RISK);
        return;
    }
    draft.advice(
        format!(
            "close the device that is built on it, once no process uses it: {name} (`lsblk --inverse \
             /dev/{name}` shows the rest; `cryptsetup close`, `vgchange --activate n` or `multipath -f`)",
        ),
        RISK,
    );
}

fn remedies(draft: &mut Draft, context: &Context<'_>, volume: &BlockVolume, culprits: &[&Holder]) {
    let (nested, users): (Vec<&Holder>, Vec<&Holder>) =
        culprits.iter().partition(|holder| holder.how == How::NestedMount);
    for top in tops(volume).take(NAMED) {
        close(draft, top);
    }
    // While a device is made of it, a loop device is not detached.
    let is_free = |holder: &&Holder| holder.how != How::Loop || tops(volume).next().is_none();
    let users: Vec<&Holder> = users.into_iter().filter(|holder| is_free(holder)).collect();
    if let Some(mount) = volume.mounts.first() {
        let view = View::in_namespace(context, mount.namespace, mount.pid);
        free(draft, view, &nested, &users);
    }
    if tops(volume).next().is_none()
        && let Some(user) = volume.users.iter().find(|user| user.name.starts_with("dm-"))
    {
        close(draft, user);
    }
    draft.advice(
        "find out why kubelet or the driver fails: their logs name the pod's UID (`UnmapVolume`, \
         `NodeUnpublishVolume`)",
        "none",
    );
}
