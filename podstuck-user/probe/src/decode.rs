//! Decodes a record into its head and its path. Every length is checked; damage is an error value.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use bytes::Bytes;
use podstuck_common::record::{RecordHead, call, flaw};
use thiserror::Error;

/// Why bytes are not a record of the probes.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    /// Shorter than its fixed part, or than the lengths in it say.
    #[error("record of {len} bytes is shorter than the {needed} it announces")]
    Truncated {
        /// Bytes there are.
        len: usize,
        /// Bytes there should be.
        needed: usize,
    },
    /// A call that no probe reports.
    #[error("record of unknown call {0}")]
    Call(u8),
}

/// A record of the ring, its variable parts still in the buffer they arrived in.
#[derive(Clone, Debug)]
pub struct Record {
    /// The fixed part.
    pub head: RecordHead,
    /// NUL-terminated names, leaf first.
    names: Bytes,
    /// The path argument.
    argument: Bytes,
}

/// Checks a record and takes it apart.
pub fn decode(bytes: &Bytes) -> Result<Record, DecodeError> {
    const HEAD: usize = size_of::<RecordHead>();
    let truncated = |needed| DecodeError::Truncated { len: bytes.len(), needed };
    let fixed = bytes.get(..HEAD).ok_or(truncated(HEAD))?;
    // SAFETY: `fixed` has the size of a head, which is valid for every bit pattern.
    let head: RecordHead = unsafe { fixed.as_ptr().cast::<RecordHead>().read_unaligned() };
    if usize::from(head.call) >= call::COUNT && ![call::RENAME, call::EXEC].contains(&head.call) {
        return Err(DecodeError::Call(head.call));
    }
    let names_end = HEAD + usize::from(head.base_len);
    let end = names_end + usize::from(head.argument_len);
    if bytes.len() < end {
        return Err(truncated(end));
    }
    Ok(Record { head, names: bytes.slice(HEAD..names_end), argument: bytes.slice(names_end..end) })
}

/// Marks the missing beginning of a path that was cut off.
pub const CUT_MARK: &str = "[cut]";
/// Prefix of a path that begins at the root of a mount which is in no mount namespace, as after `umount -l`, or in a
/// directory that is no longer below the root of its mount.
pub const UNREACHABLE_MARK: &str = "[unreachable]";

impl Record {
    /// Full path of the object in the caller's mount namespace, lexically normalised. It begins with [`CUT_MARK`]
    /// when it was longer than the probes walk, and with [`UNREACHABLE_MARK`] when it is no path of that namespace.
    pub fn path(&self) -> PathBuf {
        let mut path = PathBuf::from("/");
        if self.head.flaws & (flaw::CUT | flaw::NO_DIRECTORY) != 0 && !self.is_complete_argument() {
            path.push(CUT_MARK);
        } else if self.head.flaws & flaw::UNREACHABLE != 0 {
            path.push(UNREACHABLE_MARK);
        }
        let names: Vec<&[u8]> = self.names.split(|b| *b == 0).filter(|n| !n.is_empty()).collect();
        path.extend(names.iter().rev().map(|name| OsStr::from_bytes(name)));
        for component in Path::new(OsStr::from_bytes(&self.argument)).components() {
            match component {
                Component::Normal(name) => path.push(name),
                Component::ParentDir => {
                    path.pop();
                }
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        path
    }

    /// An absolute argument whose root directory is not known is taken to be complete.
    fn is_complete_argument(&self) -> bool {
        self.argument.first() == Some(&b'/') && self.head.flaws & flaw::CUT == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(names: &[u8], argument: &[u8], flaws: u16) -> Bytes {
        let head = RecordHead {
            base_len: names.len() as u16,
            argument_len: argument.len() as u16,
            flaws,
            ..RecordHead::default()
        };
        // SAFETY: a head has no padding.
        let fixed = unsafe {
            std::slice::from_raw_parts((&raw const head).cast::<u8>(), size_of::<RecordHead>())
        };
        [fixed, names, argument].concat().into()
    }

    fn path(names: &[u8], argument: &[u8], flaws: u16) -> PathBuf {
        decode(&record(names, argument, flaws)).unwrap().path()
    }

    #[test]
    fn fuzz_record() {
        podstuck_fuzz::fuzz("record", |input| {
            let record = decode(&Bytes::copy_from_slice(input));
            let _ = record.map(|record| record.path());
        });
    }

    #[test]
    fn a_name_below_a_directory() {
        assert_eq!(path(b"data\0pods\0", b"f", 0), Path::new("/pods/data/f"));
        assert_eq!(path(b"b\0a\0", b"./c//d/../e/", 0), Path::new("/a/b/c/e"));
        assert_eq!(path(b"", b"/a/b", 0), Path::new("/a/b"));
        assert_eq!(path(b"jail\0", b"/a/b", 0), Path::new("/jail/a/b"));
    }

    #[test]
    fn names_are_bytes() {
        let odd = path(b"\xff\xfe\0", b"\x1b", 0);
        assert_eq!(odd.as_os_str().as_bytes(), b"/\xff\xfe/\x1b");
    }

    #[test]
    fn a_missing_part_is_marked() {
        assert_eq!(path(b"b\0", b"c", flaw::CUT), Path::new("/[cut]/b/c"));
        assert_eq!(path(b"", b"c", flaw::NO_DIRECTORY), Path::new("/[cut]/c"));
        assert_eq!(path(b"", b"/a/c", flaw::NO_DIRECTORY), Path::new("/a/c"));
        assert_eq!(path(b"b\0", b"c", flaw::UNREACHABLE), Path::new("/[unreachable]/b/c"));
        assert_eq!(path(b"b\0", b"/c", flaw::UNREACHABLE), Path::new("/[unreachable]/b/c"));
    }

    #[test]
    fn every_truncation_is_an_error() {
        let whole = record(b"data\0pods\0", b"file", 0);
        for len in 0..whole.len() {
            let error = decode(&whole.slice(..len)).unwrap_err();
            assert!(matches!(error, DecodeError::Truncated { .. }), "{len}: {error}");
        }
    }

    #[test]
    fn garbage_is_no_record() {
        let garbage = Bytes::from(vec![0xff; 4096]);
        assert_eq!(decode(&garbage).unwrap_err(), DecodeError::Call(0xff));
    }
}
