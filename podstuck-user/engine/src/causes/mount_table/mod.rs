//! Very many mounts in a mount namespace of the node's own programs: they slow each unmount, even if it has nothing to
//! write.

use crate::cause::Origin;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use podstuck_common::{component::path_hash, record::reason};

use crate::{
    cause::{Cause, Kind, TriedWith, log, seen, way},
    causes::shared::clean_up::is_clean_up,
    command::Step,
    event::{Event, What},
    family::Family,
    ids,
    model::{
        call::{Call, Outcome},
        crowd::{Crowd, VERY_MANY},
        degraded::Feed,
        diagnosis::Stage,
        evidence::Source,
        identity::Target,
        node::NodeSample,
        operation::Operation,
        path::safe_path,
        time::Monotonic,
    },
    tracker::{Context, Steps, Tracker, TrackerId, TrackerSpec},
    verdict::{Draft, Verdict},
};

/// The family's causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[&MOUNT_STORM],
    trackers: &[TrackerSpec {
        id: TrackerId::MountStorm,
        feeds: &[Feed::Calls, Feed::Node],
        yields: &[],
        new: || Box::<MountStorms>::default(),
    }],
};

/// How long the state must last: two samples.
const LASTS: Duration = Duration::from_secs(5);
/// Number of latest slow unmounts remembered.
const SLOW: usize = 16;
/// How long a slow unmount counts.
const FRESH: Duration = Duration::from_secs(600);
/// Plugins whose volumes kubelet keeps in memory (pkg/volume/secret, projected and downwardapi, `wrappedVolumeSpec`):
/// their unmount writes nothing and waits for no server.
const IN_MEMORY: [&str; 3] =
    ["kubernetes.io/secret", "kubernetes.io/projected", "kubernetes.io/downward-api"];

/// Crowded mount namespaces of the last sample, by target.
#[derive(Default)]
pub(crate) struct MountStorms {
    crowded: BTreeMap<u64, Crowded>,
    /// Slow unmounts of volumes in memory: end and duration.
    slow: VecDeque<(Monotonic, Duration)>,
}

struct Crowded {
    since: Monotonic,
    reported: bool,
}

impl MountStorms {
    fn observe(&mut self, op: &Operation) {
        let plugin = op.target.volume.as_ref().map_or("", |volume| volume.plugin.as_str());
        let is_slow = op.has(reason::SLOW) && op.call == Call::Umount2 && op.outcome == Outcome::OK;
        if is_slow && is_clean_up(op) && IN_MEMORY.contains(&plugin) {
            if self.slow.len() >= SLOW {
                self.slow.pop_front();
            }
            self.slow.push_back((op.end, op.duration));
        }
    }

    fn sampled(&mut self, sample: &NodeSample, steps: &mut Steps) {
        self.slow.retain(|(end, _)| sample.at.since(*end) <= FRESH);
        let slow: Vec<Duration> = self.slow.iter().map(|(_, took)| *took).collect();
        let mut before = std::mem::take(&mut self.crowded);
        for crowd in &sample.crowded {
            let name = format!("{} {}", crowd.namespace, safe_path(&crowd.below));
            let target_id = path_hash(name.as_bytes());
            let known = before.remove(&target_id);
            let mut this = known.unwrap_or(Crowded { since: sample.at, reported: false });
            if sample.at.since(this.since) >= LASTS {
                this.reported = true;
                let (since, at) = (this.since, sample.at);
                steps.found([draft(crowd, &slow, target_id, (since, at))]);
            }
            self.crowded.insert(target_id, this);
        }
        let (tracker, at) = (self.id(), sample.at);
        for (target_id, _) in before.into_iter().filter(|(_, crowded)| crowded.reported) {
            steps.say([Verdict::Over { tracker, target_id, at }]);
        }
    }
}

impl Tracker for MountStorms {
    fn id(&self) -> TrackerId {
        TrackerId::MountStorm
    }

    fn take(&mut self, event: &Event, _: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Operation(op) => self.observe(op),
            What::Sample(sample) => self.sampled(sample, steps),
            _ => {}
        }
    }
}

/// Slow unmounts needed as evidence.
const SLOW_NEEDED: usize = 2;
/// Durations named in the finding.
const NAMED: usize = 4;

/// The number of mounts makes each change slow.
pub(crate) static MOUNT_STORM: Cause = Cause {
    id: ids::MOUNT_TABLE_STORM,
    title: "the number of mounts on the node makes each mount and unmount slow",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "Something keeps mounting and never unmounts. systemd, kubelet, runtimes and drivers \
        read the whole mount table at each change or for each volume, and spend their time on \
        that if it has tens of thousands of mounts: requests to start or stop anything time out, \
        and volumes are unmounted late.",
    confirmed_by: &[
        seen(
            "the mount namespace of the node's first process, or of kubelet, has more than 10,000 mounts, four times what a \
         node full of pods has",
            &[Origin::Mounts],
        ),
        seen("unmounts of volumes in memory, which write nothing, take seconds", &[Origin::Calls]),
    ],
    log: log("systemd or runc", "timed out, or DeadlineExceeded, while systemd takes a whole CPU"),
    look_alikes: &[],
    ways_out: &[
        way(
            "find the program that mounts, by the mount points and what is mounted, and end it",
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

/// The finding. `slow` has the durations of slow unmounts of volumes in memory.
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
    draft.fact(format!("{mounts} mounts are in {whose}; {VERY_MANY} are very many"), source());
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
        draft.doubt(
            "whether the mounts make a deletion slow: no slow unmount of a volume in memory was \
             seen",
        );
    }
    draft.explanation = "Something keeps mounting and does not unmount. systemd, kubelet, the \
        runtime and drivers read the whole mount table at each change or for each volume, so all \
        of them become slow, and requests time out. This prevents no removal, but each one takes \
        longer."
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
        "find the program that mounts there and does not unmount, and end it; then unmount what \
         is left, or drain and reboot the node",
        "what it has mounted may be in use",
    );
    draft
}

#[cfg(test)]
mod tests;
