//! Known names that are near an unknown one.

use std::cmp::Reverse;

/// Limit of suggestions.
pub(super) const OFFERED: usize = 4;

/// The names with the most similar spelling, and before them those that contain the word.
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
