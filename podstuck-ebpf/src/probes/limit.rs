//! Rate limit of records of one kind: the first is always sent, then a few per second.

use aya_ebpf::{bindings::BPF_ANY, btf_maps::LruHashMap, macros::btf_map};
use podstuck_common::lru;

/// Maximum number of records of one kind per second. A shim's burst of EBUSY is 20 per second and must fit.
const PER_SECOND: u32 = 32;
const SECOND_NS: u64 = 1_000_000_000;

/// A kind of records.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimitKey {
    pub(crate) target: u64,
    /// The caller's [`podstuck_common::record::Process`], or 0.
    pub(crate) started_ns: u64,
    pub(crate) tgid: u32,
    /// Call, errno and reason.
    pub(crate) what: u32,
}

/// The state of one kind: see [`LimitKey`].
#[repr(C)]
#[derive(Clone, Copy)]
struct Limit {
    window_ns: u64,
    sent: u32,
    held: u32,
}

/// The rate limits, by kind.
#[btf_map]
static LIMITS: LruHashMap<LimitKey, Limit, { lru::LIMITS }> = LruHashMap::new();

/// The kind that a slot suppressed last. A process that cannot remove an object often retries at once and need not
/// look up its limit each time: that took 30 of 650 ns of a call that fails with EBUSY.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HeldBack {
    kind: LimitKey,
    window_ns: u64,
    /// Number of suppressed records that are not added to the table yet.
    count: u32,
}

/// Returns the number of suppressed records before this one if it may be sent; `None` otherwise.
#[inline(always)]
pub(crate) fn admit(held_back: &mut HeldBack, key: &LimitKey, now: u64) -> Option<u32> {
    if held_back.kind == *key && now.wrapping_sub(held_back.window_ns) <= SECOND_NS {
        held_back.count += 1;
        return None;
    }
    tell(held_back);
    let Some(limit) = LIMITS.get_ptr_mut(key) else {
        let first = Limit { window_ns: now, sent: 1, held: 0 };
        let _ = LIMITS.insert(key, &first, u64::from(BPF_ANY));
        return Some(0);
    };
    // SAFETY: aligned words of a map value. If the entry is recycled or raced, only a limit is miscounted; because of
    // the race there is no reference to it.
    unsafe {
        if now.wrapping_sub((*limit).window_ns) > SECOND_NS {
            (*limit).window_ns = now;
            (*limit).sent = 0;
        }
        if (*limit).sent >= PER_SECOND {
            (*limit).held += 1;
            held_back.kind = *key;
            held_back.window_ns = (*limit).window_ns;
            return None;
        }
        (*limit).sent += 1;
        let held = (*limit).held;
        (*limit).held = 0;
        Some(held)
    }
}

/// Adds the slot's suppressed records to the table.
#[inline(always)]
fn tell(held_back: &mut HeldBack) {
    if held_back.count == 0 {
        return;
    }
    if let Some(limit) = LIMITS.get_ptr_mut(&held_back.kind) {
        // SAFETY: as in `admit`.
        unsafe { (*limit).held += held_back.count };
    }
    held_back.count = 0;
}
