//! What outlives a process of podstuck, if the probes are pinned: the maps that the next process takes over, and in
//! one of them the totals of all processes so far.
//!
//! The next process loads programs of its own on the same maps. While the programs of both are attached, both see
//! each call, and the one that takes its entry out of the table of calls in flight counts it. The new ones begin with
//! that when they know the directories of pods ([`ACTIVE`]), and the old ones are detached after that. So no call is
//! counted twice or missed.

/// Version of the content of [`MAPS`]. Increase it with each change of what the programs or user space store there:
/// then the maps of an earlier version are not taken over, and the calls since its last total are missing.
pub const LAYOUT: u32 = 1;

/// The maps that are shared.
pub const MAPS: [&str; 10] = [
    "ACTORS",
    "COUNTS_0",
    "COUNTS_1",
    "COUNTS_MADE",
    "GENERATION",
    "IN_FLIGHT",
    "IN_FLIGHT_BESIDE",
    KEPT,
    "LOSSES",
    "NAMES",
];

/// The map of the words below. Its format is the same in all versions of [`LAYOUT`].
pub const KEPT: &str = "KEPT";

/// Word: id of the process that reads the tables.
pub const OWNER: u32 = 0;
/// Word: start time of that process, by which the probes recognise another one with the same id. Written by the
/// first of its calls that they see.
pub const STARTED: u32 = 1;
/// Word: [`crate::config::Config::secret`] of that process, by which programs recognise their own one.
pub const SECRET: u32 = 2;
/// Word: 1 while counts are in the memory of user space only.
pub const UNSAVED: u32 = 3;
/// Word: which of the two copies of the totals is valid, 1 or 2; 0 for none.
pub const VALID: u32 = 4;
/// Word: number of processes so far, which is the turn of the last one.
pub const TURN: u32 = 5;
/// Word: the last turn whose programs count. Those of earlier turns count as well, as long as they are attached.
pub const ACTIVE: u32 = 6;
/// Word: number of hooks that the process of that turn has pinned.
pub const HOOKS: u32 = 7;
/// Words before the first copy.
pub const HEAD: usize = 8;
/// Words of a copy: its length in bytes; the number, plus 1, of the table that it includes although it was not empty
/// then, or 0; and the text.
pub const COPY: usize = 2 + TEXT / 8;
/// Maximum length of the text in bytes.
pub const TEXT: usize = 128 << 10;
/// Words in total.
pub const WORDS: usize = HEAD + 2 * COPY;

/// The first lane (see [`crate::count::CountKey::in_lane`]) of the programs of a turn. The programs of two processes may
/// run at a time, and must not share an entry.
pub const fn lanes(turn: u64) -> u32 {
    (turn as u32 & 0xff) << 24
}
