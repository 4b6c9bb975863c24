//! Helper processes that did not come back. In an uninterruptible wait they survive SIGKILL, and
//! each keeps a reference to the path that it looks at, so there may be a few only.

use std::sync::{Mutex, PoisonError};

use tokio::process::Child;

/// How many may live at a time.
const MAX: usize = 4;

/// Those that may still live.
#[derive(Debug, Default)]
pub(super) struct LeftBehind(Mutex<Vec<Child>>);

impl LeftBehind {
    /// None yet.
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Whether there are so many that no other helper should be risked. Reaps those that have ended.
    pub(super) fn is_full(&self) -> bool {
        let mut children = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        children.len() >= MAX
    }

    /// Kills one, without waiting for its end, and remembers it.
    pub(super) fn leave(&self, mut child: Child) {
        // It fails for one that has just ended.
        let _ = child.start_kill();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(child);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::process::Command;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_few_that_live_are_enough_and_the_dead_do_not_count() {
        let left = LeftBehind::new();
        for _ in 0..MAX {
            assert!(!left.is_full());
            // Not killed, as if it could not be.
            let child = Command::new("sleep").arg("60").kill_on_drop(true).spawn().unwrap();
            left.0.lock().unwrap().push(child);
        }
        assert!(left.is_full());
        let one = left.0.lock().unwrap().pop().unwrap();
        left.leave(one);
        while left.is_full() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(left.0.lock().unwrap().len(), MAX - 1);
    }
}
