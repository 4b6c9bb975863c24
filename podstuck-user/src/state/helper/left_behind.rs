//! Helper processes that did not come back. In an uninterruptible wait they survive SIGKILL.

use std::{
    process::Child,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::Budget;

/// Those that may still live.
#[derive(Debug, Default)]
pub(super) struct LeftBehind(Mutex<Vec<(Budget, Child)>>);

impl LeftBehind {
    /// None yet.
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Whether there are so many that no other helper should be risked.
    pub(super) fn is_full(&self, budget: Budget) -> bool {
        let hung = self.living().iter().filter(|(of, _)| *of == budget).count();
        hung >= budget.hung_max()
    }

    /// Whether this one lives.
    pub(super) fn has(&self, pid: u32) -> bool {
        self.living().iter().any(|(_, child)| child.id() == pid)
    }

    /// Kills one, without waiting for its end, and remembers it.
    pub(super) fn leave(&self, budget: Budget, mut child: Child) {
        // It fails for one that has just ended.
        let _ = child.kill();
        self.all().push((budget, child));
    }

    /// Reaps those that have ended.
    fn living(&self) -> MutexGuard<'_, Vec<(Budget, Child)>> {
        let mut all = self.all();
        all.retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
        all
    }

    fn all(&self) -> MutexGuard<'_, Vec<(Budget, Child)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{process::Command, thread, time::Duration};

    use super::*;

    #[test]
    fn those_that_live_count_and_the_dead_do_not() {
        let left = LeftBehind::new();
        let mut pids = Vec::new();
        for _ in 0..Budget::Events.hung_max() {
            assert!(!left.is_full(Budget::Events));
            // Not killed, as if it could not be.
            let child = Command::new("sleep").arg("60").spawn().unwrap();
            pids.push(child.id());
            left.all().push((Budget::Events, child));
        }
        assert!(left.is_full(Budget::Events) && !left.is_full(Budget::Pods));
        assert!(pids.iter().all(|pid| left.has(*pid)));
        let children: Vec<_> = left.all().drain(..).collect();
        children.into_iter().for_each(|(budget, child)| left.leave(budget, child));
        while pids.iter().any(|pid| left.has(*pid)) {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(!left.is_full(Budget::Events));
    }
}
