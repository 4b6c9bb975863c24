//! The slots of calls in flight. Only in shared memory can an entry be removed without touching the claims of other
//! threads.

use std::{
    mem::{offset_of, transmute},
    sync::atomic::{AtomicU64, Ordering, fence},
};

use podstuck_common::in_flight::InFlight;

use super::shared::{Shareable, Shared};

const WORDS: usize = size_of::<InFlight>() / 8;
const THREAD: usize = offset_of!(InFlight, thread) / 8;
const CLAIMS: usize = offset_of!(InFlight, claims) / 8;
const START: usize = offset_of!(InFlight, start_ns) / 8;

/// One slot.
#[repr(transparent)]
#[derive(Debug)]
pub(super) struct Slot([AtomicU64; WORDS]);

impl Slot {
    /// The call in the slot; `None` when the slot is free, or is being given to another call.
    pub(super) fn call(&self) -> Option<InFlight> {
        let [thread, start] = [THREAD, START].map(|word| self.0[word].load(Ordering::Acquire));
        let words = self.0.each_ref().map(|word| word.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let again = [THREAD, START].map(|word| self.0[word].load(Ordering::Relaxed));
        // SAFETY: made of integers without padding, of the same size.
        let call = unsafe { transmute::<[u64; WORDS], InFlight>(words) };
        (thread != 0 && again == [thread, start]).then_some(call)
    }

    /// Takes the slot from a thread, as its return would have; `false` when the thread no longer had it.
    pub(super) fn take_from(&self, thread: u64) -> bool {
        let free = 0;
        let taken =
            self.0[THREAD].compare_exchange(thread, free, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            // Other threads may claim it at this moment, and withdraw their own claims.
            self.0[CLAIMS].fetch_sub(1, Ordering::AcqRel);
        }
        taken.is_ok()
    }
}

// SAFETY: made of 8-byte words that are written by atomic instructions only. The kernel rounds the size of an entry
// up to 8 bytes.
unsafe impl Shareable for Slot {}

/// All slots.
pub(super) type Slots = Shared<Slot>;

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(thread: u64, claims: u64) -> Slot {
        let call = InFlight { thread, claims, start_ns: 5, dirfd: -100, ..InFlight::default() };
        // SAFETY: as in `call`.
        let words = unsafe { transmute::<InFlight, [u64; WORDS]>(call) };
        Slot(words.map(AtomicU64::new))
    }

    #[test]
    fn a_slot_is_read_as_it_was_written() {
        let call = slot(7, 1).call().unwrap();
        assert_eq!((call.thread, call.claims, call.start_ns, call.dirfd), (7, 1, 5, -100));
        assert_eq!(slot(0, 0).call(), None);
    }

    #[test]
    fn taking_a_slot_leaves_the_claims_of_others() {
        let slot = slot(7, 1);
        // Another thread has just counted up, sees that it is not the first, and will count down.
        slot.0[CLAIMS].fetch_add(1, Ordering::Relaxed);
        assert!(!slot.take_from(8));
        assert!(slot.take_from(7) && !slot.take_from(7));
        assert_eq!(slot.0[CLAIMS].fetch_sub(1, Ordering::Relaxed), 1);
        assert_eq!(slot.0[CLAIMS].fetch_add(1, Ordering::Relaxed), 0, "the next one has it");
    }
}
