//! Asks the helper process from a thread that may wait, again and again, and never has more than
//! one of them: on a hung disk they would pile up.

use std::{
    io::{Read, Write},
    os::fd::AsFd,
    process::{Child, Command, Stdio},
    time::Instant,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::look::{Answer, DEADLINE, LookError, Question, understand};

/// Remembers a helper that did not come back.
#[derive(Debug, Default)]
pub(super) struct Patient {
    hung: Option<Child>,
}

impl Patient {
    /// One question, one answer, within the deadline. While an earlier helper hangs, the answer is
    /// that.
    pub(super) fn ask(&mut self, question: &Question) -> Result<Answer, LookError> {
        if let Some(hung) = &mut self.hung {
            if matches!(hung.try_wait(), Ok(None)) {
                return Err(LookError::Deadline(DEADLINE));
            }
            self.hung = None;
        }
        let mut child = Command::new("/proc/self/exe")
            .arg("look")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| LookError::Helper(error.to_string()))?;
        let answer = exchange(&mut child, question);
        if matches!(answer, Err(LookError::Deadline(_))) {
            // Not waited for: it may be in an uninterruptible wait.
            let _ = child.kill();
            self.hung = Some(child);
        } else {
            let _ = child.wait();
        }
        answer
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        if let Some(hung) = &mut self.hung {
            let _ = hung.try_wait();
        }
    }
}

fn exchange(child: &mut Child, question: &Question) -> Result<Answer, LookError> {
    let failed = |error: &dyn std::fmt::Display| LookError::Helper(error.to_string());
    let end = Instant::now() + DEADLINE;
    let text = serde_json::to_vec(question).map_err(|error| failed(&error))?;
    if let Some(mut input) = child.stdin.take() {
        // It reads all of it before it looks at anything.
        input.write_all(&text).map_err(|error| failed(&error))?;
    }
    let Some(mut output) = child.stdout.take() else { return Err(failed(&"no output")) };
    let mut answer = Vec::new();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let mut ask = [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN)];
        let limit = Timespec::try_from(left).map_err(|error| failed(&error))?;
        let ready = poll(&mut ask, Some(&limit)).map_err(|error| failed(&error))?;
        if ready == 0 {
            return Err(LookError::Deadline(DEADLINE));
        }
        let mut part = [0; 16 << 10];
        match output.read(&mut part).map_err(|error| failed(&error))? {
            0 => return understand(&answer),
            length => answer.extend_from_slice(part.get(..length).unwrap_or_default()),
        }
    }
}
