//! The program.

use std::process::ExitCode;

use clap::Parser;
use podstuck_agent::{cli::Cli, run, uninstall};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(shown) => {
            let _ = shown.print();
            return if shown.use_stderr() { 2 } else { 0 }.into();
        }
    };
    let ended = match &cli.pin {
        Some(top) if cli.uninstall => uninstall::uninstall(top),
        _ => run::run(cli).await,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("podstuck-agent: {error:#}");
            3.into()
        }
    }
}
