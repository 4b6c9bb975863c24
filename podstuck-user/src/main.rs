//! The binary: reads the command line and hands it to a command.

use std::{
    io::{self, Write},
    os::unix::net::UnixStream,
    process::ExitCode,
};

use clap::CommandFactory;
use clap_complete::CompleteEnv;
use podstuck::{
    cli::{Cli, Command},
    commands::{
        compare, diagnose, doctor, explain, holders, lab, list, man, npd, replay, report, separate,
        watch,
    },
    interrupt,
    logging::{self, Unwaiting},
    model::path::safe,
    outcome::{Exit, Failure},
    standard_output,
};
use podstuck_confine::{
    fork_server::{self, Work},
    privilege,
};
use podstuck_node::state::{logs, questions};
use podstuck_show::{export, recording};

fn main() -> ExitCode {
    // A shell's request for completion; it does nothing else.
    CompleteEnv::with_factory(Cli::command).complete();
    interrupt::unblock();
    let cli = match Cli::of_arguments() {
        Ok(cli) => cli,
        Err(shown) if shown.use_stderr() => {
            let _ = shown.print();
            return ExitCode::from(2);
        }
        Err(help) => {
            standard_output::written(help.print().and_then(|()| io::stdout().flush()));
            return u8::from(standard_output::exit(Exit::Clean)).into();
        }
    };
    logging::start(cli.verbose);
    // These programs have their own privileges, credentials and processes.
    match &cli.command {
        Some(Command::Cluster(options)) => {
            return report_failure(&separate::cluster(&options.arguments));
        }
        Some(Command::Agent(options)) => {
            return report_failure(&separate::agent(&options.arguments));
        }
        _ => {}
    }
    // Labs mount, and run programs that do.
    let is_lab = matches!(
        &cli.command,
        Some(Command::Lab(_) | Command::LabRemoval(_) | Command::LabHelper(_))
    );
    if !is_lab {
        privilege::gain_nothing();
    }
    if let Err(error) = begin(cli.command.as_ref()) {
        return report_failure(&Failure::CannotRun(error));
    }
    let Some(command) = cli.command else {
        return ended(list::run(cli.alone, cli.verbose));
    };
    let result = match command {
        Command::Watch(options) => watch::run(options, cli.verbose),
        Command::Diagnose(options) => diagnose::run(options, cli.verbose),
        Command::Replay(options) => replay::run(options),
        Command::Report(options) => report::run(options),
        Command::Compare(options) => compare::run(&options),
        Command::Holders(options) => holders::run(options),
        Command::Explain(options) => explain::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Lab(options) => lab::run(&options),
        Command::LabRemoval(options) => lab::removal(&options),
        Command::LabHelper(options) => lab::helper(&options),
        Command::Man(options) => man::run(&options),
        Command::Cluster(options) => Err(separate::cluster(&options.arguments)),
        Command::Agent(options) => Err(separate::agent(&options.arguments)),
        // Its exit status has another meaning.
        Command::Check(options) => return npd::run(options).into(),
        Command::Look => questions::serve().map(|()| Exit::Clean).map_err(Failure::CannotRun),
    };
    ended(result)
}

fn ended(result: Result<Exit, Failure>) -> ExitCode {
    fork_server::end();
    match result {
        Ok(exit) => u8::from(standard_output::exit(exit)).into(),
        Err(failure) => report_failure(&failure),
    }
}

/// Prepares what must be done while there is one thread.
fn begin(command: Option<&Command>) -> anyhow::Result<()> {
    match command {
        None
        | Some(
            Command::Watch(_) | Command::Diagnose(_) | Command::Holders(_) | Command::Doctor(_),
        ) => {
            fork_server::stay_in_memory();
            fork_server::start(work, logs::prepare)
        }
        // It scans nothing, but may export.
        Some(Command::Replay(_)) => fork_server::start(work, logs::prepare),
        _ => Ok(()),
    }
}

/// The work of a process of the fork server.
fn work(work: Work, channel: UnixStream) -> anyhow::Result<()> {
    match work {
        Work::Look => questions::serve_through(&channel),
        Work::Export => export::serve(channel),
        Work::Record => recording::serve(channel),
        Work::Hold => fork_server::serve_held(channel),
    }
}

fn report_failure(failure: &Failure) -> ExitCode {
    // It may quote a file, a log or a name. A closed terminal does not change the exit status.
    let error = failure.to_string();
    let _ = writeln!(Unwaiting, "podstuck: {}", safe(error.as_bytes()));
    failure.exit_status().into()
}
