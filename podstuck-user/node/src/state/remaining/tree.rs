//! What the estimate needs of a tree.

/// A tree that is looked at, within a budget.
pub(super) trait Tree {
    /// A directory of it.
    type Directory;
    /// What is in a directory; nothing where it is gone.
    fn read(&mut self, directory: &Self::Directory) -> Listing<Self::Directory>;
    /// What can be known of a directory without reading it.
    fn shape(&mut self, directory: &Self::Directory) -> Shape;
    /// The part of the budget that is used up.
    fn spent(&self) -> f64;
    /// Whether nothing more may be read at all.
    fn is_over(&self) -> bool;
}

/// What is in a directory.
#[derive(Debug)]
pub(super) struct Listing<D> {
    /// Entries that were read.
    pub(super) seen: u64,
    /// Entries, as estimated where it was not read to its end.
    pub(super) entries: f64,
    /// The standard error of that.
    pub(super) error: f64,
    /// Those that are directories, or some of them.
    pub(super) directories: Vec<D>,
    /// How many directories there are for each of these.
    pub(super) each_stands_for: f64,
}

impl<D> Listing<D> {
    /// Of a directory that is gone.
    pub(super) fn empty() -> Self {
        let directories = Vec::new();
        Self { seen: 0, entries: 0.0, error: 0.0, directories, each_stands_for: 1.0 }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.seen as f64 >= self.entries && self.each_stands_for <= 1.0
    }
}

/// The result of `statx` for a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Directories in it; `None` where the file system does not count them.
    pub(super) directories: Option<u64>,
    /// Its own size in blocks of 4 KiB, rounded down.
    pub(super) blocks: u64,
}

/// Those that look alike are of one class: whether there are directories in it, and how large it is as
/// a power of four.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class {
    is_leaf: bool,
    size: u32,
}

impl Class {
    /// The lower, the sooner it is read. A level nearer to the top is worth as much as four times the
    /// size.
    pub(super) fn rank(self, level: usize) -> i64 {
        level as i64 - i64::from(self.size)
    }
}

impl Shape {
    pub(super) fn class(self) -> Class {
        let size = self.directories.unwrap_or(1) + self.blocks;
        let size = size.checked_ilog2().map_or(0, |log| 1 + log / 2);
        Class { is_leaf: self.is_leaf(), size }
    }

    /// Whether it is not to be left to chance.
    pub(super) fn is_large(self) -> bool {
        !self.is_leaf() || self.blocks >= 4
    }

    fn is_leaf(self) -> bool {
        self.directories == Some(0)
    }
}
