//! Very many mounts in a mount namespace that the node's own programs are in.

use std::time::Duration;

use crate::{
    cause::{Cause, Kind, TriedWith, log, way},
    command::Step,
    ids,
    model::{
        crowd::{Crowd, VERY_MANY},
        diagnosis::Stage,
        evidence::Source,
        identity::Target,
        path::safe_path,
        time::Monotonic,
    },
    tracker::TrackerId,
    verdict::Draft,
};

/// Slow unmounts that are more than a moment's.
const SLOW_NEEDED: usize = 2;
/// Durations named.
const NAMED: usize = 4;

/// So many that each change of them is slow.
pub(crate) static MOUNT_STORM: Cause = Cause {
    id: ids::MOUNT_TABLE_STORM,
    title: "the node has so many mounts that each mount and unmount is slow",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "Something mounts again and again and never unmounts. systemd, kubelet, runtimes and drivers read the \
        whole table of mounts at each change or for each volume, and with tens of thousands of them spend their time \
        with that: requests to start or stop anything run into their timeouts, and volumes are unmounted late.",
    confirmed_by: &[
        "the mount namespace of the node's first process, or of kubelet, has more than 10,000 mounts, four times what a \
         node full of pods has",
        "unmounts of volumes in memory, which write nothing, take seconds",
    ],
    log: log("systemd or runc", "timed out, or DeadlineExceeded, while systemd takes a whole CPU"),
    look_alikes: &[],
    ways_out: &[
        way(
            "find who mounts, by where and what the mounts are, and end it",
            "what it has mounted may be in use",
        ),
        way("unmount what is left, or reboot the node after a drain", ""),
    ],
    field: &["systemd#8703", "kubernetes#120103", "containerd#5113"],
    tried: &[TriedWith::Lab],
    source: &[
        "systemd issues 8703, 16728",
        "kubernetes issue 120103, containerd issues 5113, 12139",
        "linux Documentation/admin-guide/sysctl/fs.rst, mount-max",
    ],
};

/// The finding. `slow` are unmounts of volumes in memory that took long.
pub(crate) fn draft(
    crowd: &Crowd,
    slow: &[Duration],
    target_id: u64,
    (since, at): (Monotonic, Monotonic),
) -> Draft {
    let target = Target { root: crowd.below.clone(), ..Target::unknown() };
    let mut draft = Draft::about_state(
        TrackerId::MountStorm,
        &MOUNT_STORM,
        target_id,
        target.into(),
        crowd.below.clone(),
        at,
    );
    draft.first = since;
    let Crowd { pid, mounts, are_below, what, times, .. } = crowd;
    let source = || Source::mountinfo(&crowd.source);
    let whose = format!("the mount namespace of process {pid}");
    draft
        .fact(format!("{mounts} mounts are in {whose}, where {VERY_MANY} are very many"), source());
    draft.fact(format!("{are_below} of them lie below {}", safe_path(&crowd.below)), source());
    if *times > 1 {
        draft.fact(format!("{times} of them are the same: {what}"), source());
    }
    if slow.len() >= SLOW_NEEDED {
        let took = slow.iter().rev().take(NAMED).map(|took| format!("{:.1}", took.as_secs_f64()));
        let took: Vec<String> = took.collect();
        draft.fact(
            format!(
                "{} unmounts of volumes in memory, which write nothing, were slow: the last took {} s",
                slow.len(),
                took.join(", ")
            ),
            Source::Probe,
        );
    } else {
        draft.doubt("whether they are what makes a deletion slow: no unmount of a volume in memory was seen to be");
    }
    draft.explanation = "Something mounts again and again, and does not unmount. systemd, kubelet, the runtime and \
        drivers read the whole table of mounts at each change or for each volume, so that all of them become slow, and \
        requests run into their timeouts. Nothing is kept from being removed by it; it takes longer."
        .into();
    draft.remedy(
        Step::new(
            format!("count the mounts in {} by what is mounted, and where", crowd.source),
            format!(
                "cut -d' ' -f4,5 {} | sed 's|/[^/]*$||' | sort | uniq -c | sort -rn | head",
                crowd.source
            ),
        ),
        "none",
    );
    draft.advice(
        "find who mounts there and does not unmount, and end it; then unmount what is left, or drain and reboot the node",
        "what it has mounted may be in use",
    );
    draft
}
