//! Messages that a component repeats in its log about one object, or about each of many pods.

use crate::{
    bounded::Bounded,
    model::{evidence::Source, path::safe, said::Said, time::Monotonic},
    tracker::Context,
    verdict::{Draft, times},
};

/// Pods remembered.
const PODS: usize = 1024;

/// The last message, its first and last time, and the number of lines.
#[derive(Debug)]
pub(crate) struct Repeated {
    pub(crate) said: Said,
    pub(crate) first: Monotonic,
    pub(crate) last: Monotonic,
    pub(crate) lines: u64,
}

impl Repeated {
    /// An entry without lines: the message itself is still to be counted by [`Self::note`].
    pub(crate) fn begin(said: &Said, at: Monotonic) -> Self {
        Self { said: said.clone(), first: at, last: at, lines: 0 }
    }

    /// Counts a repetition, perhaps in other words. Returns whether it is the latest by its time.
    pub(crate) fn note(&mut self, said: &Said, at: Monotonic) -> bool {
        self.lines += said.times;
        self.first = self.first.min(at);
        let is_last = at >= self.last;
        if is_last {
            (self.last, self.said) = (at, said.clone());
        }
        is_last
    }

    /// Adds the message as a fact, and its times and number to the draft.
    pub(crate) fn tell(&self, draft: &mut Draft) {
        (draft.first, draft.last, draft.count) = (self.first, self.last, self.lines);
        let Said { component, source, text, .. } = &self.said;
        let text = safe(text.as_bytes());
        let said = format!("{} logged {}: {text}", component.name(), times(self.lines));
        draft.fact_since(said, Source::Log(source.clone()), self.first);
    }
}

/// Repeated messages, by the UID of the pod.
pub(crate) struct OfPods(Bounded<String, Repeated>);

impl Default for OfPods {
    fn default() -> Self {
        Self(Bounded::new(PODS))
    }
}

impl OfPods {
    pub(crate) fn note(&mut self, context: &Context<'_>, said: &Said) {
        let at = context.when(said.at);
        let begin = || Repeated::begin(said, at);
        self.0.or_insert_with(said.uid.clone(), begin).note(said, at);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Repeated)> {
        self.0.iter()
    }

    /// Number of pods that were evicted.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped()
    }
}
