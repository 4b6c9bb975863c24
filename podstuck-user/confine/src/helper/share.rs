//! On whose behalf a thread asks: what hangs for one pod must not keep another's questions from being asked.

use std::cell::RefCell;

/// Whose question it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Share {
    /// A pod's, by its UID.
    Pod(String),
    /// That of something that belongs to no pod.
    Target(u64),
}

thread_local! {
    static OWN: RefCell<Option<Share>> = const { RefCell::new(None) };
}

/// Asks on somebody's behalf.
pub fn ask_for<T>(share: Share, ask: impl FnOnce() -> T) -> T {
    let before = OWN.replace(Some(share));
    let answer = ask();
    OWN.set(before);
    answer
}

/// On whose behalf this thread asks; `None` for the node.
pub(super) fn own() -> Option<Share> {
    OWN.with_borrow(Clone::clone)
}

/// Whether so many helpers hang that no other one is sent on behalf of somebody who has left `own` of them behind.
/// Everybody may leave half of what is free at that time, and one at least: however many hang for one pod, there is
/// room for others.
pub(super) fn is_used_up(own: usize, hung: usize, most: usize) -> bool {
    let free = most.saturating_sub(hung);
    free == 0 || own >= (free / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many each of those who come one after the other can leave behind.
    fn left(most: usize) -> Vec<usize> {
        let mut all = Vec::new();
        loop {
            let hung = |all: &[usize]| all.iter().sum::<usize>();
            let mut own = 0;
            while !is_used_up(own, hung(&all) + own, most) {
                own += 1;
            }
            if own == 0 {
                return all;
            }
            all.push(own);
        }
    }

    #[test]
    fn nobody_takes_the_room_of_others() {
        assert_eq!(left(6), [2, 1, 1, 1, 1]);
        assert_eq!(left(4), [1, 1, 1, 1]);
        assert_eq!(left(1), [1]);
        assert_eq!(left(0), [0; 0]);
    }

    #[test]
    fn who_asks_is_known_while_it_is_asked() {
        let pod = || Share::Pod("a".into());
        assert_eq!(ask_for(pod(), || ask_for(Share::Target(1), own)), Some(Share::Target(1)));
        assert_eq!(ask_for(pod(), || (ask_for(Share::Target(1), || ()), own()).1), Some(pod()));
        assert_eq!(own(), None);
    }
}
