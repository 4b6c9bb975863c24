//! Counts of deletions, rates and failures by pod, volume or process.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    heat::{Counted, Heat},
    labels::{pod_label, volume_label},
};
use podstuck_model::{
    call::Call,
    errno::Errno,
    event::Count,
    identity::{Actor, Target},
    operation::Operation,
    path::safe,
};

/// Limit of rows in each grouping; beyond it, the most recently counted stay separate.
const ROWS: usize = 1_024;
/// Limit of names remembered.
const NAMES: usize = 4_096;
/// Limit of counts that wait for the name of their target, which arrives separately.
const WAITING: usize = 4_096;
/// How long they wait, in drains.
const PATIENCE: u64 = 3;

/// The grouping of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Group {
    #[default]
    Pods,
    Volumes,
    Processes,
}

impl Group {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Volumes => "volumes",
            Self::Processes => "processes",
        }
    }

    pub(super) const fn next(self) -> Self {
        match self {
            Self::Pods => Self::Volumes,
            Self::Volumes => Self::Processes,
            Self::Processes => Self::Pods,
        }
    }
}

/// The sort key of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Rate,
    Failed,
    P99,
    Name,
}

impl Sort {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rate => "deletions per second",
            Self::Failed => "failures",
            Self::P99 => "p99",
            Self::Name => "name",
        }
    }

    pub(super) const fn next(self) -> Self {
        match self {
            Self::Rate => Self::Failed,
            Self::Failed => Self::P99,
            Self::P99 => Self::Name,
            Self::Name => Self::Rate,
        }
    }
}

type Rows = BTreeMap<String, Heat>;

/// All rows of all groupings. Labels are escaped already.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    /// The sum of all.
    pub(super) all: Heat,
    rows: [Rows; 3],
    targets: HashMap<u64, Arc<Target>>,
    processes: HashMap<u32, (Option<u64>, String)>,
    waiting: Vec<(u64, Count)>,
    drains: u64,
}

impl Rates {
    /// Notes a target's name.
    pub(super) fn name(&mut self, id: u64, target: &Arc<Target>) {
        if self.targets.len() >= NAMES {
            self.targets.clear();
        }
        self.targets.insert(id, target.clone());
    }

    /// Notes a process's name from a call that was reported individually.
    pub(super) fn note(&mut self, op: &Operation) {
        let Actor { pid, started, comm, .. } = &*op.actor;
        if self.processes.len() >= NAMES {
            self.processes.clear();
        }
        self.processes.insert(*pid, (*started, comm.clone()));
    }

    /// Takes the counts of a drain, in this second of the run.
    pub(super) fn add(&mut self, second: u64, counts: &[Count]) {
        self.drains += 1;
        let known = |it: &Self, id| id == 0 || it.targets.contains_key(&id);
        let waited = std::mem::take(&mut self.waiting);
        for (since, count) in waited {
            if known(self, count.target_id) || second.saturating_sub(since) >= PATIENCE {
                self.count(since, &count);
            } else {
                self.waiting.push((since, count));
            }
        }
        for count in counts {
            let counted = counted(second, count);
            self.all.add(&counted);
            let process = self.process(count);
            add(&mut self.rows[2], process, &counted);
            if known(self, count.target_id) || self.waiting.len() >= WAITING {
                self.count(second, count);
            } else {
                self.waiting.push((second, *count));
            }
        }
    }

    /// By pod and volume.
    fn count(&mut self, second: u64, count: &Count) {
        let counted = counted(second, count);
        let target = self.targets.get(&count.target_id);
        let (pod, volume) = match target {
            Some(target) => (pod_label(target), volume_label(target)),
            None if count.target_id == 0 => ("(no target)".into(), "(no target)".into()),
            None => ("(not named)".into(), "(not named)".into()),
        };
        add(&mut self.rows[0], pod, &counted);
        add(&mut self.rows[1], volume, &counted);
    }

    fn process(&self, count: &Count) -> String {
        let known = self.processes.get(&count.pid).filter(|(started, _)| {
            started.zip(count.started).is_none_or(|(known, counted)| known == counted)
        });
        match known {
            Some((_, comm)) => format!("{} (pid {})", safe(comm.as_bytes()), count.pid),
            None => format!("{} (pid {})", count.component.name(), count.pid),
        }
    }

    /// The rows of a grouping whose names contain `filter`, sorted.
    pub(super) fn rows(
        &self,
        group: Group,
        sort: Sort,
        filter: &str,
        now: u64,
    ) -> Vec<(&str, &Heat)> {
        let rows = &self.rows[group as usize];
        let fits = |name: &str| filter.is_empty() || name.to_lowercase().contains(filter);
        let mut rows: Vec<(&str, &Heat)> = rows
            .iter()
            .map(|(name, heat)| (name.as_str(), heat))
            .filter(|row| fits(row.0))
            .collect();
        // Stable: equal ones stay in the order of their names.
        match sort {
            Sort::Rate => rows.sort_by(|a, b| {
                b.1.rate(now).total_cmp(&a.1.rate(now)).then(b.1.deleted.cmp(&a.1.deleted))
            }),
            Sort::Failed => rows.sort_by_key(|row| std::cmp::Reverse(row.1.failed)),
            Sort::P99 => rows.sort_by_key(|row| std::cmp::Reverse(row.1.quantile(0.99))),
            Sort::Name => {}
        }
        rows
    }
}

fn counted(second: u64, count: &Count) -> Counted {
    let benign = [Errno::EISDIR, Errno::ENOENT].iter().any(|errno| count.outcome.is(*errno));
    let is_ok = count.outcome.errno().is_none();
    Counted {
        second,
        bucket: count.bucket,
        totals: count.totals(),
        is_deleted: is_ok && count.call != Call::Umount2,
        is_failed: !is_ok && !benign,
    }
}

fn add(rows: &mut Rows, name: String, counted: &Counted) {
    rows.entry(name).or_default().add(counted);
    if rows.len() <= ROWS {
        return;
    }
    let mut oldest: Vec<(u64, String)> =
        rows.iter().map(|(name, heat)| (heat.last(), name.clone())).collect();
    oldest.sort_unstable();
    let mut others = rows.remove("(others)").unwrap_or_default();
    for (_, name) in oldest.into_iter().take(ROWS / 4) {
        if let Some(heat) = rows.remove(&name) {
            others.merge(&heat);
        }
    }
    rows.insert("(others)".into(), others);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::present::sample;
    use podstuck_model::call::Outcome;
    use podstuck_testing::samples;

    fn count(target_id: u64, pid: u32, errno: u16, calls: u64) -> Count {
        let count = samples::count(Call::Unlinkat, Outcome(errno), calls);
        Count { target_id, pid, bucket: 20, total_ns: calls * 1_000, ..count }
    }

    fn target() -> Arc<Target> {
        Arc::new(Target { pod: Some(sample::pod()), ..Target::unknown() })
    }

    #[test]
    fn counts_wait_for_the_name_of_their_target_and_keep_their_second() {
        let mut rates = Rates::default();
        rates.add(1, &[count(7, 1, 0, 5)]);
        assert!(rates.rows(Group::Pods, Sort::Rate, "", 1).is_empty());
        assert_eq!(rates.all.deleted, 5);
        rates.name(7, &target());
        rates.add(2, &[]);
        let rows = rates.rows(Group::Pods, Sort::Rate, "", 2);
        assert_eq!((rows[0].0, rows[0].1.deleted, rows[0].1.last()), ("shop/cart-0", 5, 1));
    }

    #[test]
    fn a_target_without_a_name_is_counted_all_the_same() {
        let mut rates = Rates::default();
        rates.add(1, &[count(7, 1, 16, 5), count(0, 1, 21, 2)]);
        (2..9).for_each(|second| rates.add(second, &[]));
        let rows = rates.rows(Group::Volumes, Sort::Failed, "", 9);
        let seen: Vec<_> = rows.iter().map(|(name, heat)| (*name, heat.failed)).collect();
        assert_eq!(seen, [("(not named)", 5), ("(no target)", 0)]);
        assert_eq!(rates.rows(Group::Processes, Sort::Name, "", 9)[0].0, "kubelet (pid 1)");
    }

    #[test]
    fn rows_are_bounded_filtered_and_sorted() {
        let mut rates = Rates::default();
        for pid in 1..5_000 {
            rates.add(u64::from(pid), &[count(0, pid, 0, u64::from(pid))]);
        }
        let rows = rates.rows(Group::Processes, Sort::Rate, "", 4_999);
        assert!(rows.len() <= ROWS + 1);
        assert_eq!(rows[0].0, "kubelet (pid 4999)");
        let all: u64 = rows.iter().map(|row| row.1.deleted).sum();
        assert_eq!(all, rates.all.deleted);
        assert_eq!(rates.rows(Group::Processes, Sort::Name, "pid 4998", 4_999).len(), 1);
    }
}
