//! Reports what a slow start waits for, as on a busy machine.

use std::{
    io::Write,
    sync::Arc,
    sync::{
        Mutex, PoisonError,
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use rustix::process::nice;

use crate::logging::Unwaiting;
use podstuck_confine::role::Role;

/// A start that takes longer reports why, and again whenever the time has doubled.
const LONG: Duration = Duration::from_secs(2);

/// Priority of the threads that load the probes (nice(2)): loading takes some tenths of a second of CPU time, most of
/// it in the verifier, which on a busy machine would be seconds in which no call is seen.
const HURRY: i32 = -10;

/// Raises the priority of this thread and those that it starts while it lives, if permitted.
pub(super) struct Hurry {
    before: Option<i32>,
}

impl Hurry {
    pub(crate) fn begin() -> Self {
        // For this thread alone (setpriority(2), "NOTES").
        let before = nice(0).ok();
        Self { before: before.filter(|_| nice(HURRY).is_ok()) }
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        // By the same difference, since there is a limit. Any process may lower its priority.
        if let (Some(before), Ok(now)) = (self.before, nice(0)) {
            let _ = nice(before - now);
        }
    }
}

/// The steps of a start, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Daemons,
    Pods,
    Probes,
    Roots,
    Logs,
    Node,
}

impl Step {
    const fn text(self) -> &'static str {
        match self {
            Self::Daemons => "podstuck reads the settings of kubelet and the container runtimes",
            Self::Pods => "podstuck searches the pods' directories and names",
            Self::Probes => "the kernel verifies and attaches the probes",
            Self::Roots => "podstuck passes the pods' directories to the probes",
            Self::Logs => "podstuck reads the logs of the node's daemons",
            Self::Node => "podstuck scans the node's processes, mounts and pods",
        }
    }
}

/// A start in progress.
pub(super) struct Starting {
    step: Arc<Mutex<(Step, Instant)>>,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Starting {
    pub(crate) fn begin() -> Self {
        Self::with(LONG, |line| {
            // Without a reader, the line is dropped.
            let _ = writeln!(Unwaiting, "{line}");
        })
    }

    fn with(long: Duration, mut say: impl FnMut(String) + Send + 'static) -> Self {
        let begun = Instant::now();
        let step = Arc::new(Mutex::new((Step::Daemons, begun)));
        let (ended, end) = channel();
        let now = step.clone();
        let thread = Builder::new().name("starting".into()).spawn(move || {
            Role::WriteOpen.assume();
            let mut next = long;
            while end.recv_timeout(next.saturating_sub(begun.elapsed()))
                == Err(RecvTimeoutError::Timeout)
            {
                let (step, _) = *now.lock().unwrap_or_else(PoisonError::into_inner);
                let seconds = begun.elapsed().as_secs();
                say(format!("podstuck: not watching yet after {seconds} s: {}", step.text()));
                next *= 2;
            }
        });
        // Without the thread, only the reports are missing.
        let thread = thread.ok().map(|thread| (ended, thread));
        Self { step, thread }
    }

    /// Begins the next step.
    pub(crate) fn next(&self, step: Step) {
        let now = (step, Instant::now());
        let before =
            std::mem::replace(&mut *self.step.lock().unwrap_or_else(PoisonError::into_inner), now);
        note(before);
    }
}

fn note((step, since): (Step, Instant)) {
    tracing::info!("start: {step:?} took {:.0?}", since.elapsed());
}

impl Drop for Starting {
    fn drop(&mut self) {
        note(*self.step.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some((ended, thread)) = self.thread.take() {
            drop(ended);
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn the_priority_is_restored_after_the_start() {
        // Near the limit of priorities, too, where the test may go there.
        for more in [0, -15] {
            let _ = nice(more);
            let usual = nice(0).unwrap();
            let hurry = Hurry::begin();
            assert_eq!(nice(0).unwrap() < usual, hurry.before.is_some());
            drop(hurry);
            assert_eq!(nice(0).unwrap(), usual);
        }
    }

    #[test]
    fn a_start_that_takes_long_says_what_it_waits_for_until_it_ends() {
        let (sender, said) = channel();
        let starting = Starting::with(Duration::from_millis(1), move |line| {
            let _ = sender.send(line);
        });
        assert!(
            said.recv().unwrap().ends_with("the settings of kubelet and the container runtimes")
        );
        starting.next(Step::Probes);
        while !said.recv().unwrap().ends_with(": the kernel verifies and attaches the probes") {}
        drop(starting);
        assert_eq!(said.iter().find(|line| !line.ends_with("the probes")), None);
    }

    #[test]
    fn a_start_that_is_soon_over_says_nothing() {
        let (sender, said) = channel();
        drop(Starting::with(Duration::from_secs(3600), move |line| {
            let _ = sender.send(line);
        }));
        assert!(said.recv().is_err());
    }
}
