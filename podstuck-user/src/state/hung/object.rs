//! The path of a stuck call's object: where it begins is read from the thread's links, the rest from
//! its memory, by the helper process.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::calls::Argument;
use crate::{
    identity::layout::normalise,
    model::thread::Thread,
    state::{thread::ReadThread as _, timed_read::TimedReader},
};

/// How far a path is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// To the end; `None` when it cannot be told.
    Known(Option<PathBuf>),
    /// All but the text, which somebody was asked for.
    Asked {
        /// Where a relative path begins.
        base: Option<PathBuf>,
        /// Where an absolute one does.
        root: PathBuf,
    },
}

impl Object {
    /// Begins to find the object of a call; where its text is, unless nothing is missing.
    pub(super) fn of(
        thread: Thread,
        argument: Argument,
        reader: &mut TimedReader,
    ) -> (Self, Option<u64>) {
        let base = match argument.directory {
            fd if fd < 0 => thread.link("cwd", reader),
            fd => thread.link(&format!("fd/{fd}"), reader),
        };
        match argument.text {
            None => (Self::Known(base), None),
            Some(address) => {
                let root = thread.link("root", reader).unwrap_or_else(|| "/".into());
                (Self::Asked { base, root }, Some(address))
            }
        }
    }

    /// Of a program that unmounts, whose command line was asked for.
    pub(super) fn of_program(thread: Thread, reader: &mut TimedReader) -> Self {
        let root = thread.link("root", reader).unwrap_or_else(|| "/".into());
        Self::Asked { base: thread.link("cwd", reader), root }
    }

    /// Takes the text; `None` when it could not be read.
    pub(super) fn complete(&mut self, text: Option<&[u8]>) {
        let Self::Asked { base, root } = self else { return };
        let text = text.map(OsStr::from_bytes).map(Path::new);
        let whole = text.and_then(|text| match text.strip_prefix("/") {
            Ok(rest) => Some(root.join(rest)),
            Err(_) => Some(base.as_ref()?.join(text)),
        });
        *self = Self::Known(whole.map(|path| normalise(&path)));
    }

    /// The path, if it is known.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Known(path) => path.as_deref(),
            Self::Asked { .. } => None,
        }
    }
}

/// What a program of the `umount` kind is to unmount: its last word that is no option.
/// `fusermount` also mounts, and then stays for as long as the mount does.
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
        let asked = || Object::Asked { base: Some("/v/data".into()), root: "/jail".into() };
        for (text, expected) in [("m/", "/v/data/m"), ("/a/../b", "/jail/b"), ("", "/v/data")] {
            let mut object = asked();
            object.complete(Some(text.as_bytes()));
            assert_eq!(object.path(), Some(Path::new(expected)), "{text}");
        }
        let mut object = asked();
        object.complete(None);
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
