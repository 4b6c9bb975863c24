//! Log-linear latency buckets, eight per power of two, so that the end of a bucket is less than an eighth above any
//! value in it. Reports use the end of a bucket, as an HdrHistogram uses the highest equivalent value.
//!
//! This holds from 512 ns to 73 minutes (2^42 ns). Shorter calls share bucket 0, longer ones the last bucket.

/// Values below this many nanoseconds share bucket 0.
const FLOOR_LOG2: u32 = 9;
/// Values of at least `1 << CEILING_LOG2` nanoseconds share the last bucket.
const CEILING_LOG2: u32 = 42;
/// Sub-buckets per power of two, as a power of two.
const SUB_LOG2: u32 = 3;

/// Number of buckets.
pub const BUCKETS: u16 = (((CEILING_LOG2 - FLOOR_LOG2) << SUB_LOG2) + 2) as u16;

/// The bucket of a duration in nanoseconds: less than [`BUCKETS`].
#[inline(always)]
pub const fn bucket_of(ns: u64) -> u16 {
    if ns < 1 << FLOOR_LOG2 {
        return 0;
    }
    if ns >= 1 << CEILING_LOG2 {
        return BUCKETS - 1;
    }
    let log2 = 63 - ns.leading_zeros();
    let sub = (ns >> (log2 - SUB_LOG2)) as u32 & ((1 << SUB_LOG2) - 1);
    (((log2 - FLOOR_LOG2) << SUB_LOG2) + sub + 1) as u16
}

/// The smallest duration of a bucket, in nanoseconds.
pub const fn lower_bound(bucket: u16) -> u64 {
    if bucket == 0 {
        return 0;
    }
    if bucket >= BUCKETS - 1 {
        return 1 << CEILING_LOG2;
    }
    let step = (bucket - 1) as u32;
    let log2 = FLOOR_LOG2 + (step >> SUB_LOG2);
    let sub = (step & ((1 << SUB_LOG2) - 1)) as u64;
    ((1 << SUB_LOG2) + sub) << (log2 - SUB_LOG2)
}

/// The longest duration of a bucket, in nanoseconds; for the last bucket, which is unbounded, the shortest.
pub const fn highest(bucket: u16) -> u64 {
    if bucket >= BUCKETS - 1 {
        return 1 << CEILING_LOG2;
    }
    lower_bound(bucket + 1) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_meet_without_gap_or_overlap() {
        for bucket in 1..BUCKETS {
            let low = lower_bound(bucket);
            assert_eq!(bucket_of(low), bucket, "lower bound of {bucket}");
            assert_eq!(bucket_of(low - 1), bucket - 1, "just below {bucket}");
        }
    }

    #[test]
    fn the_end_of_a_bucket_is_less_than_an_eighth_above_from_a_microsecond_to_an_hour() {
        let hour = 3_600_000_000_000_u64;
        let mut ns = 1_000_u64;
        while ns <= hour {
            for probe in [ns, ns + ns / 97, ns + ns / 31] {
                let highest = highest(bucket_of(probe));
                let above = highest.checked_sub(probe).unwrap() as f64 / probe as f64;
                assert!(above < 0.125, "{probe} ns is shown as {highest} ns");
            }
            ns += ns / 50;
        }
    }

    #[test]
    fn everything_fits() {
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(BUCKETS, 266);
    }
}
