//! Looks into another process's memory, and at whether a file system answers at all. Both may wait
//! for ever: for the process's mmap lock, or for a dead server. Only the helper of
//! [`look`](super::look) does this.

use std::{ffi::OsString, fs::File, io, os::unix::fs::FileExt, path::Path};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use serde::{Deserialize, Serialize};

/// What is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Question {
    /// The text, up to its NUL, at an address of a process.
    Text {
        /// The process.
        pid: u32,
        /// Where the text begins.
        address: u64,
    },
    /// The command line of a process.
    CommandLine {
        /// The process.
        pid: u32,
    },
    /// Whether a path can be reached.
    Reach {
        /// Whose mount namespace and root directory.
        pid: u32,
        /// The path.
        path: OsString,
    },
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Question::Text`] and [`Question::CommandLine`].
    Bytes(Vec<u8>),
    /// To [`Question::Reach`]: the errno, 0 if it can be reached.
    Errno(i32),
}

/// Longest text: `PATH_MAX`.
const LONGEST: usize = 4096;
const PAGE: u64 = 4096;

/// Answers, in the helper process.
pub(super) fn answer(question: &Question) -> io::Result<Answer> {
    match question {
        Question::Text { pid, address } => text(*pid, *address).map(Answer::Bytes),
        Question::CommandLine { pid } => {
            std::fs::read(format!("/proc/{pid}/cmdline")).map(Answer::Bytes)
        }
        Question::Reach { pid, path } => Ok(Answer::Errno(reach(*pid, Path::new(path)))),
    }
}

fn text(pid: u32, mut address: u64) -> io::Result<Vec<u8>> {
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut text = Vec::new();
    while text.len() < LONGEST {
        // Not beyond the page: the next one need not be there.
        let mut part = vec![0; (PAGE - address % PAGE) as usize];
        memory.read_exact_at(&mut part, address)?;
        if let Some(end) = part.iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&part[..end]);
            return Ok(text);
        }
        address += part.len() as u64;
        text.append(&mut part);
    }
    Ok(text)
}

fn reach(pid: u32, path: &Path) -> i32 {
    let seen = Path::new("/proc").join(pid.to_string()).join("root");
    let seen = seen.join(path.strip_prefix("/").unwrap_or(path));
    let looked = statx(CWD, &seen, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS);
    looked.err().map_or(0, rustix::io::Errno::raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_to_its_end_across_pages() {
        let pid = std::process::id();
        // Shorter than a page, as a path is, and still across two wherever it lies.
        let mut long = vec![b'x'; 4000];
        long.resize(2 * PAGE as usize, 0);
        for start in [0, 1000, 3000] {
            let expected = long[start..].split(|byte| *byte == 0).next().unwrap();
            let address = long[start..].as_ptr() as u64;
            let read = answer(&Question::Text { pid, address }).unwrap();
            assert_eq!(read, Answer::Bytes(expected.to_vec()));
        }
        assert!(text(pid, 8).is_err());
    }

    #[test]
    fn a_path_is_reached_or_not() {
        let reach = |path: &str| reach(std::process::id(), Path::new(path));
        assert_eq!((reach("/proc"), reach("/nonexistent")), (0, nix::libc::ENOENT));
    }
}
