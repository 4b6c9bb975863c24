//! The binary: reads the command line and hands it to a command.

use std::{io::Write, os::unix::net::UnixStream, process::ExitCode};

use clap::Parser;
use podstuck::{
    cli::{Cli, Command},
    commands::{Exit, Failure, diagnose, doctor, explain, holders, interrupt, lab, replay, watch},
    export,
    fork_server::{self, Work},
    kernel::privilege,
    logging::{self, Unwaiting},
    model::path::safe,
    recording,
    state::helper,
};

fn main() -> ExitCode {
    interrupt::unblock();
    let cli = Cli::parse();
    logging::start(cli.verbose);
    // Labs mount, and run programs that do.
    let is_lab =
        matches!(cli.command, Command::Lab(_) | Command::LabRemoval(_) | Command::LabHelper(_));
    if !is_lab {
        privilege::gain_nothing();
    }
    if let Err(error) = begin(&cli.command) {
        return told(&Failure::CannotRun(error));
    }
    let result = match cli.command {
        Command::Watch(options) => watch::run(options, cli.verbose),
        Command::Diagnose(options) => diagnose::run(options, cli.verbose),
        Command::Replay(options) => replay::run(options),
        Command::Holders(options) => holders::run(options),
        Command::Explain(options) => explain::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Lab(options) => lab::run(&options),
        Command::LabRemoval(options) => lab::removal(&options),
        Command::LabHelper(options) => lab::helper(&options),
        Command::Look => helper::serve().map(|()| Exit::Clean).map_err(Failure::CannotRun),
    };
    fork_server::end();
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => told(&failure),
    }
}

/// What must be done while there is one thread.
fn begin(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Watch(_) | Command::Diagnose(_) | Command::Holders(_) | Command::Doctor(_) => {
            fork_server::stay_in_memory();
            fork_server::start(work)
        }
        // It looks at nothing, but may export.
        Command::Replay(_) => fork_server::start(work),
        _ => Ok(()),
    }
}

/// What a process of the fork server does.
fn work(work: Work, channel: UnixStream) -> anyhow::Result<()> {
    match work {
        Work::Look => helper::serve_through(&channel),
        Work::Export => export::serve(channel),
        Work::Record => recording::serve(channel),
        Work::Hold => fork_server::serve_held(channel),
    }
}

fn told(failure: &Failure) -> ExitCode {
    // It may quote a file, a log or a name. A terminal that is gone is no reason for another status.
    let error = failure.to_string();
    let _ = writeln!(Unwaiting, "podstuck: {}", safe(error.as_bytes()));
    failure.exit_code()
}
