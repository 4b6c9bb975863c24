//! Whether a process has as many descriptors open as it may. `accept` then fails with EMFILE, and new connections
//! are left in the queue of the socket (accept(2); Go's `net/http.Server.Serve` tries again after a pause).

use procfs::{
    ProcResult,
    process::{LimitValue, Process},
};

use podstuck_model::halted::Halted;

/// What it has open, where that is all it may.
pub(super) fn exhausted(pid: u32) -> Option<Halted> {
    of(pid).ok().flatten()
}

fn of(pid: u32) -> ProcResult<Option<Halted>> {
    let process = Process::new(pid.cast_signed())?;
    let limit = process.limits()?.max_open_files;
    let LimitValue::Value(most) = limit.soft_limit else { return Ok(None) };
    let open = process.fd_count()? as u64;
    let hard = match limit.hard_limit {
        LimitValue::Value(hard) => Some(hard),
        LimitValue::Unlimited => None,
    };
    Ok((open >= most).then_some(Halted::NoDescriptors { open, most, hard }))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        process::{Command, Stdio},
    };

    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

    use super::*;

    #[test]
    fn who_may_open_no_more_is_known() {
        let mut command = Command::new("cat");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // When it has answered, it has opened all that it will: its libraries come first.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let pid = Pid::from_child(&child);
        let may = |most: u64| {
            // It has it from here.
            let maximum = getrlimit(Resource::Nofile).maximum;
            prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(most), maximum }).unwrap();
        };
        let open = Process::new(child.id().cast_signed()).unwrap().fd_count().unwrap() as u64;
        may(open + 1);
        let before = exhausted(child.id());
        may(open);
        let found = exhausted(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(before, None);
        assert!(
            matches!(found, Some(Halted::NoDescriptors { open: own, most, .. }) if own == most && own == open),
            "{found:?}, {open} open"
        );
        assert_eq!(exhausted(child.id()), None, "it has ended");
    }
}
