//! The effect of degraded parts of podstuck on findings.

use std::path::Path;

use crate::{
    cause::Cause,
    causes::tracker,
    model::degraded::{Degraded, Feed},
    tracker::TrackerId,
};

/// The feeds of a tracker's findings.
fn made_of(id: TrackerId) -> &'static [Feed] {
    // A finding's remedies depend on the holders only; no tracker finds them.
    tracker(id).map_or(&[Feed::Holders], |spec| spec.feeds)
}

/// A fact proven by absence that does not count, because its feed is degraded for that object.
pub(crate) fn incomplete(parts: &[Degraded], cause: &Cause, object: &Path) -> Option<String> {
    cause.absences().find_map(|(fact, feed)| {
        let part = parts.iter().find(|part| part.concerns(&[feed], object))?;
        Some(format!("whether {fact} ({})", part.sentence))
    })
}

/// The degraded parts that affect a tracker's findings about an object.
pub(crate) fn lacking(parts: &[Degraded], tracker: TrackerId, object: &Path) -> Vec<String> {
    let concerned = parts.iter().filter(|part| part.concerns(made_of(tracker), object));
    concerned.map(|part| part.sentence.clone()).collect()
}
