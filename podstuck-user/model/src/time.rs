//! Conversion between the kernel's time and calendar time.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock of every record.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// Time since `earlier`, zero if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Converts the kernel's time to calendar time. Both clocks are read once, so that differences stay exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    wall: Timestamp,
    monotonic: Monotonic,
    /// Time in suspend since boot, in nanoseconds: `CLOCK_BOOTTIME` includes it, the records' clock does not.
    #[serde(default, skip_serializing_if = "is_zero")]
    slept: u64,
}

/// Nanoseconds per tick, the unit of process starts in `stat`: `USER_HZ` is 100 on each supported architecture
/// (proc_pid_stat(5), include/uapi/asm-generic/param.h).
const TICK: u64 = 10_000_000;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_zero(slept: &u64) -> bool {
    *slept == 0
}

impl Clock {
    /// Both clocks, read at the same time.
    pub const fn new(wall: Timestamp, monotonic: Monotonic) -> Self {
        Self { wall, monotonic, slept: 0 }
    }

    /// Sets the time in suspend since boot.
    pub fn that_slept(self, slept: Duration) -> Self {
        Self { slept: u64::try_from(slept.as_nanos()).unwrap_or(u64::MAX), ..self }
    }

    /// The calendar time of a start in ticks since boot.
    pub fn after_boot(&self, ticks: u64) -> Timestamp {
        self.at(Monotonic(ticks.saturating_mul(TICK).saturating_sub(self.slept)))
    }

    /// The kernel's time of a calendar time; the boot for an earlier one.
    pub fn when(&self, time: Timestamp) -> Monotonic {
        let nanos = time.as_nanosecond() - self.wall.as_nanosecond() + i128::from(self.monotonic.0);
        Monotonic(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }

    /// When both clocks were read.
    pub fn started(&self) -> Monotonic {
        self.monotonic
    }

    /// The calendar time of a record.
    pub fn at(&self, time: Monotonic) -> Timestamp {
        let nanos = i128::from(time.0) - i128::from(self.monotonic.0);
        Timestamp::from_nanosecond(self.wall.as_nanosecond() + nanos).unwrap_or(self.wall)
    }
}

/// RFC 3339 in UTC with nanoseconds.
pub fn rfc3339(time: Timestamp) -> String {
    format!("{time:.9}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_survive_the_change_of_clock() {
        let clock = Clock::new(Timestamp::UNIX_EPOCH, Monotonic(7_000_000_000));
        let later = Monotonic(clock.started().0 + 1_500_000_000);
        let gap = clock.at(later).duration_since(clock.at(clock.started()));
        assert_eq!(gap.as_nanos(), 1_500_000_000);
        assert_eq!(clock.when(clock.at(later)), later);
        assert_eq!(clock.when(Timestamp::MIN), Monotonic(0));
    }

    #[test]
    fn a_start_is_counted_from_boot_and_sleep_with_it() {
        let clock = Clock::new(Timestamp::UNIX_EPOCH, Monotonic(7_000_000_000));
        assert_eq!(clock.after_boot(600), Timestamp::from_second(-1).unwrap());
        let slept = clock.that_slept(Duration::from_secs(3600));
        assert_eq!(slept.after_boot(360_600), clock.after_boot(600));
    }

    #[test]
    fn nanoseconds_are_always_written() {
        let time = Timestamp::from_second(1_700_000_000).unwrap();
        assert_eq!(rfc3339(time), "2023-11-14T22:13:20.000000000Z");
    }
}
