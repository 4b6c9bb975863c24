//! What a finding may lack: parts of the tool that cannot do their work, and that such findings are made by.

use std::path::Path;

use crate::{
    cause::Cause,
    causes::tracker,
    model::degraded::{Degraded, Feed},
    tracker::TrackerId,
};

/// What a tracker's findings are made of.
fn made_of(id: TrackerId) -> &'static [Feed] {
    // What a finding advises is made of holders alone; no tracker finds it.
    tracker(id).map_or(&[Feed::Holders], |spec| spec.feeds)
}

/// A conclusion from what is not there that does not count, since a part that had to see everything there did not.
pub(crate) fn incomplete(parts: &[Degraded], cause: &Cause, object: &Path) -> Option<String> {
    cause.absences().find_map(|(fact, feed)| {
        let part = parts.iter().find(|part| part.concerns(&[feed], object))?;
        Some(format!("whether {fact} ({})", part.sentence))
    })
}

/// What cannot be done of that by which such a finding about an object is made.
pub(crate) fn lacking(parts: &[Degraded], tracker: TrackerId, object: &Path) -> Vec<String> {
    let concerned = parts.iter().filter(|part| part.concerns(made_of(tracker), object));
    concerned.map(|part| part.sentence.clone()).collect()
}
