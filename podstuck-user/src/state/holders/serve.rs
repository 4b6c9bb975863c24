//! The helper's side: takes the snapshot and tells every holder as soon as it is found.
//!
//! What can vanish comes first: the descriptors are read even before the question. Then what is
//! answered from memory, then, step by step, what may wait for ever. Each step is told before it is
//! begun, so that whoever waits knows where it hangs and can go on behind it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufRead, Write},
    os::unix::process::parent_id,
    path::Path,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{
    Question,
    descriptors::{self, Descriptor},
    kernel_users, people, pinned,
    process::{self, look, target},
    relation::{Wanted, descendants},
    subject::find,
};
use crate::{
    model::{
        holder::{Holder, How, Subject, Through},
        path::JsonPath,
    },
    state::{mounts::NodeMounts, namespaces},
};

/// What may wait for a dead file system or a process's lock, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Step {
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

/// Processes that are looked at before the next one is told, while nothing hangs.
const TOLD_TOGETHER: usize = 64;

impl Step {
    /// Whether others are taken after it without being told.
    pub(super) fn is_one_of_many(self) -> bool {
        matches!(self, Self::Links(_) | Self::Maps(_))
    }
}

/// What the helper tells, one JSON object a line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Line {
    At(Step),
    Subject(Subject),
    /// There is no such thing, and why it is believed.
    Unknown(String),
    Holder(Box<Holder>),
    Done {
        processes: usize,
        namespaces: usize,
        mounts: usize,
        /// Namespaces without a process that could not be entered.
        unread: usize,
    },
}

/// One question from standard input, lines to standard output.
pub fn serve() -> Result<()> {
    // The tool itself and its helper are no culprits.
    let descriptors = descriptors::all(&[std::process::id(), parent_id()]);
    let mut text = String::new();
    io::stdin().lock().read_line(&mut text).context("reading the question")?;
    let question: Question = serde_json::from_str(&text).context("understanding the question")?;
    Snapshot { question, descriptors, out: io::stdout().lock() }.take()
}

struct Snapshot<W> {
    question: Question,
    descriptors: Vec<Descriptor>,
    out: W,
}

impl<W: Write> Snapshot<W> {
    fn take(&mut self) -> Result<()> {
        let mut node = NodeMounts::read();
        let mut unread = 0;
        if self.begin(Step::Pinned)? {
            unread = pinned::add_tables(&mut node, &self.descriptors);
        }
        self.say(&Line::At(Step::Subject))?;
        let (subject, wanted) = match find(&self.question.about, &node) {
            Ok(found) => found,
            Err(why) => return self.say(&Line::Unknown(why)),
        };
        self.say(&Line::Subject(subject))?;
        if self.question.from.is_none_or(|from| from == Step::Pinned) {
            self.hold(mounts(&wanted, &node))?;
            self.hold(open_files(&self.descriptors, &wanted))?;
        }
        let pids = self.processes();
        for (at, pid) in pids.iter().enumerate() {
            if self.begin_one_of_many(Step::Links(*pid), at)? {
                self.hold(process::links(*pid, &wanted))?;
            } else if self.question.hung.last() == Some(&Step::Links(*pid)) {
                self.hold(process::by_text(*pid, &wanted))?;
            }
        }
        self.detached(&wanted)?;
        for (at, pid) in pids.iter().enumerate() {
            if self.begin_one_of_many(Step::Maps(*pid), at)? {
                self.hold(process::maps(*pid, &wanted))?;
            }
        }
        if self.begin(Step::Kernel)? {
            self.hold(kernel_users::all(&node, &wanted))?;
        }
        let (namespaces, mounts) = (node.tables.len(), node.count());
        self.say(&Line::Done { processes: pids.len(), namespaces, mounts, unread })
    }

    fn processes(&self) -> Vec<u32> {
        let own = [std::process::id(), parent_id()];
        namespaces::processes().into_iter().filter(|pid| !own.contains(pid)).collect()
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
        self.say(&Line::At(step))?;
        Ok(true)
    }

    /// The same for one of thousands of steps: to tell each would cost more than to take it, so that
    /// is done only once it is known that one of them hangs.
    fn begin_one_of_many(&mut self, step: Step, at: usize) -> Result<bool> {
        let tell = at.is_multiple_of(TOLD_TOGETHER);
        if tell || self.question.from.is_some() { self.begin(step) } else { Ok(true) }
    }

    /// Descriptors on mounts that are in no table: one of each mount is looked at.
    fn detached(&mut self, wanted: &Wanted) -> Result<()> {
        let unknown: BTreeMap<u32, Descriptor> = self
            .descriptors
            .iter()
            .filter(|open| wanted.is_unknown(open.mount))
            .map(|open| (open.mount, *open))
            .collect();
        for (mount, open) in unknown {
            let link = format!("/proc/{}/fd/{}", open.pid, open.fd);
            // Sockets and the like are written `socket:[1]`.
            if !target(&link).0.is_absolute() || !self.begin(Step::Detached(mount))? {
                continue;
            }
            if let Some((mount, device, _)) = look(Path::new(&link))
                && device == wanted.device
            {
                let on_it = self.descriptors.iter().filter(|open| open.mount == mount);
                let held = group(on_it, |open| wanted.hit(open.mount, Some(device), open.inode));
                self.hold(held)?;
            }
        }
        Ok(())
    }

    fn hold(&mut self, holders: Vec<Holder>) -> Result<()> {
        holders.into_iter().try_for_each(|holder| self.say(&Line::Holder(Box::new(holder))))
    }

    fn say(&mut self, line: &Line) -> Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        // Whoever waits must see it although the next step may hang.
        self.out.write_all(&text)?;
        Ok(self.out.flush()?)
    }
}

/// Mounts that hold: those on it, and other ones of its file system.
fn mounts(wanted: &Wanted, node: &NodeMounts) -> Vec<Holder> {
    let mut found = Vec::new();
    if wanted.inode.is_some() {
        return found;
    }
    if let Some((namespace, id)) = wanted.mount
        && let (Some(table), Some(seat)) = (node.tables.get(&namespace), wanted.seats.get(&id))
    {
        for nested in descendants(table, id) {
            let object = JsonPath(nested.point.clone());
            let source = format!("{}: {}", table.source, nested.describe());
            found.push(people::kernel(How::NestedMount, seat.hit(id), object, source));
        }
    }
    let device = wanted.mount.is_none();
    // One for each namespace. In the order of their ids, which is that of mounting.
    let mut others: BTreeMap<(u32, Through), Holder> = BTreeMap::new();
    for id in wanted.seats.keys().copied().collect::<BTreeSet<u32>>() {
        let Some(seat) = wanted.seats.get(&id) else { continue };
        let goes_along = seat.through != Through::OtherMount && seat.blocks == Some(true);
        let Some(table) = node.tables.get(&seat.namespace) else { continue };
        if goes_along && !device {
            continue;
        }
        if let Some(known) = others.get_mut(&(seat.namespace, seat.through)) {
            known.count += 1;
            continue;
        }
        let object = JsonPath(seat.point.clone());
        let source = table.source.clone();
        let holder = match seat.pid {
            0 => people::kernel(How::Mount, seat.hit(id), object, source),
            pid => people::process(pid, How::Mount, seat.hit(id), object, source),
        };
        others.insert((seat.namespace, seat.through), holder);
    }
    found.extend(others.into_values());
    found
}

fn open_files(descriptors: &[Descriptor], wanted: &Wanted) -> Vec<Holder> {
    group(descriptors.iter(), |open| match (wanted.inode, open.inode) {
        // Before Linux 5.14 the descriptor does not tell the file.
        (Some(_), None) if wanted.seats.contains_key(&open.mount) => {
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
