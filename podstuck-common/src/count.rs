//! Counts by target, process, call, errno and latency.

use crate::record::Process;

/// Key of a count: one for each combination that occurred.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CountKey {
    /// [`crate::trail::Trail::target`]
    pub target: u64,
    /// [`Process::started_ns`] of the process that made the call.
    pub started_ns: u64,
    /// Process id.
    pub tgid: u32,
    /// From the lowest bit: latency bucket (16 bits), errno (12 bits), call (4 bits).
    pub what: u32,
    /// Whose entry it is: see [`Self::in_lane`].
    pub lane: u32,
    /// Always 0, since the kernel compares it as well.
    pub padding: u32,
}

impl CountKey {
    /// Packs a key, in lane 0.
    #[inline(always)]
    pub const fn new(target: u64, process: Process, call: u8, errno: u16, bucket: u16) -> Self {
        let what = bucket as u32 | (errno as u32 & 0xfff) << 16 | (call as u32) << 28;
        let Process { started_ns, tgid, .. } = process;
        Self { target, started_ns, tgid, what, lane: 0, padding: 0 }
    }

    /// The same key in the lane of a slot of a CPU. Only one program at a time adds to an entry of a lane, so no
    /// update has to be atomic. User space sums the lanes.
    #[inline(always)]
    pub const fn in_lane(self, lane: u32) -> Self {
        Self { lane, ..self }
    }

    /// The process that made the call.
    pub const fn process(&self) -> Process {
        Process::new(self.tgid, self.started_ns)
    }

    /// The call, as in [`crate::record::call`].
    pub const fn call(&self) -> u8 {
        (self.what >> 28) as u8
    }

    /// The errno, 0 for success.
    pub const fn errno(&self) -> u16 {
        (self.what >> 16) as u16 & 0xfff
    }

    /// The latency bucket.
    pub const fn bucket(&self) -> u16 {
        self.what as u16
    }
}

/// The tables of counts.
pub const TABLES: [&str; 2] = ["COUNTS_0", "COUNTS_1"];

/// Entries of a table of counts. User space empties it sooner when it fills.
pub const COUNTS: usize = 4096;
/// Entries for each possible CPU beyond them: a process that runs on several takes as many entries for a count.
const COUNTS_PER_CPU: usize = 32;

/// The size of a table of counts on a machine with `cpus` possible CPUs.
pub const fn size(cpus: usize) -> u32 {
    let size = COUNTS.saturating_add(cpus.saturating_mul(COUNTS_PER_CPU));
    if size > u32::MAX as usize { u32::MAX } else { size as u32 }
}

/// The counts of one lane.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTotals {
    /// Number of calls.
    pub calls: u64,
    /// Their summed duration in nanoseconds.
    pub total_ns: u64,
    /// The shortest duration in nanoseconds, at least 1; 0 if no call is counted or the duration is unknown.
    pub min_ns: u64,
    /// The longest duration in nanoseconds; 0 as for `min_ns`.
    pub max_ns: u64,
}

impl CallTotals {
    /// `calls` calls that took `ns` nanoseconds each.
    pub const fn of_equal(calls: u64, ns: u64) -> Self {
        // A duration below the clock's resolution counts as 1 ns, because 0 means unknown.
        let ns = if ns == 0 { 1 } else { ns };
        Self { calls, total_ns: calls * ns, min_ns: ns, max_ns: ns }
    }

    /// Adds the counts of another CPU or another period.
    pub fn merge(&mut self, other: &Self) {
        if other.calls == 0 {
            return;
        }
        // If a part is unknown, the result is unknown.
        let is_known = (self.calls == 0 || self.min_ns != 0) && other.min_ns != 0;
        let (min_ns, max_ns) = match (is_known, self.calls) {
            (false, _) => (0, 0),
            (true, 0) => (other.min_ns, other.max_ns),
            (true, _) => (self.min_ns.min(other.min_ns), self.max_ns.max(other.max_ns)),
        };
        (self.min_ns, self.max_ns) = (min_ns, max_ns);
        self.calls += other.calls;
        self.total_ns += other.total_ns;
    }
}

#[cfg(feature = "user")]
mod pod {
    use super::{CallTotals, CountKey};
    // SAFETY: each is `repr(C)`, made of integers without padding (asserted below), and valid for
    // every bit pattern.
    unsafe impl aya::Pod for CallTotals {}
    // SAFETY: as above.
    unsafe impl aya::Pod for CountKey {}
}

const _: () = assert!(size_of::<CountKey>() == 32);
const _: () = assert!(size_of::<CallTotals>() == 32);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::call;

    #[test]
    fn a_key_gives_back_what_went_in() {
        let process = Process::new(9, 1 << 60);
        let key = CountKey::new(7, process, call::RMDIR, 116, crate::bucket::BUCKETS - 1);
        assert_eq!((key.process(), key.call(), key.errno()), (process, call::RMDIR, 116));
        assert_eq!(key.bucket(), crate::bucket::BUCKETS - 1);
        let key = CountKey::new(7, process, call::UMOUNT2, 4095, 0);
        assert_eq!((key.call(), key.errno(), key.bucket()), (call::UMOUNT2, 4095, 0));
        let last = crate::bucket::BUCKETS - 1;
        let key = CountKey::new(7, process, call::RMDIR, 4095, last);
        let other = key.in_lane(1 << 14);
        assert_eq!((other.call(), other.errno(), other.bucket()), (call::RMDIR, 4095, last));
        assert!(other != key && other.in_lane(0) == key);
    }

    #[test]
    fn the_shortest_and_the_longest_are_those_of_all_or_not_known() {
        let mut sum = CallTotals::default();
        sum.merge(&CallTotals::of_equal(2, 700));
        sum.merge(&CallTotals::default());
        sum.merge(&CallTotals { calls: 3, total_ns: 2_000, min_ns: 5, max_ns: 900 });
        assert_eq!(sum, CallTotals { calls: 5, total_ns: 3_400, min_ns: 5, max_ns: 900 });
        sum.merge(&CallTotals { calls: 1, total_ns: 1, min_ns: 0, max_ns: 0 });
        sum.merge(&CallTotals::of_equal(1, 3));
        assert_eq!((sum.calls, sum.min_ns, sum.max_ns), (7, 0, 0));
        assert_eq!(CallTotals::of_equal(1, 0).min_ns, 1);
    }
}
