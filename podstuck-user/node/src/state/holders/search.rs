//! The helper's side: takes the snapshot and tells every holder as soon as it is found.
//!
//! What can vanish comes first: the descriptors. Then what is answered from memory, then, step by
//! step, what may wait for ever. Each step is announced before it begins, so that the caller knows
//! where it hangs and can continue after it.

use std::{
    cell::LazyCell,
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{
    descriptors::{self, Descriptor},
    detached, kernel_users, own, people, pinned,
    process::{self, look, target},
    relation::{Node, Wanted, descendants},
    subject::find,
};
use crate::state::mounts;
use podstuck_confine::{
    helper::{Budget, Question, Teller},
    proc,
    role::Role,
    silent,
};
use podstuck_model::{
    holder::{About, Holder, How, Subject, Through},
    mounts::NodeMounts,
    path::JsonPath,
};

/// Searches for the holders of one or several objects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::state) struct FindHolders {
    pub(super) about: Vec<About>,
    /// Processes that do not answer.
    pub(super) silent: Vec<u32>,
    /// Where helpers before it have hung.
    pub(super) hung: Vec<Step>,
    /// The step to continue at; each one from here on is announced.
    pub(super) from: Option<Step>,
    /// Where helpers of earlier snapshots still hang.
    pub(super) avoided: Vec<Step>,
}

/// What may wait for a dead file system or a process's lock, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in crate::state) enum Step {
    /// Namespaces without a process.
    Pinned,
    /// The object that was asked about.
    Subject,
    /// Working directory, root and program of a process.
    Links(u32),
    /// A mount that is in no table.
    Detached(u32),
    /// Mapped files of a process.
    Maps(u32),
    /// Swap files and the like.
    Kernel,
}

/// Number of processes per announcement, while nothing hangs.
const ANNOUNCED_TOGETHER: usize = 64;

impl Step {
    /// Whether further steps follow it without an announcement.
    pub(super) fn is_one_of_many(self) -> bool {
        matches!(self, Self::Links(_) | Self::Maps(_))
    }
}

/// A part of the answer, sent as soon as it is found, each about one of the objects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::state) enum Part {
    /// What was asked about; or why it is believed that there is no such thing.
    Subject(usize, Result<Subject, String>),
    Holder(usize, Box<Holder>),
    /// A step that was left out.
    Avoided(Step),
}

/// How much was looked at.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(in crate::state) struct Extent {
    pub(super) processes: usize,
    pub(super) namespaces: usize,
    pub(super) mounts: usize,
    /// Namespaces without a process that could not be entered.
    pub(super) unread: usize,
}

impl Question for FindHolders {
    const ROLE: Role = Role::HelperInside;
    const BUDGET: Budget = Budget::Holders;
    type Step = Step;
    type Part = Part;
    type Answer = Extent;

    fn answer(self, tell: &mut Teller<Step, Part>) -> Result<Extent> {
        silent::know(&self.silent);
        let descriptors = descriptors::all(&own::processes());
        Search { question: self, descriptors, tell }.run()
    }
}

struct Search<'a> {
    question: FindHolders,
    descriptors: Vec<Descriptor>,
    tell: &'a mut Teller<Step, Part>,
}

impl Search<'_> {
    fn run(&mut self) -> Result<Extent> {
        let mut node = mounts::read_all();
        let mut unread = 0;
        if self.begin(Step::Pinned)? {
            unread = pinned::add_tables(&mut node, &self.descriptors);
        }
        let node = Node::from(node);
        let all = self.subjects(&node)?;
        if all.is_empty() {
            return Ok(Extent::default());
        }
        if self.question.from.is_none_or(|from| from == Step::Pinned) {
            for (at, wanted) in &all {
                self.hold(*at, mounts(wanted, &node))?;
                self.hold(*at, open_files(&self.descriptors, wanted))?;
            }
        }
        let pids = self.processes();
        for (at, pid) in pids.iter().enumerate() {
            if self.begin_one_of_many(Step::Links(*pid), at)? {
                self.hold_each(process::links(*pid, &all))?;
            } else if self.question.is_stuck_at(Step::Links(*pid)) {
                self.hold_each(process::by_text(*pid, &all))?;
            }
        }
        self.detached(&all)?;
        for (at, pid) in pids.iter().enumerate() {
            if self.begin_one_of_many(Step::Maps(*pid), at)? {
                self.hold_each(process::maps(*pid, &all))?;
            }
        }
        if self.begin(Step::Kernel)? {
            self.hold_each(kernel_users::all(&node, &all))?;
        }
        let (namespaces, mounts) = (node.tables.len(), node.count());
        Ok(Extent { processes: pids.len(), namespaces, mounts, unread })
    }

    /// The objects of the question that exist, each with its position in the question.
    fn subjects(&mut self, node: &Node) -> Result<Vec<(usize, Wanted)>> {
        let mut all = Vec::new();
        for (at, about) in self.question.about.iter().enumerate() {
            self.tell.at(&Step::Subject)?;
            let subject = match find(about, node) {
                Ok((subject, wanted)) => {
                    all.push((at, wanted));
                    Ok(subject)
                }
                Err(why) => Err(why),
            };
            self.tell.part(&Part::Subject(at, subject))?;
        }
        Ok(all)
    }

    fn processes(&self) -> Vec<u32> {
        let own = own::processes();
        let silent = &self.question.silent;
        let answers = |pid: &u32| !own.contains(pid) && !silent.contains(pid);
        proc::processes().into_iter().filter(answers).collect()
    }

    /// Tells a step; whether to take it, or it is behind those that an earlier helper took.
    fn begin(&mut self, step: Step) -> Result<bool> {
        if self.question.hung.last().is_some_and(|hung| step <= *hung) {
            // Only what finds more mounts is done again, unless it was that which hung.
            return Ok(step == Step::Pinned && self.question.hung.first() != Some(&step));
        }
        if self.question.from.is_some_and(|from| step < from) {
            return Ok(step == Step::Pinned);
        }
        if self.question.avoided.contains(&step) {
            self.tell.part(&Part::Avoided(step))?;
            return Ok(false);
        }
        self.tell.at(&step)?;
        Ok(true)
    }

    /// The same for one of thousands of steps: to tell each would cost more than to take it, so that
    /// is done only once it is known that one of them hangs.
    fn begin_one_of_many(&mut self, step: Step, at: usize) -> Result<bool> {
        let tell = at.is_multiple_of(ANNOUNCED_TOGETHER)
            || self.question.from.is_some()
            || self.question.avoided.contains(&step);
        if tell { self.begin(step) } else { Ok(true) }
    }

    /// Descriptors on mounts that are in no table: one of each mount is looked at.
    fn detached(&mut self, all: &[(usize, Wanted)]) -> Result<()> {
        let Some((_, any)) = all.first() else { return Ok(()) };
        let unknown: BTreeMap<u32, Descriptor> = self
            .descriptors
            .iter()
            .filter(|open| any.is_unknown(open.mount))
            .map(|open| (open.mount, *open))
            .collect();
        for (mount, open) in unknown {
            let link = format!("/proc/{}/fd/{}", open.pid, open.fd);
            // Sockets and the like are written `socket:[1]`.
            if !target(&link).0.is_absolute() || !self.begin(Step::Detached(mount))? {
                continue;
            }
            let Some((mount, device, _)) = look(Path::new(&link)) else { continue };
            let named = LazyCell::new(|| detached::seen_through(Path::new(&link), mount));
            for (at, wanted) in all.iter().filter(|(_, wanted)| wanted.device == device) {
                let on_it = self.descriptors.iter().filter(|open| open.mount == mount);
                let held = group(on_it, |open| {
                    let mut hit = wanted.hit(open.mount, Some(device), open.inode)?;
                    hit.mount.detached = Some((*named).clone());
                    Some(hit)
                });
                self.hold(*at, held)?;
            }
        }
        Ok(())
    }

    fn hold(&mut self, at: usize, holders: Vec<Holder>) -> Result<()> {
        self.hold_each(holders.into_iter().map(|holder| (at, holder)).collect())
    }

    fn hold_each(&mut self, holders: Vec<(usize, Holder)>) -> Result<()> {
        let mut parts = holders.into_iter().map(|(at, it)| Part::Holder(at, Box::new(it)));
        parts.try_for_each(|part| self.tell.part(&part))
    }
}

impl FindHolders {
    /// Whether the last helper hung there, or an earlier one still does.
    fn is_stuck_at(&self, step: Step) -> bool {
        self.hung.last() == Some(&step) || self.avoided.contains(&step)
    }
}

/// Mounts that hold: those on it, and other ones of its file system.
fn mounts(wanted: &Wanted, node: &NodeMounts) -> Vec<Holder> {
    let mut found = Vec::new();
    if wanted.inode.is_some() {
        return found;
    }
    if let Some((namespace, id)) = wanted.mount
        && let (Some(table), Some(found_on)) =
            (node.tables.get(&namespace), wanted.relevant.get(&id))
    {
        for nested in descendants(table, id) {
            let object = JsonPath(nested.point.clone());
            let source = format!("{}: {}", table.source, nested.describe());
            let holder = people::kernel(How::NestedMount, found_on.hit(id), object, source);
            found.push(Holder { nested: Some(nested.id), ..holder });
        }
    }
    let device = wanted.mount.is_none();
    // One for each namespace. In the order of their ids, which is that of mounting.
    let mut others: BTreeMap<(u32, Through), Holder> = BTreeMap::new();
    for id in wanted.relevant.keys().copied().collect::<BTreeSet<u32>>() {
        let Some(found_on) = wanted.relevant.get(&id) else { continue };
        let goes_along = found_on.through != Through::OtherMount && found_on.blocks == Some(true);
        let Some(table) = node.tables.get(&found_on.namespace) else { continue };
        if goes_along && !device {
            continue;
        }
        if let Some(known) = others.get_mut(&(found_on.namespace, found_on.through)) {
            known.count += 1;
            continue;
        }
        let object = JsonPath(found_on.point.clone());
        let source = table.source.clone();
        let holder = match found_on.pid {
            0 => people::kernel(How::Mount, found_on.hit(id), object, source),
            pid => people::process(pid, How::Mount, found_on.hit(id), object, source),
        };
        others.insert((found_on.namespace, found_on.through), holder);
    }
    found.extend(others.into_values());
    found
}

fn open_files(descriptors: &[Descriptor], wanted: &Wanted) -> Vec<Holder> {
    group(descriptors.iter(), |open| match (wanted.inode, open.inode) {
        // Before Linux 5.14 the descriptor does not tell the file.
        (Some(_), None) if wanted.relevant.contains_key(&open.mount) => {
            let link = format!("/proc/{}/fd/{}", open.pid, open.fd);
            let (mount, device, inode) = look(Path::new(&link))?;
            wanted.hit(mount, Some(device), Some(inode))
        }
        _ => wanted.hit(open.mount, None, open.inode),
    })
}

/// One holder for each process and mount.
fn group<'a>(
    descriptors: impl Iterator<Item = &'a Descriptor>,
    hit: impl Fn(&Descriptor) -> Option<super::relation::Hit>,
) -> Vec<Holder> {
    let mut found: BTreeMap<(u32, u32), Holder> = BTreeMap::new();
    for open in descriptors {
        let Some(hit) = hit(open) else { continue };
        if let Some(known) = found.get_mut(&(open.pid, open.mount)) {
            known.count += 1;
            continue;
        }
        let object = target(&format!("/proc/{}/fd/{}", open.pid, open.fd));
        let source = format!("/proc/{}/fdinfo/{}", open.pid, open.fd);
        let holder = people::process(open.pid, How::Fd, hit, object, source);
        found.insert((open.pid, open.mount), holder);
    }
    found.into_values().collect()
}
