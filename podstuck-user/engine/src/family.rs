//! What a family of causes declares: the causes that it can find, and the trackers that find them.

use crate::{cause::Cause, tracker::TrackerSpec};

/// One family.
pub(crate) struct Family {
    /// In the order in which documents list them.
    pub(crate) causes: &'static [&'static Cause],
    pub(crate) trackers: &'static [TrackerSpec],
}
