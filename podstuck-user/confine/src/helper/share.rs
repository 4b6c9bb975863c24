//! The pod or target that a thread asks for: what hangs for one pod must not keep another's questions from being
//! asked.

use std::cell::RefCell;

/// The pod or target that a question is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Share {
    /// A pod, by its UID.
    Pod(String),
    /// A target that belongs to no pod.
    Target(u64),
}

thread_local! {
    static OWN: RefCell<Option<Share>> = const { RefCell::new(None) };
}

/// Runs `ask` on behalf of a share.
pub fn ask_for<T>(share: Share, ask: impl FnOnce() -> T) -> T {
    let before = OWN.replace(Some(share));
    let answer = ask();
    OWN.set(before);
    answer
}

/// The share that this thread asks for; `None` for the node.
pub(super) fn own() -> Option<Share> {
    OWN.with_borrow(Clone::clone)
}

/// Whether a share that has left `own` helpers behind may start no further one, while `hung` of `most` hang. A share
/// may leave half of the free ones behind, and at least one: whatever number hangs for one pod, there is room for
/// others.
pub(super) fn is_used_up(own: usize, hung: usize, most: usize) -> bool {
    let free = most.saturating_sub(hung);
    free == 0 || own >= (free / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many each of several shares, one after the other, can leave behind.
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
    fn no_share_takes_the_room_of_others() {
        assert_eq!(left(6), [2, 1, 1, 1, 1]);
        assert_eq!(left(4), [1, 1, 1, 1]);
        assert_eq!(left(1), [1]);
        assert_eq!(left(0), [0; 0]);
    }

    #[test]
    fn the_share_is_set_while_its_question_is_asked() {
        let pod = || Share::Pod("a".into());
        assert_eq!(ask_for(pod(), || ask_for(Share::Target(1), own)), Some(Share::Target(1)));
        assert_eq!(ask_for(pod(), || (ask_for(Share::Target(1), || ()), own()).1), Some(pod()));
        assert_eq!(own(), None);
    }
}
