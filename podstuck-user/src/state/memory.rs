//! Looks into another process's memory, which may wait for ever for the process's lock: the helper's
//! side.

use std::{ffi::OsString, fs::File, io, os::unix::fs::FileExt, path::Path};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::helper::{Question, Teller};
use crate::proc;

/// The text, up to its NUL, at an address of a process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReadText {
    pub(super) pid: u32,
    pub(super) address: u64,
}

impl Question for ReadText {
    type Step = ();
    type Part = ();
    type Answer = Vec<u8>;

    fn place(&self) -> OsString {
        format!("the memory of process {}", self.pid).into()
    }

    fn answer(self, _: &mut Teller<(), ()>) -> Result<Vec<u8>> {
        Ok(text(self.pid, self.address)?)
    }
}

/// The command line of a process, its words ended by NUL.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReadCommandLine {
    pub(super) pid: u32,
}

impl Question for ReadCommandLine {
    type Step = ();
    type Part = ();
    type Answer = Vec<u8>;

    fn place(&self) -> OsString {
        format!("the memory of process {}", self.pid).into()
    }

    fn answer(self, _: &mut Teller<(), ()>) -> Result<Vec<u8>> {
        Ok(proc::command_line(Path::new(&format!("/proc/{}", self.pid)), LONGEST)?)
    }
}

/// Longest text: `PATH_MAX`.
const LONGEST: usize = 4096;
const PAGE: u64 = 4096;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_cut() {
        let words = "x".repeat(100_000);
        let mut waiting = std::process::Command::new("sh");
        waiting.args(["-c", "read line; exit", &words]).stdin(std::process::Stdio::piped());
        let mut child = waiting.spawn().unwrap();
        let process = format!("/proc/{}", child.id());
        let whole = loop {
            // It has none for a moment after it was started.
            let whole = proc::command_line(Path::new(&process), 200_000).unwrap();
            if !whole.is_empty() {
                break whole;
            }
        };
        let cut = ReadCommandLine { pid: child.id() }.answer(&mut Teller::new()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(
            (cut.len(), whole.len()),
            (LONGEST, "sh -c read line; exit ".len() + words.len() + 1)
        );
        assert!(whole.starts_with(&cut) && cut.starts_with(b"sh\0"));
    }

    #[test]
    fn text_is_read_to_its_end_across_pages() {
        let pid = std::process::id();
        // Shorter than a page, as a path is, and still across two wherever it lies.
        let mut long = vec![b'x'; 4000];
        long.resize(2 * PAGE as usize, 0);
        for start in [0, 1000, 3000] {
            let expected = long[start..].split(|byte| *byte == 0).next().unwrap();
            let address = long[start..].as_ptr() as u64;
            assert_eq!(text(pid, address).unwrap(), expected);
        }
        assert!(text(pid, 8).is_err());
    }
}
