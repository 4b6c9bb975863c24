//! Messages that a component repeats in its log about one object, or about each of many pods.

use std::sync::Arc;

use crate::{
    bounded::Bounded,
    model::{
        evidence::Source,
        path::safe,
        said::{Said, template},
        time::Monotonic,
    },
    tracker::Context,
    verdict::{Draft, times},
};

/// Pods remembered.
const PODS: usize = 1024;
/// Logs of which the first message is kept: kubelet's and the runtime's.
const LOGS: usize = 2;

/// The last message, its first and last time, and the number of lines.
#[derive(Debug)]
pub(crate) struct Repeated {
    pub(crate) said: Arc<Said>,
    pub(crate) first: Monotonic,
    pub(crate) last: Monotonic,
    pub(crate) lines: u64,
    /// When the last line was read.
    pub(crate) read: Monotonic,
    /// Of each log, the first message.
    begun: Vec<Arc<Said>>,
}

impl Repeated {
    /// An entry without lines: the message itself is still to be counted by [`Self::note`].
    pub(crate) fn begin(said: &Said, at: Monotonic) -> Self {
        let said = Arc::new(said.clone());
        Self { begun: vec![said.clone()], said, first: at, last: at, lines: 0, read: at }
    }

    /// Counts a repetition, perhaps in other words. Returns whether it is the latest by its time.
    pub(crate) fn note(&mut self, context: &Context<'_>, said: &Said) -> bool {
        let at = context.when(said.at);
        self.read = context.now;
        self.lines += said.times;
        self.first = self.first.min(at);
        let is_last = at >= self.last;
        if is_last {
            self.last = at;
            if *self.said != *said {
                self.said = Arc::new(said.clone());
            }
        }
        match self.begun.iter().position(|first| first.source == said.source) {
            Some(its) if said.at < self.begun[its].at => self.begun[its] = Arc::new(said.clone()),
            None if self.begun.len() < LOGS => self.begun.push(Arc::new(said.clone())),
            _ => {}
        }
        is_last
    }

    /// The first message in the log of the last one, if it is another error. An attempt that fails half-way may leave less
    /// than the next one requires: then the first error is the reason for all.
    pub(crate) fn first_error(&self) -> Option<&Said> {
        let first = self.begun.iter().find(|said| said.source == self.said.source)?;
        (is_another(first, &self.said) && first.at < self.said.at).then_some(first)
    }

    /// Adds the message as a fact, and its times and number to the draft.
    pub(crate) fn tell(&self, draft: &mut Draft) {
        (draft.first, draft.last, draft.count) = (self.first, self.last, self.lines);
        let Said { component, source, text, .. } = &*self.said;
        let text = safe(text.as_bytes());
        let said = format!("{} logged {}: {text}", component.name(), times(self.lines));
        draft.fact_since(said, Source::Log(source.clone()), self.first);
        tell_first(draft, self.first_error());
    }
}

/// Whether two messages end in different errors: the innermost one is last, and what precedes it depends on the step
/// that logs it.
pub(crate) fn is_another(first: &Said, last: &Said) -> bool {
    let innermost = |said: &Said| template(said.text.rsplit(": ").next().unwrap_or_default());
    innermost(first) != innermost(last)
}

/// Adds the first error of a row as a fact, where the last one is another.
pub(crate) fn tell_first(draft: &mut Draft, first: Option<&Said>) {
    if let Some(first) = first {
        let fact =
            format!("the first attempt failed with another error: {}", safe(first.text.as_bytes()));
        draft.fact(fact, Source::Log(first.source.clone()));
    }
}

/// Repeated messages, by the UID of the pod.
#[derive(Default)]
pub(crate) struct OfPods(Bounded<String, Repeated, PODS>);

impl OfPods {
    pub(crate) fn note(&mut self, context: &Context<'_>, said: &Said) {
        let begin = || Repeated::begin(said, context.when(said.at));
        self.0.or_insert_with(said.uid.clone(), begin).note(context, said);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Repeated)> {
        self.0.iter()
    }

    /// Number of pods that were evicted.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped()
    }
}
