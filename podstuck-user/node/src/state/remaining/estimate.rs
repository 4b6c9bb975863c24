//! How many entries a tree has, from some of its directories.
//!
//! First the directories near the top, and those that are large by what `statx` says of them, are read:
//! what few directories hold must not be left to chance. Those not read by then are sampled without
//! replacement, in strata of directories that look alike (stratified sampling, half of the draws by
//! Neyman's allocation), and what is below one that is drawn is counted, or estimated by Knuth's random
//! descent where it is deep. The variance follows from how much the draws of a stratum differ.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use fastrand::Rng;

use super::{
    stratum::Stratum,
    tree::{Class, Listing, Shape, Tree},
};

/// The part of the budget that may go into what is large.
const FOR_LARGE: f64 = 0.4;
/// Directories read below one that is drawn, before single paths are followed.
const ALLOWANCE: usize = 16;
/// Children that are looked at before the others are taken to be like them.
const PILOT: usize = 16;
/// Levels of the tree whose directories are all looked at, if there are not too many.
const TOP_LEVELS: usize = 2;
const TOP_CHILDREN: usize = 2048;

/// What was found out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Found {
    /// Entries seen.
    pub(super) seen: u64,
    /// Those were all.
    pub(super) complete: bool,
    /// Entries, as estimated.
    pub(super) entries: f64,
    /// The standard error of that.
    pub(super) error: f64,
    /// Directories read.
    pub(super) directories: u64,
    /// Levels at which directories were read.
    pub(super) levels: usize,
}

/// Directories that look alike, by their level and what they look like.
type Strata<D> = BTreeMap<(usize, Class), Stratum<(D, usize)>>;

/// Looks at a tree until the budget is used up.
pub(super) fn estimate<T: Tree>(tree: &mut T, top: T::Directory, rng: &mut Rng) -> Found {
    let mut look = Look { tree, rng, found: Found { complete: true, ..Found::default() } };
    let mut strata = look.read_large(top);
    look.draw(&mut strata);
    look.add_up(&strata);
    look.found
}

/// What was found in and below a directory that was drawn.
enum Counted {
    ToTheEnd(f64),
    /// The budget ended before.
    AtLeast(f64),
}

struct Look<'a, T> {
    tree: &'a mut T,
    rng: &'a mut Rng,
    found: Found,
}

impl<T: Tree> Look<'_, T> {
    /// Reads what is large, and puts what is not read into strata.
    fn read_large(&mut self, top: T::Directory) -> Strata<T::Directory> {
        let mut strata = Strata::new();
        let mut nodes = vec![(Some(top), 0)];
        let mut large = BinaryHeap::from([(Reverse(0), Reverse(0), Class::default())]);
        while let Some((_, Reverse(index), class)) = large.pop() {
            let Some((node, level)) = nodes.get_mut(index) else { break };
            let (Some(directory), level) = (node.take(), *level) else { break };
            if index > 0 && self.tree.spent() >= FOR_LARGE {
                strata.entry((level, class)).or_default().add((directory, level), 1.0);
                continue;
            }
            let listing = self.read(&directory, level);
            self.found.entries += listing.entries;
            self.found.error = self.found.error.hypot(listing.error);
            let (scale, level) = (listing.each_stands_for, level + 1);
            for (directory, shape) in self.shapes(listing.directories, level) {
                // One that stands for many is no certainty.
                if shape.is_large() && scale <= 1.0 {
                    let class = shape.class();
                    large.push((Reverse(class.rank(level)), Reverse(nodes.len()), class));
                    nodes.push((Some(directory), level));
                } else {
                    let stratum = strata.entry((level, shape.class())).or_default();
                    stratum.add((directory, level), scale);
                }
            }
        }
        strata
    }

    /// What the directories of one directory look like. Where a few that are drawn are all alike, the
    /// others are not looked at, but near the top.
    fn shapes(&mut self, mut all: Vec<T::Directory>, level: usize) -> Vec<(T::Directory, Shape)> {
        self.rng.shuffle(&mut all);
        let in_full = level <= TOP_LEVELS && all.len() <= TOP_CHILDREN;
        let (mut last, mut alike) = (None::<Shape>, true);
        let mut shapes = Vec::with_capacity(all.len());
        for directory in all {
            let is_like_them = alike && !in_full && shapes.len() >= PILOT;
            let shape = match last {
                Some(last) if is_like_them || self.tree.spent() >= FOR_LARGE => last,
                _ => self.tree.shape(&directory),
            };
            alike &= last.is_none_or(|last| last.class() == shape.class());
            last = Some(shape);
            shapes.push((directory, shape));
        }
        shapes
    }

    /// Draws from that stratum which makes most of the error, and in turn from that which was drawn
    /// from least: whose first draws were alike by chance would never be drawn from again.
    fn draw(&mut self, strata: &mut Strata<T::Directory>) {
        for round in 0_u64.. {
            if self.tree.spent() >= 1.0 {
                break;
            }
            let open = strata.values_mut().filter(|stratum| !stratum.is_exhausted());
            let next = if round % 2 == 0 {
                open.max_by(|a, b| a.gain().total_cmp(&b.gain()))
            } else {
                open.max_by(|a, b| a.undrawn().total_cmp(&b.undrawn()))
            };
            let Some(stratum) = next else { break };
            let Some(((directory, level), scale)) = stratum.draw(self.rng) else { break };
            match self.descend(directory, level) {
                Counted::ToTheEnd(entries) => stratum.note(scale * entries),
                Counted::AtLeast(entries) => stratum.note_part(scale * entries),
            }
        }
    }

    /// Entries in and below a directory.
    fn descend(&mut self, top: T::Directory, level: usize) -> Counted {
        let mut entries = 0.0;
        let mut todo = vec![(top, level, 1.0, ALLOWANCE)];
        while let Some((directory, level, scale, allowance)) = todo.pop() {
            if self.tree.is_over() {
                self.found.complete = false;
                return Counted::AtLeast(entries);
            }
            let mut listing = self.read(&directory, level);
            entries += scale * listing.entries;
            let all = listing.directories.len();
            let taken = allowance.min(all);
            self.found.complete &= taken == all;
            for index in 0..taken {
                listing.directories.swap(index, self.rng.usize(index..all));
            }
            listing.directories.truncate(taken);
            let scale = scale * listing.each_stands_for * all as f64 / taken.max(1) as f64;
            let share = (allowance - 1).checked_div(taken).unwrap_or_default().max(1);
            let below = listing.directories.into_iter();
            todo.extend(below.map(|directory| (directory, level + 1, scale, share)));
        }
        Counted::ToTheEnd(entries)
    }

    fn add_up(&mut self, strata: &Strata<T::Directory>) {
        let mut variance = self.found.error.powi(2);
        for stratum in strata.values() {
            let (sum, of_sum) = stratum.total();
            self.found.entries += sum;
            variance += of_sum;
            self.found.complete &= stratum.is_exhausted();
        }
        self.found.error = variance.sqrt();
    }

    fn read(&mut self, directory: &T::Directory, level: usize) -> Listing<T::Directory> {
        let listing = self.tree.read(directory);
        self.found.seen += listing.seen;
        self.found.complete &= listing.is_whole();
        self.found.directories += 1;
        self.found.levels = self.found.levels.max(level + 1);
        listing
    }
}

#[cfg(test)]
#[path = "estimate_tests.rs"]
mod tests;
