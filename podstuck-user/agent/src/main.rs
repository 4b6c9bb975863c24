//! The program.

use std::process::ExitCode;

use clap::Parser;
use podstuck_agent::{cli::Cli, run};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(shown) => {
            let _ = shown.print();
            return if shown.use_stderr() { 2 } else { 0 }.into();
        }
    };
    match run::run(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("podstuck-agent: {error:#}");
            3.into()
        }
    }
}
