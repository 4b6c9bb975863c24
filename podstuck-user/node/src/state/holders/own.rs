//! The tool's own processes, which are no culprits: this helper, the process that forked it, and the helpers beside it.
//! One of these may have been left behind at the very mount that does not answer.

use std::{os::unix::process::parent_id, path::Path};

use podstuck_confine::proc;

pub(super) fn processes() -> Vec<u32> {
    around(std::process::id(), parent_id())
}

/// A helper, its parent, and those of the parent's children that have the helper's name.
fn around(helper: u32, parent: u32) -> Vec<u32> {
    let of = |pid: u32| format!("/proc/{pid}");
    let name = proc::comm(Path::new(&of(helper)));
    let is_beside = |pid: &u32| {
        let at = of(*pid);
        proc::Stat::read(Path::new(&at)).is_some_and(|stat| stat.parent == parent)
            && proc::comm(Path::new(&at)) == name
    };
    let beside = proc::processes().into_iter().filter(|pid| *pid != helper).filter(is_beside);
    [helper, parent].into_iter().chain(beside).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn the_helpers_beside_a_helper_are_the_tools_and_no_other_child_is() {
        let script = "sleep 60 & echo $!; sleep 60 & echo $!; tail -f /dev/null & echo $!; echo; read end; kill $(jobs -p)";
        let mut command = Command::new("bash");
        let command = command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.spawn().unwrap();
        let lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let started = lines.map(Result::unwrap).take_while(|line| !line.is_empty());
        let started: Vec<u32> = started.map(|line| line.parse().unwrap()).collect();
        let name = |pid: u32| proc::comm(Path::new(&format!("/proc/{pid}")));
        while started[..2].iter().any(|pid| name(*pid) != b"sleep") {}
        assert_eq!(around(started[0], shell.id()), [started[0], shell.id(), started[1]]);
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }
}
