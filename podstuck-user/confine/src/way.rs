//! The components of a path, in order, for code that opens each one itself and follows a link only after it has
//! checked it.

use std::{
    collections::VecDeque,
    ffi::OsString,
    os::{fd::AsFd, unix::ffi::OsStringExt},
    path::{Component, Path, PathBuf},
};

use rustix::{fs::readlinkat, io::Errno};

/// Links that the kernel follows in one path (`MAXSYMLINKS`).
const LINKS: usize = 40;

/// Where the components of a link's target begin.
pub enum Base {
    /// At the root directory.
    Root,
    /// At the directory that the link is in.
    Here,
}

/// The components that are left.
pub struct Way {
    names: VecDeque<OsString>,
    links: usize,
}

impl Way {
    /// All components of this path.
    pub fn of(path: &Path) -> Self {
        Self { names: names(path).collect(), links: 0 }
    }

    /// The next component, which may be `..`.
    pub fn pop(&mut self) -> Option<OsString> {
        self.names.pop_front()
    }

    /// Puts the components of a link's target before those that are left.
    ///
    /// # Errors
    /// Fails when the link cannot be read, and with `ELOOP` where there are more links than the kernel follows.
    pub fn follow(&mut self, link: impl AsFd) -> Result<Base, Errno> {
        self.links += 1;
        if self.links > LINKS {
            return Err(Errno::LOOP);
        }
        let target = readlinkat(link, c"", Vec::new())?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        let left = std::mem::take(&mut self.names);
        self.names = names(&target).chain(left).collect();
        Ok(if target.is_absolute() { Base::Root } else { Base::Here })
    }
}

fn names(path: &Path) -> impl Iterator<Item = OsString> {
    let names = path
        .components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    names.map(|part| part.as_os_str().to_owned())
}
