//! No room where kubelet and the runtimes live.

use std::{collections::HashMap, sync::Arc, time::Duration};

use podstuck_common::component::path_hash;

use super::{
    Verdict,
    command::View,
    draft::{Draft, Family},
};
use crate::{
    model::{
        finding::Severity,
        identity::Target,
        path::{safe_path, shell_word},
        time::Monotonic,
    },
    state::sample::{NodeSample, Space},
};

/// How long it must last: two looks. Garbage collection of images frees room again.
const LASTS: Duration = Duration::from_secs(5);

/// File systems that are full, by target.
#[derive(Default)]
pub(super) struct Spaces {
    full: HashMap<u64, Full>,
}

struct Full {
    since: Monotonic,
    told: bool,
}

impl Spaces {
    /// Looks for full ones.
    pub(super) fn sampled(&mut self, sample: &NodeSample) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        let mut full = HashMap::new();
        for space in &sample.spaces {
            let Some(what) = space.exhausted() else { continue };
            let target_id = path_hash(safe_path(&space.path).as_bytes());
            let before = self.full.remove(&target_id);
            let mut this = before.unwrap_or(Full { since: space.at, told: false });
            if space.at.since(this.since) >= LASTS {
                this.told = true;
                let draft = draft(space, what, target_id, this.since);
                verdicts.push(Verdict::Found(Box::new(draft)));
            }
            full.insert(target_id, this);
        }
        let over = std::mem::replace(&mut self.full, full);
        for (target_id, _) in over.into_iter().filter(|(_, full)| full.told) {
            verdicts.push(Verdict::Over { family: Family::Space, target_id, at: sample.at });
        }
        verdicts
    }
}

fn draft(space: &Space, what: &str, target_id: u64, since: Monotonic) -> Draft {
    let target = Target { root: space.path.clone(), ..Target::unknown() };
    let path = space.path.clone();
    let mut draft = Draft::about_state(
        Family::Space,
        "disk-full-runtime",
        target_id,
        Arc::new(target),
        path,
        space.at,
    );
    draft.first = since;
    draft.severity = Severity::Critical;
    let whose =
        if space.is_kubelets { "kubelet" } else { "a runtime, or what it writes its logs to" };
    let place = safe_path(&space.path);
    // Root may still use what is kept for it, unless it is a container's root.
    draft.confidence = if space.room.free <= space.room.available { 0.6 } else { 0.5 };
    let room = &space.room;
    let fact = if what == "blocks" {
        let (left, all) = (room.available >> 10, room.bytes >> 10);
        format!("{left} KiB of {all} KiB are left on the file system of {place}")
    } else {
        format!(
            "{} of {} inodes are left on the file system of {place}",
            room.inodes_available, room.inodes
        )
    };
    draft.fact(fact, "statvfs");
    if what == "blocks" && room.free > room.available {
        draft.fact(
            format!("{} KiB more are kept for root", (room.free - room.available) >> 10),
            "statvfs",
        );
    }
    draft.explanation = format!(
        "The file system of {whose} is full. That alone keeps nothing from being deleted: removing \
         needs no room. But kubelet and the runtimes cannot write their state and logs any more, and \
         then they fail at tasks or stop answering, which keeps every pod of the node. So this is \
         likely to be the cause, and not certain."
    );
    let view = space.seen_by.map_or(View::OURS, |(pid, namespace)| View { namespace, pid });
    let listing = if what == "blocks" {
        "du --one-file-system --max-depth=2 -h"
    } else {
        "du --inodes --one-file-system --max-depth=2"
    };
    draft.remedy(
        view.on_object(listing, &space.path),
        "none, but reads much; `df -i` and `df` show the rest",
    );
    draft.remedy(
        "journalctl --vacuum-size=100M",
        "removes old entries of the journal. Free room outside the runtime's own directories first, \
         and restart the runtime afterwards if it does not answer",
    );
    draft.remedy(
        "crictl rmi --prune",
        format!(
            "removes images that no container uses; helps if they lie on {}",
            shell_word(&space.path)
        ),
    );
    draft
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::rooms::Room;

    fn sample(second: u64, available: u64) -> NodeSample {
        let at = Monotonic(second * 1_000_000_000);
        let room = Room {
            device: 1,
            bytes: 1 << 30,
            free: available,
            available,
            inodes: 0,
            inodes_available: 0,
            read_only: false,
        };
        let path = "/var/lib/kubelet".into();
        let space = Space { path, is_kubelets: true, seen_by: None, room, at };
        NodeSample { spaces: vec![space], ..NodeSample::of_mounts(at, Default::default()) }
    }

    #[test]
    fn a_disk_that_stays_full_is_a_likely_cause() {
        let mut spaces = Spaces::default();
        assert!(spaces.sampled(&sample(0, 0)).is_empty());
        let told = spaces.sampled(&sample(10, 0));
        let [Verdict::Found(draft)] = &told[..] else { panic!("{told:?}") };
        assert_eq!((draft.id, draft.blocks_deletion), ("disk-full-runtime", None));
        assert!(draft.confidence < 0.8, "a full disk alone is no proof");
        let over = spaces.sampled(&sample(20, 1 << 29));
        assert!(matches!(over[..], [Verdict::Over { .. }]));
    }

    #[test]
    fn a_moment_is_nothing() {
        let mut spaces = Spaces::default();
        for second in [0, 20, 40] {
            assert!(spaces.sampled(&sample(second, 0)).is_empty());
            assert!(spaces.sampled(&sample(second + 10, 1 << 29)).is_empty());
        }
    }
}
