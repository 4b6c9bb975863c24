//! From an object along what it waits for to the one that keeps all of them.

use std::collections::BTreeSet;

use super::{
    case::{Case, State, Step},
    judge_below,
};
use crate::model::{
    chain::Link,
    cluster::{Facts, Key},
    path::safe,
};

/// The longest way that there is: namespace, owner, its owner, claim, pod, node.
const DEEPEST: usize = 8;
/// How many of the objects that one waits for are looked at: the first of them that is kept by something is followed.
const TRIED: usize = 5;

/// What is said about an object.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The object itself.
    pub case: Case,
    /// What it waits for, one after the other; the last one is what has to be released.
    pub below: Vec<Case>,
}

impl Answer {
    /// What has to be released first.
    pub fn leaf(&self) -> &Case {
        self.below.last().unwrap_or(&self.case)
    }

    /// All of them, the object itself first.
    pub fn cases(&self) -> impl Iterator<Item = &Case> {
        std::iter::once(&self.case).chain(&self.below)
    }

    /// Who waits for whom.
    pub fn links(&self) -> Vec<Link> {
        let cases: Vec<&Case> = self.cases().collect();
        let next = |at: usize| cases.get(at + 1).map(|case| show(&case.key));
        let link = |(at, case): (usize, &&Case)| {
            let first = case.first()?;
            let waits_for = next(at).or_else(|| first.held_by.clone());
            let evidence = first.evidence.first()?;
            Some(Link {
                who: show(&case.key),
                must: "be removed".into(),
                waits_for,
                since: case.requested,
                fact: evidence.fact.clone(),
                source: evidence.source.to_string(),
            })
        };
        cases.iter().enumerate().filter_map(link).collect()
    }
}

fn show(key: &Key) -> String {
    safe(key.to_string().as_bytes()).into_owned()
}

/// What keeps an object, down to the leaf.
pub fn answer(key: &Key, facts: &Facts) -> Answer {
    let mut above = BTreeSet::from([key.clone()]);
    let case = judge_below(key, facts, &BTreeSet::new());
    let mut below: Vec<Case> = Vec::new();
    while below.len() < DEEPEST {
        let last = below.last().unwrap_or(&case);
        let next = last.waits_for.iter().take(TRIED);
        let judged = next.map(|next| judge_below(next, facts, &above));
        // One that is not being deleted waits for nothing; one that is within its grace is the last to explain anything.
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
