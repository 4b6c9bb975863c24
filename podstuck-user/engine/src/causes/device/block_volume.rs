//! A raw block volume that stays mapped, given what kubelet says of it and who holds it.

use crate::{
    cause::{Cause, Kind, log, way},
    causes::{
        device::block_volume_tracker::Left,
        shared::holders::{free, tell},
    },
    command::View,
    ids,
    model::{
        block_volume::{BlockVolume, DeviceUser},
        csi::VolumeData,
        diagnosis::Stage,
        evidence::Source,
        holder::{Holder, How},
        identity::Component,
        path::{safe, safe_path},
        said::Complaint,
    },
    tracker::{Context, TrackerId},
    verdict::Draft,
};

/// A raw block volume that cannot be taken away.
pub(crate) static BLOCK_VOLUME_IN_USE: Cause = Cause {
    id: ids::RAW_BLOCK_VOLUME_IN_USE,
    title: "a raw block volume (`volumeDevices`) is still mapped; who holds its device is named",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The pod has a raw block volume: no file system is mounted for it, but kubelet and the driver \
        bind the device over a file below `plugins`, and the pod has a link to it. kubelet detaches the loop \
        device that keeps it open, removes the link, unmounts its map, and asks the driver to unpublish. Who \
        has the map open, or a device that is made of it, as by LUKS, LVM or multipath, makes that fail.",
    confirmed_by: &[
        "the pod's containers have ended, and the link or a map of the device is left",
        "kubelet's log: UnmapVolume failed, and the device is busy",
        "a process, a loop device or a device of the device mapper holds it",
    ],
    log: log("kubelet", "UnmapVolume.UnmapBlockVolume failed"),
    look_alikes: &[],
    ways_out: &[
        way("stop who holds the device, or close what is made of it", "the finding says who"),
        way("look into kubelet's and the driver's log", ""),
    ],
    field: &[],
    tried: &[],
    source: &[
        "kubernetes pkg/volume/util/util.go, UnmapBlockVolume",
        "kubernetes pkg/volume/csi/csi_block.go",
    ],
};

/// What the node calls the devices that it is made of: they are told, and their tools.
const TOLD: usize = 8;

/// `None` where neither a log nor a holder says why it is left.
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
    tell(&mut draft, &culprits);
    for user in volume.users.iter().take(TOLD) {
        draft.fact(made_of(user), Source::proc(&user.source));
    }
    let is_held = !culprits.is_empty() || !volume.users.is_empty();
    draft.explanation = if is_held {
        "The pod's containers have ended, and its raw block volume is still mapped. As long as somebody holds \
         the device, to unmap it may fail: kubelet tries again, two minutes apart in the end."
    } else {
        "The pod's containers have ended, and its raw block volume is still mapped. kubelet fails to unmap it; \
         nobody was seen to hold it."
    }
    .into();
    match said.as_ref().map(|said| said.complaint) {
        None => draft.doubt("whether kubelet fails to unmap it: no log says so"),
        _ if !is_held => {
            draft.doubt(
                "who holds the device: nobody was found, and only the log says that it fails",
            );
        }
        _ if culprits.is_empty() => {
            draft.doubt(
                "whether that makes an unmount fail: nobody was found who uses the map itself",
            );
        }
        Some(Some(Complaint::MapBusy)) => {}
        _ => draft
            .doubt("whether the attempt failed by that: the log does not say that the map is busy"),
    }
    remedies(&mut draft, context, volume, &culprits);
    Some(draft)
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
    for mount in volume.mounts.iter().take(TOLD) {
        draft.fact(
            format!("the device is still mapped at {}: {}", safe_path(&mount.point), mount.what),
            Source::mountinfo(&mount.source),
        );
    }
}

/// `loop4 is made of /k/map`
pub(crate) fn made_of(user: &DeviceUser) -> String {
    let what = if user.what.is_empty() { String::new() } else { format!(" ({})", user.what) };
    format!("{}{what} is made of {}", user.name, user.of)
}

fn remedies(draft: &mut Draft, context: &Context<'_>, volume: &BlockVolume, culprits: &[&Holder]) {
    let (nested, users): (Vec<&Holder>, Vec<&Holder>) =
        culprits.iter().partition(|holder| holder.how == How::NestedMount);
    if let Some(mount) = volume.mounts.first() {
        let view = View::in_namespace(context, mount.namespace, mount.pid);
        free(draft, view, &nested, &users);
    }
    if let Some(user) = volume.users.iter().find(|user| user.name.starts_with("dm-")) {
        draft.advice(
            format!(
                "close what is made of the device, when nobody uses it any more: {} (`lsblk --inverse \
                 /dev/{}` shows the rest; `cryptsetup close`, `vgchange --activate n` or `multipath -f`)",
                user.name, user.name
            ),
            "whoever still uses it loses what it has not written",
        );
    }
    draft.advice(
        "look why kubelet or the driver fails: their logs name the pod's UID (`UnmapVolume`, \
         `NodeUnpublishVolume`)",
        "none",
    );
}
