//! Plays a kubelet that cannot remove any of its pods: each is stuck by a real mechanism of its own, and is tried once
//! a second. Prints `ready` when all are made, waits for SIGUSR1, and then prints when each pod's first call failed:
//! what `cargo xtask bench stuck` compares podstuck's findings with. It mounts, and is to have a mount namespace of its
//! own.

mod kind;
mod log;

use std::{
    env, fs,
    io::{BufRead, BufReader, Write, stdin, stdout},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail};
use clap::Parser;
use nix::{
    errno::Errno,
    sys::signal::{SigSet, Signal},
};
use serde::Serialize;

use kind::Kind;

/// How often each pod is tried.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Parser)]
struct Arguments {
    /// kubelet's root directory, on a file system that has attributes
    #[arg(long)]
    root_dir: PathBuf,
    /// That of a second kubelet, whose disk has become read-only
    #[arg(long)]
    read_only_root: PathBuf,
    /// How many pods
    #[arg(long, default_value_t = 200)]
    pods: usize,
    /// How often each is tried
    #[arg(long, default_value_t = 30)]
    attempts: u32,
    /// How many errors of the last ten minutes its log has, which is standard error
    #[arg(long, default_value_t = 0)]
    log_lines: usize,
}

/// A pod that cannot go.
struct Pod {
    uid: String,
    kind: Kind,
    volume: PathBuf,
}

/// When a pod's first call failed.
#[derive(Serialize)]
struct First<'a> {
    uid: &'a str,
    kind: &'static str,
    /// The finding that names it.
    cause: &'static str,
    errno: String,
    unix_s: f64,
}

fn main() -> Result<()> {
    match env::args().nth(1).as_deref() {
        Some("hold") => return hold(env::args().skip(2)),
        Some("release") => return release(env::args().skip(2)),
        _ => {}
    }
    let arguments = Arguments::parse();
    fs::write("/proc/self/comm", "kubelet").context("taking kubelet's name")?;
    let pods = pods(&arguments);
    // Also after a failure, and if this process is killed: an attribute outlives the mount namespace.
    let _releases = guard(&pods)?;
    make(&arguments, &pods)?;
    play(&arguments, &pods)
}

fn pods(arguments: &Arguments) -> Vec<Pod> {
    let pod = |(number, kind): (usize, Kind)| {
        let root = match kind {
            Kind::ReadOnly => &arguments.read_only_root,
            _ => &arguments.root_dir,
        };
        let uid = format!("{number:08x}-5f0c-4e0d-9a53-{number:012x}");
        let volume = root.join("pods").join(&uid).join("volumes/kubernetes.io~empty-dir/data");
        Pod { uid, kind, volume }
    };
    Kind::of_a_node(arguments.pods).enumerate().map(pod).collect()
}

/// A process that releases them when this one ends.
fn guard(pods: &[Pod]) -> Result<Ended> {
    let outlive = pods.iter().filter(|pod| pod.kind.outlives());
    let mut command = Command::new("/proc/self/exe");
    command.arg("release").args(outlive.map(|pod| pod.volume.join("file"))).process_group(0);
    Ok(Ended(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?))
}

fn make(arguments: &Arguments, pods: &[Pod]) -> Result<()> {
    fs::create_dir_all(&arguments.read_only_root)?;
    kind::memory(&arguments.read_only_root)?;
    for Pod { kind, volume, .. } in pods {
        fs::create_dir_all(volume).with_context(|| format!("creating {}", volume.display()))?;
        kind.set_up(volume).with_context(|| format!("a pod that is stuck by {kind:?}"))?;
    }
    kind::make_read_only(&arguments.read_only_root)
}

fn play(arguments: &Arguments, pods: &[Pod]) -> Result<()> {
    let held = |kind| pods.iter().filter(move |pod| pod.kind == kind).map(|pod| &*pod.volume);
    let mut holders = vec![Ended::holder(held(Kind::HeldOpen), None)?];
    for directory in held(Kind::HeldAsDirectory) {
        holders.push(Ended::holder(None, Some(directory))?);
    }
    log::write(pods, arguments.log_lines)?;
    let begin: SigSet = [Signal::SIGUSR1].into_iter().collect();
    begin.thread_block()?;
    println!("ready");
    stdout().flush()?;
    begin.wait()?;
    let begun = Instant::now();
    for attempt in 0..arguments.attempts {
        for pod in pods {
            let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
            let Err(errno) = pod.kind.remove(&pod.volume) else {
                bail!("{} was not stuck by {:?}", pod.volume.display(), pod.kind);
            };
            if attempt == 0 {
                println!("{}", serde_json::to_string(&pod.first(errno, at))?);
            }
        }
        stdout().flush()?;
        thread::sleep((begun + EVERY * (attempt + 1)).saturating_duration_since(Instant::now()));
    }
    Ok(())
}

impl Pod {
    fn first(&self, errno: Errno, unix_s: f64) -> First<'_> {
        let (kind, cause) = (self.kind.name(), self.kind.cause());
        First { uid: &self.uid, kind, cause, errno: format!("{errno:?}"), unix_s }
    }
}

/// A process that ends with its standard input.
struct Ended(Child);

impl Ended {
    /// One that holds volumes.
    fn holder<'a>(open: impl IntoIterator<Item = &'a Path>, within: Option<&Path>) -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("hold").args(open).current_dir(within.unwrap_or("/".as_ref()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take();
        let holder = Self(child);
        let mut line = String::new();
        BufReader::new(output.context("a holder without output")?).read_line(&mut line)?;
        anyhow::ensure!(line == "ready\n", "a holder could not open what it is to hold");
        Ok(holder)
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Its end is not in question.
        let _ = self.0.wait();
    }
}

/// The guard's side: releases what would outlive the mount namespace.
fn release(files: impl Iterator<Item = String>) -> Result<()> {
    stdin().read_line(&mut String::new())?;
    Command::new("chattr").arg("-ia").args(files).stderr(Stdio::null()).status()?;
    Ok(())
}

/// The holder's side.
fn hold(paths: impl Iterator<Item = String>) -> Result<()> {
    fs::write("/proc/self/comm", "backup").context("taking a name")?;
    let held: std::io::Result<Vec<fs::File>> = paths.map(fs::File::open).collect();
    let held = held.context("opening what is to be held")?;
    println!("ready");
    stdout().flush()?;
    stdin().read_line(&mut String::new())?;
    drop(held);
    Ok(())
}
