//! The clocks of this machine. Only observers read them; decisions use the time of events.

use std::time::Duration;

use jiff::Timestamp;
use podstuck_model::time::{Clock, Monotonic};
use rustix::time::{ClockId, clock_gettime};

/// Now, on the clock of every record.
pub fn now() -> Monotonic {
    let t = clock_gettime(ClockId::Monotonic);
    Monotonic(t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs())
}

/// Relates the wall clock to the monotonic clock, now.
pub fn start() -> Clock {
    let (wall, monotonic) = (Timestamp::now(), now());
    let booted = clock_gettime(ClockId::Boottime);
    let booted = booted.tv_sec.unsigned_abs() * 1_000_000_000 + booted.tv_nsec.unsigned_abs();
    let slept = Duration::from_nanos(booted.saturating_sub(monotonic.0));
    // Both clocks are read one after the other, which takes a moment.
    Clock::new(wall, monotonic).that_slept(if slept.as_secs() > 0 { slept } else { Duration::ZERO })
}

/// Nanoseconds per tick, the unit of start times in `/proc/PID/stat`.
pub fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}
