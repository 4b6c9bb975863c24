//! Helper processes that did not return. In an uninterruptible wait they survive SIGKILL, and hold the object that
//! they read.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use podstuck_model::{
    degraded::{Degraded, Feed},
    path::safe_path,
};

use super::{
    Budget, Question,
    share::{self, Share, is_used_up},
};
use crate::fork_server::Process;

/// A helper that was left behind.
#[derive(Debug)]
pub(super) struct Left {
    name: &'static str,
    budget: Budget,
    share: Option<Share>,
    process: Process,
    /// The place where it hangs.
    place: String,
    /// The object of its question.
    about: OsString,
    /// The data that is missing meanwhile, and of which object.
    feeds: Option<Feed>,
    object: Option<PathBuf>,
}

impl Left {
    /// The last reported step says best where it hangs; a question without steps is shown by its object.
    pub(super) fn new<Q: Question>(
        process: Process,
        at: Option<&Q::Step>,
        about: OsString,
    ) -> Self {
        let step = at.map(|step| format!("{step:?}")).filter(|step| step != "()");
        let object = Some(PathBuf::from(&about)).filter(|about| about.is_absolute());
        let place = step.unwrap_or_else(|| safe_path(Path::new(&about)).into_owned());
        let share = share::own();
        let (name, budget, feeds) = (Q::NAME, Q::BUDGET, Q::FEEDS);
        Self { name, budget, share, process, place, about, feeds, object }
    }

    fn shown(&self) -> &str {
        if self.place.is_empty() { "what it examined" } else { &self.place }
    }

    fn lives(&self) -> bool {
        !self.process.is_over(Duration::ZERO)
    }
}

/// The helpers left behind that may still live.
#[derive(Debug, Default)]
pub(super) struct LeftBehind(Mutex<Vec<Left>>);

impl LeftBehind {
    /// None yet.
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Whether the budget is exhausted: no further helper is started.
    fn is_full(&self, budget: Budget) -> bool {
        self.hung(budget, &None).1 >= budget.hung_max()
    }

    /// Whether this thread's share is exhausted: it starts no further helper. Periodic questions are asked for the
    /// whole node.
    pub(super) fn is_used_up(&self, budget: Budget) -> bool {
        let (own, hung) = self.hung(budget, &share::own());
        match budget {
            Budget::Events => is_used_up(own, hung, budget.hung_max()),
            _ => hung >= budget.hung_max(),
        }
    }

    /// The same as a sentence, with the places where they hang.
    pub(super) fn why_used_up(&self, budget: Budget) -> Option<String> {
        if !self.is_used_up(budget) {
            return None;
        }
        let all = self.living();
        let hung = all.iter().filter(|left| left.budget == budget);
        let places: BTreeSet<&str> = hung.map(Left::shown).collect();
        let places: Vec<&str> = places.into_iter().collect();
        Some(format!("helper processes hang at {}", places.join(", ")))
    }

    /// Why no helper is sent with a question to a place where another hangs with the same question.
    pub(super) fn why_not_again(&self, name: &str, place: &OsStr) -> Option<String> {
        let step = format!("{place:?}");
        let is_there = |left: &&Left| {
            left.name == name && (left.place == step || left.about.as_os_str() == place)
        };
        let all = self.living();
        let left = all.iter().find(is_there)?;
        let (pid, place) = (left.process.id(), left.shown());
        Some(format!("helper process {pid} of podstuck hangs at {place}"))
    }

    /// How many hang for one share, and in all.
    fn hung(&self, budget: Budget, share: &Option<Share>) -> (usize, usize) {
        let all = self.living();
        let of_budget = || all.iter().filter(|left| left.budget == budget);
        (of_budget().filter(|left| left.share == *share).count(), of_budget().count())
    }

    /// Whether this one lives.
    pub(super) fn has(&self, pid: u32) -> bool {
        self.living().iter().any(|left| left.process.id() == pid)
    }

    /// Kills one, without waiting for its end, and remembers it.
    pub(super) fn leave(&self, left: Left) {
        left.process.kill();
        self.all().push(left);
    }

    /// Each living one, with the place that it holds; and what is not read because of them.
    pub(super) fn degraded(&self) -> Vec<Degraded> {
        let report = |left: &Left| {
            let (pid, place) = (left.process.id(), left.shown());
            let sentence = format!(
                "helper process {pid} of podstuck hangs at {place}, cannot be killed, and keeps that place \
                 busy until it answers"
            );
            let feeds = left.feeds.as_slice();
            Degraded { place: left.object.clone(), ..Degraded::new(sentence, feeds) }
        };
        let mut all: Vec<Degraded> = self.living().iter().map(report).collect();
        all.extend(Budget::ALL.into_iter().filter(|budget| self.is_full(*budget)).map(|budget| {
            let work = budget.work();
            let sentence =
                format!("podstuck starts no further helper to {work} until one that hangs returns");
            Degraded::new(sentence, budget.feeds())
        }));
        all
    }

    /// Forgets those that have ended.
    fn living(&self) -> MutexGuard<'_, Vec<Left>> {
        let mut all = self.all();
        all.retain(Left::lives);
        all
    }

    fn all(&self) -> MutexGuard<'_, Vec<Left>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;
    use crate::helper::{
        ask_for,
        testing::{Long, Short},
    };

    fn sleep() -> (Child, Left) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of_child(&child);
        (child, Left::new::<Short>(process, Some(&()), "/a\u{1b}b".into()))
    }

    #[test]
    fn those_that_live_count_and_the_dead_do_not() {
        let left = LeftBehind::new();
        let mut children = Vec::new();
        for _ in 0..Budget::Events.hung_max() {
            assert!(!left.is_full(Budget::Events));
            let (child, one) = sleep();
            // Not killed, as if that were impossible.
            left.all().push(one);
            children.push(child);
        }
        assert!(left.is_full(Budget::Events) && !left.is_full(Budget::Pods));
        let reports = left.degraded();
        assert_eq!(reports.len(), children.len() + 1);
        for (child, report) in children.iter().zip(&reports) {
            assert!(left.has(child.id()));
            let sentence = &report.sentence;
            assert!(sentence.contains(&format!(" {} ", child.id())), "{sentence}");
            assert!(sentence.contains("/a\\x1bb"), "{sentence}");
            assert_eq!(report.place.as_deref(), Some(Path::new("/a\u{1b}b")));
            assert_eq!(report.feeds, [Feed::Objects]);
        }
        assert!(reports.last().is_some_and(|all| all.place.is_none()), "{reports:?}");
        let all: Vec<_> = left.all().drain(..).collect();
        all.into_iter().for_each(|one| left.leave(one));
        for child in &mut children {
            child.wait().unwrap();
        }
        assert!(!left.is_full(Budget::Events) && left.degraded().is_empty());
    }

    #[test]
    fn hung_helpers_of_one_pod_leave_room_for_others() {
        let (left, mut children) = (LeftBehind::new(), Vec::new());
        let mut hang = |share: Share| {
            ask_for(share, || {
                let is_sent = !left.is_used_up(Budget::Events);
                if is_sent {
                    let (child, one) = sleep();
                    left.all().push(one);
                    children.push(child);
                }
                is_sent
            })
        };
        let pod = |uid: &str| Share::Pod(uid.into());
        let of_one = std::iter::repeat_with(|| hang(pod("a"))).take_while(|is_sent| *is_sent);
        assert_eq!(of_one.count(), 2);
        assert!(hang(pod("b")) && !hang(pod("b")) && !hang(pod("a")));
        assert!(hang(Share::Target(1)) && !left.is_used_up(Budget::Events), "the node's own");
        assert!(hang(pod("c")) && hang(pod("d")) && !hang(pod("e")));
        left.all().drain(..).for_each(|one| one.process.kill());
        for child in &mut children {
            child.wait().unwrap();
        }
    }

    #[test]
    fn a_step_says_best_where_it_is() {
        let (mut child, left) = sleep();
        child.kill().unwrap();
        child.wait().unwrap();
        let at = Left::new::<Long>(left.process, Some(&"/x".into()), "/y".into());
        assert_eq!(at.place, "\"/x\"");
    }
}
