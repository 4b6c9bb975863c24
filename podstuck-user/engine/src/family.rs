//! The declaration of a family of causes: its causes and the trackers that find them.

use crate::{cause::Cause, tracker::TrackerSpec};

/// One family.
pub(crate) struct Family {
    /// In the order of the documents.
    pub(crate) causes: &'static [&'static Cause],
    pub(crate) trackers: &'static [TrackerSpec],
}
