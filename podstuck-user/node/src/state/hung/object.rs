//! The path of a stuck call's object. Its beginning is read from the thread's links, the rest from its memory, by the
//! helper process.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::calls::Argument;
use crate::{identity::layout::normalise, state::thread::ReadThread as _};
use podstuck_confine::timed_read::TimedReader;
use podstuck_model::thread::Thread;

/// How much of a path is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// The whole path; `None` when it cannot be found out.
    Known(Option<PathBuf>),
    /// All but the text, which the helper is asked for.
    Asked(Begin),
}

/// Where a path begins, by those of the thread's links that could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Begin {
    /// Name of the link to the directory of a relative path.
    directory: String,
    relative: Option<PathBuf>,
    absolute: Option<PathBuf>,
}

impl Begin {
    fn of(thread: Thread, directory: String, reader: &mut TimedReader) -> Self {
        let mut this = Self { directory, relative: None, absolute: None };
        this.read(thread, reader);
        this
    }

    /// Reads the links that were not read yet: on an overloaded node, a read may have no answer.
    fn read(&mut self, thread: Thread, reader: &mut TimedReader) {
        let mut read = |known: &mut Option<PathBuf>, name: &str| {
            if known.is_none() {
                *known = thread.link(name, reader);
            }
        };
        read(&mut self.relative, &self.directory);
        read(&mut self.absolute, "root");
    }

    /// The whole path; `None` where its beginning is not known.
    fn with(&self, text: &Path) -> Option<PathBuf> {
        let whole = match text.strip_prefix("/") {
            Ok(rest) => self.absolute.as_ref()?.join(rest),
            Err(_) => self.relative.as_ref()?.join(text),
        };
        Some(normalise(&whole))
    }
}

impl Object {
    /// Begins to find the object of a call; also returns the address of its text, if that is missing.
    pub(super) fn of(
        thread: Thread,
        argument: Argument,
        reader: &mut TimedReader,
    ) -> (Self, Option<u64>) {
        let directory = match argument.directory {
            fd if fd < 0 => "cwd".to_owned(),
            fd => format!("fd/{fd}"),
        };
        match argument.text {
            None => (Self::Known(thread.link(&directory, reader)), None),
            Some(address) => (Self::Asked(Begin::of(thread, directory, reader)), Some(address)),
        }
    }

    /// The object of a program that unmounts, whose command line is asked for.
    pub(super) fn of_program(thread: Thread, reader: &mut TimedReader) -> Self {
        Self::Asked(Begin::of(thread, "cwd".to_owned(), reader))
    }

    /// Takes the text; returns whether the path is known now. It is not while its beginning is not known.
    pub(super) fn complete(
        &mut self,
        text: &[u8],
        thread: Thread,
        reader: &mut TimedReader,
    ) -> bool {
        let Self::Asked(begin) = self else { return true };
        begin.read(thread, reader);
        let Some(whole) = begin.with(Path::new(OsStr::from_bytes(text))) else { return false };
        *self = Self::Known(Some(whole));
        true
    }

    /// The text is not asked for any more.
    pub(super) fn give_up(&mut self) {
        if matches!(self, Self::Asked(_)) {
            *self = Self::Known(None);
        }
    }

    /// The path, if it is known.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Known(path) => path.as_deref(),
            Self::Asked(_) => None,
        }
    }
}

/// The argument of an `umount` program: its last word that is no option. `None` for `fusermount` that mounts, which
/// runs for as long as the mount exists.
pub(super) fn to_unmount(command_line: &[u8]) -> Option<&[u8]> {
    let mut words = command_line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let program = words.next()?;
    let words: Vec<&[u8]> = words.collect();
    let is_fuse = program.rsplit(|byte| *byte == b'/').next()?.starts_with(b"fusermount");
    let unmounts = words.iter().any(|word| {
        *word == b"--unmount"
            || (word.starts_with(b"-") && !word.starts_with(b"--") && word.contains(&b'u'))
    });
    if is_fuse && !unmounts {
        return None;
    }
    words.into_iter().rev().find(|word| !word.starts_with(b"-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_put_behind_where_it_begins() {
        let begin = |root: Option<&str>| Begin {
            directory: "cwd".into(),
            relative: Some("/v/data".into()),
            absolute: root.map(Into::into),
        };
        for (text, expected) in [("m/", "/v/data/m"), ("/a/../b", "/jail/b"), ("", "/v/data")] {
            let whole = begin(Some("/jail")).with(Path::new(text));
            assert_eq!(whole, Some(expected.into()), "{text}");
        }
        // The root may be another than the host's.
        assert_eq!(begin(None).with(Path::new("/a")), None);
        assert_eq!(begin(None).with(Path::new("a")), Some("/v/data/a".into()));
    }

    #[test]
    fn what_could_not_be_read_is_read_with_the_text() {
        let (own, mut reader) = (Thread::main(std::process::id()), TimedReader::default());
        let nothing = Begin { directory: "cwd".into(), relative: None, absolute: None };
        let mut object = Object::Asked(nothing.clone());
        assert!(object.complete(b"/a", own, &mut reader));
        assert_eq!(object.path(), Some(Path::new("/a")));
        let mut object = Object::Asked(nothing);
        assert!(!object.complete(b"/a", Thread::main(u32::MAX), &mut reader), "no such thread");
        assert!(matches!(object, Object::Asked(_)), "it may be asked again");
        object.give_up();
        assert_eq!(object, Object::Known(None));
    }

    #[test]
    fn only_what_unmounts_has_an_object() {
        assert_eq!(to_unmount(b"umount\0-l\0/a b\0"), Some(b"/a b".as_slice()));
        assert_eq!(to_unmount(b"/bin/fusermount3\0-uz\0/m\0"), Some(b"/m".as_slice()));
        assert_eq!(to_unmount(b"fusermount3\0-o\0rw\0/m\0"), None);
        assert_eq!(to_unmount(b"umount\0--all\0"), None);
    }
}
