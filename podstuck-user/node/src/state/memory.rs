//! Looks into another process's memory, which may wait for ever for the process's lock: the helper's
//! side.

use std::{ffi::OsString, fs::File, io, os::unix::fs::FileExt, path::Path};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use podstuck_confine::helper::{Question, Teller};
use podstuck_confine::proc;

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

/// The command line of a process, its words ended by NUL; none that is longer than any that unmounts or
/// registers something. A process chooses how long it is: the kernel shows any part of its memory as such.
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
        command_line(self.pid)
    }
}

/// Enough for the longest path, with options before it.
const LONGEST_LINE: usize = 8 << 10;

fn command_line(pid: u32) -> Result<Vec<u8>> {
    let process = format!("/proc/{pid}");
    let line = proc::command_line(Path::new(&process), LONGEST_LINE + 1)?;
    // Of a part, the last word would be another one.
    ensure!(
        line.len() <= LONGEST_LINE,
        "the command line of process {pid} is longer than {LONGEST_LINE} bytes"
    );
    Ok(line)
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
    use std::{
        io::Read,
        process::{Command, Stdio},
    };

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
            assert_eq!(text(pid, address).unwrap(), expected);
        }
        assert!(text(pid, 8).is_err());
    }

    #[test]
    fn a_command_line_is_read_whole_or_not_at_all() {
        let line = |length: usize| {
            let mut command = Command::new("sh");
            command.args(["-c", "echo; read wait", "sh", &"x".repeat(length)]);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            // It has become the program.
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            let line = command_line(child.id());
            child.kill().unwrap();
            child.wait().unwrap();
            line
        };
        assert!(line(4095).unwrap().ends_with(b"x\0"));
        assert!(line(9000).unwrap_err().to_string().contains("longer than 8192 bytes"));
        assert!(command_line(u32::MAX >> 1).is_err());
    }
}
