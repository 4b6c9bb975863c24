//! Trees of many shapes, of ten to thirty thousand entries.

use std::{
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, linkat, mkdirat, mknodat, open};

pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// All is in one directory.
    pub(crate) is_flat: bool,
    build: fn(&mut Made),
}

const fn shape(name: &'static str, build: fn(&mut Made)) -> Shape {
    Shape { name, is_flat: false, build }
}

pub(crate) const SHAPES: &[Shape] = &[
    shape("wide", wide),
    shape("deep", deep),
    Shape { name: "flat", is_flat: true, build: flat },
    shape("lop-sided", lop_sided),
    shape("links", links),
    shape("sparse", sparse),
    shape("modules", modules),
];

/// What was made, and where.
pub(crate) struct Made {
    pub(crate) entries: u64,
    pub(crate) directories: u64,
    top: OwnedFd,
    random: u64,
}

impl Made {
    fn directory(&mut self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        mkdirat(&self.top, path, Mode::RWXU).unwrap();
        (self.entries, self.directories) = (self.entries + 1, self.directories + 1);
        path.to_owned()
    }

    fn files(&mut self, directory: &Path, files: u64) {
        for number in 0..files {
            let path = directory.join(format!("file-{number:05}"));
            mknodat(&self.top, &path, FileType::RegularFile, Mode::RUSR, 0).unwrap();
        }
        self.entries += files;
    }

    /// A number below this one, the same in each run (xorshift).
    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % end
    }
}

pub(crate) fn make(top: &Path, shape: &Shape) -> Made {
    fs::create_dir(top).unwrap();
    let open = open(top, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let mut made = Made { entries: 0, directories: 1, top: open, random: 0x2545_f491_4f6c_dd1d };
    (shape.build)(&mut made);
    made
}

/// Entries of a tree, by another way than the tool's.
pub(crate) fn count(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let below = |entry: fs::DirEntry| {
        if entry.file_type().unwrap().is_dir() { 1 + count(&entry.path()) } else { 1 }
    };
    entries.map(below).sum()
}

/// As in the measurement that this began with, but smaller.
fn wide(made: &mut Made) {
    for number in 0..200 {
        let above = made.directory(format!("{number}"));
        for number in 0..60 {
            made.directory(above.join(format!("{number}")));
        }
    }
}

fn deep(made: &mut Made) {
    for number in 0..400 {
        let mut path = made.directory(format!("{number}"));
        for _ in 0..made.below(40) {
            path = made.directory(path.join("d"));
            made.files(&path, 2);
        }
    }
}

fn flat(made: &mut Made) {
    made.files(Path::new(""), 30_000);
}

fn lop_sided(made: &mut Made) {
    for number in 0..120 {
        let above = made.directory(format!("{number}"));
        let above = made.directory(above.join("below"));
        let directories = if number == 97 { 4000 } else { 5 };
        for number in 0..directories {
            let path = made.directory(above.join(format!("{number}")));
            made.files(&path, 3);
        }
    }
}

/// Many names of few files.
fn links(made: &mut Made) {
    made.files(Path::new(""), 40);
    for number in 0..600 {
        let path = made.directory(format!("{number}"));
        for file in 0..made.below(40) {
            let (old, new) = (format!("file-{file:05}"), path.join(format!("{file}")));
            linkat(&made.top, old, &made.top, new, AtFlags::empty()).unwrap();
            made.entries += 1;
        }
    }
}

fn sparse(made: &mut Made) {
    for number in 0..24 {
        let above = made.directory(format!("{number}"));
        for number in 0..300 {
            let path = made.directory(above.join(format!("{number}")));
            if made.below(8) == 0 {
                made.files(&path, 30);
            }
        }
    }
}

/// Like what package managers leave.
fn modules(made: &mut Made) {
    let mut todo: Vec<_> = (0..300).map(|number| (PathBuf::from(format!("{number}")), 0)).collect();
    while let Some((path, depth)) = todo.pop() {
        let path = made.directory(path);
        let files = made.below(12);
        made.files(&path, files);
        let below = if depth < 5 { made.below(4) } else { 0 };
        todo.extend((0..below).map(|number| (path.join(format!("{number}")), depth + 1)));
    }
}
