//! The node's daemons: each is noted before the next is started, and ended by what was noted.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, waitpid},
    },
    unistd::{Pid, setsid},
};
use podstuck_testing::service;
use procfs::process::Process;
use serde::{Deserialize, Serialize};

use crate::place::Place;

/// How long a daemon may take to end by itself.
const GRACE: Duration = Duration::from_secs(20);

/// One that was started.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Daemon {
    name: String,
    pid: u32,
    /// In ticks since boot: with the process id it names the process.
    started: u64,
}

impl Daemon {
    fn is_running(&self) -> bool {
        let Ok(process) = Process::new(self.pid.cast_signed()) else { return false };
        process.stat().is_ok_and(|stat| stat.starttime == self.started && stat.state != 'Z')
    }
}

/// Those that were started, in their order.
pub(crate) struct Daemons<'a> {
    place: &'a Place,
    all: Vec<Daemon>,
}

impl<'a> Daemons<'a> {
    /// None yet.
    pub(crate) fn new(place: &'a Place) -> Self {
        Self { place, all: Vec::new() }
    }

    /// Those that are noted.
    pub(crate) fn noted(place: &'a Place) -> Result<Self> {
        Ok(Self { place, all: place.noted("daemons")?.unwrap_or_default() })
    }

    /// Ends one.
    pub(crate) fn end_one(&mut self, name: &str) -> Result<()> {
        let at = self.all.iter().position(|daemon| daemon.name == name);
        let daemon = self.all.remove(at.with_context(|| format!("no {name} was started"))?);
        end(&daemon);
        self.place.note("daemons", &self.all)
    }

    /// Starts one as a service of the node, in a session of its own, which outlives the process that starts it.
    pub(crate) fn start(&mut self, name: &str, command: Command) -> Result<()> {
        let mut daemon = service(command.get_program());
        daemon.args(command.get_args());
        let path = self.place.log(name);
        let log = fs::File::options().create(true).append(true).open(&path);
        let log = log.with_context(|| format!("creating {}", path.display()))?;
        let copy = log.try_clone().context("opening a log twice")?;
        daemon.stdin(Stdio::null()).stdout(copy).stderr(log).current_dir("/");
        own_session(&mut daemon);
        let child = daemon.spawn().with_context(|| format!("starting {name}"))?;
        let process = Process::new(child.id().cast_signed()).and_then(|p| p.stat());
        let started = process.with_context(|| format!("looking at {name}"))?.starttime;
        self.all.push(Daemon { name: name.into(), pid: child.id(), started });
        self.place.note("daemons", &self.all)
    }

    /// Kills one, as a crash ends it; returns the words that it had.
    pub(crate) fn kill(place: &'a Place, name: &str) -> Result<Vec<String>> {
        let pid = Self::pid(place, name)?.cast_signed();
        let words = Process::new(pid).and_then(|process| process.cmdline());
        let words = words.with_context(|| format!("looking at {name}"))?;
        kill(Pid::from_raw(pid), Signal::SIGKILL).with_context(|| format!("killing {name}"))?;
        Self::noted(place)?.end_one(name)?;
        Ok(words)
    }

    /// Starts one again after it has ended, with the words that it had.
    pub(crate) fn start_again(place: &'a Place, name: &str, words: &[String]) -> Result<()> {
        let [program, args @ ..] = words else { bail!("no words of {name}") };
        let mut command = Command::new(program);
        command.args(args);
        Self::noted(place)?.start(name, command)
    }

    /// Process id of one.
    pub(crate) fn pid(place: &Place, name: &str) -> Result<u32> {
        let all: Vec<Daemon> = place.noted("daemons")?.unwrap_or_default();
        let daemon = all.iter().find(|daemon| daemon.name == name && daemon.is_running());
        Ok(daemon.with_context(|| format!("no {name} is running"))?.pid)
    }

    /// Ends those that were noted, the last first.
    pub(crate) fn end(place: &Place) -> Result<()> {
        let all: Vec<Daemon> = place.noted("daemons")?.unwrap_or_default();
        for daemon in all.iter().rev().filter(|daemon| daemon.is_running()) {
            end(daemon);
        }
        Ok(())
    }
}

fn end(daemon: &Daemon) {
    let pid = Pid::from_raw(daemon.pid.cast_signed());
    // One that a test has stopped would not notice; one that has ended meanwhile needs nothing.
    let _ = kill(pid, Signal::SIGTERM);
    let _ = kill(pid, Signal::SIGCONT);
    let until = Instant::now() + GRACE;
    while daemon.is_running() {
        if Instant::now() > until {
            let _ = kill(pid, Signal::SIGKILL);
        }
        thread::sleep(Duration::from_millis(50));
        // If it is a child of ours.
        let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
    }
    let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
}

fn own_session(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: setsid is one system call and touches no memory.
    unsafe { command.pre_exec(|| Ok(setsid().map(drop)?)) };
}

/// Processes whose command line holds a word.
pub(crate) fn processes_with(word: &Path) -> Vec<Pid> {
    let all = procfs::process::all_processes().into_iter().flatten().flatten();
    let has = |process: &Process| {
        process.cmdline().is_ok_and(|words| words.iter().any(|given| Path::new(given) == word))
    };
    all.filter(has).map(|process| Pid::from_raw(process.pid)).collect()
}
