//! Follows the chain of waits from an object to the object that has to be released first.

use std::collections::BTreeSet;

use super::{
    case::{Case, State, Step},
    judge_below,
};
use crate::model::{
    chain::{Link, Who},
    cluster::{Facts, Key},
    path::safe,
};

/// Maximal length of a chain; the longest known one is namespace, owner, its owner, claim, pod, node.
const DEEPEST: usize = 8;
/// Objects judged at each step; the best candidate is followed.
const TRIED: usize = 5;

/// The answer about an object.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The object itself.
    pub case: Case,
    /// The chain of objects that it waits for; the last one has to be released.
    pub below: Vec<Case>,
}

impl Answer {
    /// The object that has to be released first.
    pub fn leaf(&self) -> &Case {
        self.below.last().unwrap_or(&self.case)
    }

    /// All objects of the chain, the object itself first.
    pub fn cases(&self) -> impl Iterator<Item = &Case> {
        std::iter::once(&self.case).chain(&self.below)
    }

    /// The chain as links, for output.
    pub fn links(&self) -> Vec<Link> {
        let cases: Vec<&Case> = self.cases().collect();
        let next = |at: usize| cases.get(at + 1).map(|case| show(&case.key));
        let link = |(at, case): (usize, &&Case)| {
            let first = case.first()?;
            let waits_for = next(at).or_else(|| first.held_by.as_ref().map(Who::to_string));
            let evidence = first.evidence.first()?;
            let (fact, source) = (evidence.fact.clone(), evidence.source.to_string());
            let link = Link::new(Who::object(show(&case.key)), "be removed", fact, source);
            let explained_by = Some(first.id);
            Some(Link { waits_for, since: case.requested, explained_by, ..link })
        };
        cases.iter().enumerate().filter_map(link).collect()
    }
}

fn show(key: &Key) -> String {
    safe(key.to_string().as_bytes()).into_owned()
}

/// Judges an object and the chain of objects that it waits for.
pub fn answer(key: &Key, facts: &Facts) -> Answer {
    let mut above = BTreeSet::from([key.clone()]);
    let case = judge_below(key, facts, &BTreeSet::new());
    let mut below: Vec<Case> = Vec::new();
    while below.len() < DEEPEST {
        let last = below.last().unwrap_or(&case);
        let next = last.waits_for.iter().take(TRIED);
        let judged = next.map(|next| judge_below(next, facts, &above));
        // An object that is not being deleted waits for nothing; one within its grace period is the last choice.
        let rank = |case: &Case| match (case.state, case.step) {
            (State::Overdue, _) if !case.findings.is_empty() || case.examine.is_some() => 0,
            (State::InTime, Some(Step::Grace)) => 2,
            _ => 1,
        };
        let led = judged.filter(|case| matches!(case.state, State::Overdue | State::InTime));
        let Some(next) = led.min_by_key(rank) else { break };
        above.insert(next.key.clone());
        below.push(next);
    }
    Answer { case, below }
}
