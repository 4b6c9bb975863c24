//! Who gives way where as many threads are followed as may be: what hangs in one pod must leave room for what hangs in
//! others, and for the node's own daemons.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
};

use super::followed::Followed;
use crate::identity::cgroup::{group_of, pod_of_cgroup};

/// Whose thread it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// Of the node, or of a process that has ended.
    Node,
    /// By its UID.
    Pod(String),
}

impl Owner {
    /// By the control group, which takes no lock of the process.
    pub(super) fn of(pid: u32) -> Self {
        let group = group_of(&PathBuf::from(format!("/proc/{pid}")));
        let pod = group.as_deref().and_then(pod_of_cgroup);
        pod.map_or(Self::Node, |(uid, _)| Self::Pod(uid))
    }
}

/// How many threads of each pod are followed.
#[derive(Debug)]
pub(super) struct Crowd(BTreeMap<Owner, usize>);

impl Crowd {
    pub(super) fn of(followed: &HashMap<u32, Followed>) -> Self {
        let mut pods = BTreeMap::new();
        for owner in followed.values().map(owner) {
            if *owner != Owner::Node {
                *pods.entry(owner.clone()).or_default() += 1;
            }
        }
        Self(pods)
    }

    /// Who gives way to one more thread of somebody's. The node gives way to nobody; a pod to the node, and to a pod that
    /// has fewer even with one more.
    pub(super) fn gives_way(&self, new: &Owner) -> Option<&Owner> {
        let own = self.0.get(new).copied().unwrap_or(0);
        let (largest, count) = self.0.iter().max_by_key(|(_, count)| **count)?;
        (*new == Owner::Node || *count > own + 1).then_some(largest)
    }
}

/// The thread of an owner that is followed no more. What was told of a thread is not taken back: of the others the
/// youngest, which may be over soon.
pub(super) fn last_of(followed: &HashMap<u32, Followed>, whose: &Owner) -> Option<u32> {
    let its_own = followed.values().filter(|it| owner(it) == whose);
    Some(its_own.max_by_key(|it| (!it.told, it.began))?.thread.tid)
}

fn owner(it: &Followed) -> &Owner {
    it.owner.get_or_init(|| Owner::of(it.thread.pid))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::state::hung::anchor::Anchor;
    use podstuck_confine::timed_read::TimedReader;
    use podstuck_model::{thread::Thread, time::Monotonic};

    fn gives_way(followed: &HashMap<u32, Followed>, new: &Owner) -> Option<u32> {
        last_of(followed, Crowd::of(followed).gives_way(new)?)
    }

    fn pod(uid: &str) -> Owner {
        Owner::Pod(uid.into())
    }

    /// Threads with these numbers, each a second younger than the one before.
    fn of(owners: &[(&Owner, u32)]) -> HashMap<u32, Followed> {
        let mut all = HashMap::new();
        for (owner, count) in owners {
            for _ in 0..*count {
                let tid = all.len() as u32 + 1;
                // No process has so high a number.
                let thread = Thread { pid: 4_194_999, tid };
                let began = Monotonic(u64::from(tid) * 1_000_000_000);
                let long = Duration::from_secs(2);
                let reader = &mut TimedReader::default();
                let it = Followed::new(thread, Anchor::Program, "x", began, long, reader);
                it.owner.set((*owner).clone()).unwrap();
                all.insert(tid, it);
            }
        }
        all
    }

    #[test]
    fn the_node_finds_room_whatever_hangs_in_pods() {
        let crowd = of(&[(&Owner::Node, 1), (&pod("a"), 3), (&pod("b"), 5)]);
        assert_eq!(gives_way(&crowd, &Owner::Node), Some(9), "the youngest of the largest crowd");
    }

    #[test]
    fn a_crowd_gives_way_to_the_first_threads_of_another_pod_and_to_none_of_its_own() {
        let (a, b) = (pod("a"), pod("b"));
        let crowd = of(&[(&a, 7), (&b, 1)]);
        assert_eq!(gives_way(&crowd, &b), Some(7));
        assert_eq!(gives_way(&crowd, &pod("c")), Some(7));
        assert_eq!(gives_way(&crowd, &a), None);
        let even = of(&[(&a, 4), (&b, 3)]);
        assert_eq!(gives_way(&even, &b), None, "else they took turns for ever");
        assert_eq!(gives_way(&of(&[(&Owner::Node, 4)]), &a), None, "the node gives way to nobody");
    }

    #[test]
    fn what_was_told_stays_before_what_was_not() {
        let mut crowd = of(&[(&pod("a"), 4)]);
        for tid in [3, 4] {
            crowd.get_mut(&tid).unwrap().told = true;
        }
        assert_eq!(gives_way(&crowd, &Owner::Node), Some(2));
    }

    #[test]
    fn who_has_ended_or_is_in_no_pod_is_the_nodes() {
        assert_eq!(Owner::of(4_194_999), Owner::Node);
    }
}
