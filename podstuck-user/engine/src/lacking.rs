//! What a finding may lack: parts of the tool that cannot do their work, and that such findings are made by.

use std::path::Path;

use crate::{
    model::degraded::{Degraded, Feed},
    tracker::TrackerId,
};

/// What a tracker's findings are made of.
const fn made_of(tracker: TrackerId) -> &'static [Feed] {
    use Feed::{Calls, Holders, HungCalls, Logs, Node, Objects, Space};
    match tracker {
        TrackerId::CrossedMount => &[Calls],
        TrackerId::FileSystem => &[Calls, Logs],
        TrackerId::Busy => &[Calls, Node, Holders],
        TrackerId::DeadMount => &[Calls, Node, Objects, Logs],
        TrackerId::Refused | TrackerId::BulkDelete | TrackerId::NotEmpty => &[Calls, Objects],
        TrackerId::Unkillable => &[Calls, Node, Logs],
        TrackerId::Orphan | TrackerId::MountStorm => &[Calls, Node],
        TrackerId::NotAttempted => &[Calls, Node, Objects, Holders, Logs],
        TrackerId::PinnedDevice => &[Calls, Node, Holders],
        TrackerId::HungCall => &[Calls, HungCalls, Node, Logs],
        TrackerId::NetworkStorage => &[Node, Logs],
        TrackerId::DiskFull => &[Node, Space],
        TrackerId::PodRecord | TrackerId::ShimState => &[Node],
        TrackerId::RuntimeState | TrackerId::DockerState => &[Node, Logs],
        TrackerId::LeftRootfs => &[Node, Holders, Logs],
        TrackerId::BlockVolume => &[Node, Holders, Logs],
        TrackerId::DeviceReference => &[Node, Logs],
        TrackerId::Protected => &[Node, Objects],
        TrackerId::RuntimeSays => &[Calls, Node, Holders, Logs],
        TrackerId::HeldVolume => &[Node, Holders, Logs],
        TrackerId::KubeletState => &[Node, Logs],
        TrackerId::WaysOut => &[Holders],
    }
}

/// What cannot be done of that by which such a finding about an object is made.
pub(crate) fn lacking(parts: &[Degraded], tracker: TrackerId, object: &Path) -> Vec<String> {
    let concerned = parts.iter().filter(|part| part.concerns(made_of(tracker), object));
    concerned.map(|part| part.sentence.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By what a tracker takes, and asks for, in any of its files.
    fn feeds_of(files: &[&str]) -> Vec<Feed> {
        let code: String =
            files.iter().filter_map(|file| file.split("#[cfg(test)]").next()).collect();
        let by_words: [(Feed, &[&str]); 7] = [
            (Feed::Calls, &["What::Operation(", "What::Counts("]),
            (Feed::HungCalls, &["What::Stuck("]),
            (Feed::Node, &["What::Sample("]),
            (Feed::Space, &[".spaces"]),
            (
                Feed::Objects,
                &[
                    "Wants::FuseMounts",
                    "Wants::Attributes",
                    "Wants::Protected",
                    "Wants::Remaining",
                    "Wants::Directory",
                ],
            ),
            (Feed::Holders, &["Wants::Holders"]),
            (Feed::Logs, &["What::Said("]),
        ];
        let has = |words: &[&str]| words.iter().any(|word| code.contains(word));
        by_words.into_iter().filter(|(_, words)| has(words)).map(|(feed, _)| feed).collect()
    }

    #[test]
    fn the_table_says_what_trackers_take_and_ask_for() {
        macro_rules! check {
            ($($tracker:ident: $($file:literal)+,)*) => {
                $({
                    let files = [$(include_str!(concat!("trackers/", $file, ".rs"))),+];
                    assert_eq!(made_of(TrackerId::$tracker), feeds_of(&files), stringify!($tracker));
                })*
            };
        }
        check! {
            CrossedMount: "crossed_mount",
            Busy: "busy",
            DeadMount: "dead_mount" "dead_mount_told",
            Refused: "refused",
            FileSystem: "file_system",
            Unkillable: "unkillable",
            BulkDelete: "bulk_delete",
            NotAttempted: "not_attempted" "not_attempted/questions",
            Orphan: "orphan",
            NotEmpty: "not_empty",
            PinnedDevice: "pinned_device",
            HungCall: "hung_call",
            DiskFull: "disk_full",
            PodRecord: "pod_record",
            LeftRootfs: "left_rootfs",
            HeldVolume: "held_volume" "to_go",
            KubeletState: "kubelet_state" "to_go",
            Protected: "protected",
            RuntimeSays: "runtime_says" "sandbox_mounts",
            BlockVolume: "block_volume",
            DeviceReference: "device_reference",
            RuntimeState: "runtime_state" "to_go",
            DockerState: "docker_state" "to_go",
            ShimState: "shim_state",
            NetworkStorage: "network_storage",
            MountStorm: "mount_storm",
        }
    }
}
