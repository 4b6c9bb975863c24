//! Which thread is dropped when the limit of followed threads is reached: the stuck threads of one pod must leave room
//! for those of others, and of the node's own daemons.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
};

use super::followed::Followed;
use crate::identity::cgroup::{group_of, pod_of_cgroup};

/// The owner of a thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// The node; also for a process that has ended.
    Node,
    /// A pod, by its UID.
    Pod(String),
}

impl Owner {
    /// By the control group: reading it takes no lock of the process.
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

    /// The owner that loses a thread to a new one of `new`. The node never loses one; a pod loses one to the node, and to
    /// a pod that has fewer even with one more.
    pub(super) fn gives_way(&self, new: &Owner) -> Option<&Owner> {
        let own = self.0.get(new).copied().unwrap_or(0);
        let (largest, count) = self.0.iter().max_by_key(|(_, count)| **count)?;
        (*new == Owner::Node || *count > own + 1).then_some(largest)
    }
}

/// The thread of an owner that is dropped: the youngest one, which may be over soon, of those that were not reported.
pub(super) fn last_of(followed: &HashMap<u32, Followed>, whose: &Owner) -> Option<u32> {
    let its_own = followed.values().filter(|it| owner(it) == whose);
    Some(its_own.max_by_key(|it| (!it.is_reported, it.began))?.thread.tid)
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
                // Above the highest process id.
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
        assert_eq!(gives_way(&of(&[(&Owner::Node, 4)]), &a), None, "the node loses no thread");
    }

    #[test]
    fn reported_threads_are_kept_before_others() {
        let mut crowd = of(&[(&pod("a"), 4)]);
        for tid in [3, 4] {
            crowd.get_mut(&tid).unwrap().is_reported = true;
        }
        assert_eq!(gives_way(&crowd, &Owner::Node), Some(2));
    }

    #[test]
    fn a_process_that_has_ended_or_is_in_no_pod_is_the_nodes() {
        assert_eq!(Owner::of(4_194_999), Owner::Node);
    }
}
