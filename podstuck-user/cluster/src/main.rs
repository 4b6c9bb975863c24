//! The program that kubectl calls for `kubectl podstuck`.

use std::{
    io::{self, ErrorKind, Write},
    process::ExitCode,
};

use clap::Parser;
use podstuck_cluster::{cli::Cli, examine, run};
use podstuck_model::path::safe;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(shown) => {
            let _ = shown.print();
            return if shown.use_stderr() { 2 } else { 0 }.into();
        }
    };
    match run::run(&cli).await {
        Ok(outcome) => {
            let mut out = io::stdout().lock();
            let text = if outcome.examine.is_some() && cli.print { "" } else { &outcome.text };
            let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            match written {
                // What read the pipe has seen enough.
                Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                    eprintln!("kubectl podstuck: cannot write to standard output: {error}");
                    6.into()
                }
                _ => match outcome.examine {
                    Some(pod) => {
                        let error = examine::become_script(&cli, &pod);
                        eprintln!("kubectl podstuck: cannot start sh: {error}");
                        3.into()
                    }
                    None => u8::from(outcome.exit).into(),
                },
            }
        }
        Err(failure) => {
            eprintln!("kubectl podstuck: {}", safe(failure.to_string().as_bytes()));
            failure.exit_status().into()
        }
    }
}
