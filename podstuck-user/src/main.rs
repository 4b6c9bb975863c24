//! The binary: reads the command line and hands it to a command.

use std::{io::Write, process::ExitCode};

use clap::Parser;
use podstuck::{
    cli::{Cli, Command},
    commands::{Exit, Failure, diagnose, doctor, explain, holders, interrupt, lab, replay, watch},
    kernel::privilege,
    model::path::safe,
    state::helper,
};

fn main() -> ExitCode {
    interrupt::unblock();
    let cli = Cli::parse();
    podstuck::logging::start(cli.verbose);
    // Labs mount, and run programs that do.
    let is_lab =
        matches!(cli.command, Command::Lab(_) | Command::LabRemoval(_) | Command::LabHelper(_));
    if !is_lab {
        privilege::gain_nothing();
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
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => {
            // It may quote a file, a log or a name. A terminal that is gone is no reason for another status.
            let error = failure.to_string();
            let _ = writeln!(std::io::stderr(), "podstuck: {}", safe(error.as_bytes()));
            failure.exit_code()
        }
    }
}
