//! Names that are near one that is unknown.

use std::cmp::Reverse;

/// How many are offered.
pub(super) const OFFERED: usize = 4;

/// The names that are spelled most alike, and before them those that contain the word.
pub(super) fn near<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<&str> = known.collect();
    let likeness = |known: &str| (strsim::jaro_winkler(name, known) * 1000.0) as u32;
    names.sort_by_key(|known| {
        let contains = !name.is_empty() && known.contains(name);
        (Reverse(contains), Reverse(likeness(known)), *known)
    });
    names.truncate(OFFERED);
    names
}
