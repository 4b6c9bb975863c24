//! A process that serves a part of a case and ends with the lab, whatever happens to the other processes.
//!
//! It cannot be a part of the removal process: that process may be blocked on what it serves, and a blocked process
//! does not close its files. It inherits the removal process's standard input, which ends when the lab does, also
//! when the lab is killed.

mod fuse;
mod glance;
mod writer;

pub(super) use fuse::IMAGE;

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    process::{self, Child, Command, Stdio},
    thread,
};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use super::freeze;

/// The task of a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Task {
    /// A FUSE server that never answers.
    Silent,
    /// A FUSE server with a disk image. Once the trigger exists, each write is slow.
    Slow,
    /// A FUSE server with a disk image. Once the trigger exists, it stops at the first write.
    Stops,
    /// Thaws a file system at the end.
    Thaw,
    /// Keeps a socket open on which it accepts no connection.
    Listen,
    /// Writes files into a directory repeatedly.
    Write,
    /// Keeps a directory open until shortly after the trigger is gone, repeatedly.
    Glance,
}

/// Options of the helper process of a lab case.
#[derive(Clone, Debug, Args)]
pub struct HelperArgs {
    /// What it does
    #[arg(long, value_enum)]
    task: Task,
    /// The disk image behind a FUSE server
    #[arg(long, default_value = "/dev/null")]
    image: PathBuf,
    /// The file that, once it exists, makes the disk slow or stop
    #[arg(long, default_value = "/nonexistent")]
    trigger: PathBuf,
    /// What the registrar of a CSI driver hands to kubelet
    #[arg(long)]
    kubelet_registration_path: Option<PathBuf>,
    /// Where it writes
    #[arg(long, default_value = "/nonexistent")]
    directory: PathBuf,
}

impl HelperArgs {
    /// For a task without an image.
    pub(super) fn new(task: Task) -> Self {
        Self::disk(task, "/dev/null".into(), "/nonexistent".into())
    }

    /// For the registrar of a driver that listens on this socket.
    pub(super) fn registrar(socket: PathBuf) -> Self {
        Self { kubelet_registration_path: Some(socket), ..Self::new(Task::Listen) }
    }

    /// For a FUSE server with a disk image.
    pub(super) fn disk(task: Task, image: PathBuf, trigger: PathBuf) -> Self {
        let directory = "/nonexistent".into();
        Self { task, image, trigger, kubelet_registration_path: None, directory }
    }

    /// For a process that writes into a directory.
    pub(super) fn writer(directory: PathBuf) -> Self {
        Self { directory, ..Self::new(Task::Write) }
    }

    /// For a process that keeps a directory open while a file exists.
    pub(super) fn reader(directory: PathBuf, while_there: PathBuf) -> Self {
        Self { directory, trigger: while_there, ..Self::new(Task::Glance) }
    }
}

/// A running helper. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Helper(Child);

impl Helper {
    /// Starts a helper. `on`, the object that it works on, becomes its standard output.
    pub(super) fn start(args: &HelperArgs, on: OwnedFd) -> Result<Self> {
        let task = args.task.to_possible_value().context("a task without a name")?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["lab-helper", "--task", task.get_name()])
            .arg("--image")
            .arg(&args.image)
            .arg("--trigger")
            .arg(&args.trigger)
            .arg("--directory")
            .arg(&args.directory)
            .stdin(Stdio::inherit())
            .stdout(Stdio::from(on));
        if let Some(path) = &args.kubelet_registration_path {
            command.arg("--kubelet-registration-path").arg(path);
        }
        Ok(Self(command.spawn().context("cannot start the helper process")?))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a helper until the lab ends.
///
/// # Errors
/// Fails if the disk image cannot be opened, or if the kernel rejects the operation on standard output; the message
/// names it.
pub fn helper_main(args: &HelperArgs) -> Result<()> {
    let on = io::stdout().as_fd().try_clone_to_owned().context("cannot use standard output")?;
    match args.task {
        Task::Thaw => {
            wait_for_end();
            return freeze::thaw(&on);
        }
        Task::Listen => {
            wait_for_end();
            return Ok(());
        }
        Task::Silent | Task::Slow | Task::Stops | Task::Write | Task::Glance => {}
    }
    thread::Builder::new()
        .spawn(|| {
            wait_for_end();
            // The exit closes the connection, which releases processes that wait for an answer.
            process::exit(0);
        })
        .context("cannot start a thread")?;
    if args.task == Task::Write {
        writer::write(&args.directory);
    }
    if args.task == Task::Glance {
        glance::read(&args.directory, &args.trigger);
    }
    fuse::serve(args.task, &args.image, args.trigger.clone(), on)
}

/// Waits until standard input has no writer left. Does not read it, because its lines are for the removal process.
fn wait_for_end() {
    let input = io::stdin();
    loop {
        let mut hung_up = [PollFd::new(&input, PollFlags::empty())];
        match poll(&mut hung_up, None) {
            Ok(_) => return,
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
