//! The program that kubectl calls for `kubectl podstuck`.

use std::{
    io::{self, ErrorKind, Write},
    process,
};

use clap::Parser;
use podstuck_cluster::{
    cli::Cli,
    examine::{self, End, OwnPod},
    run::{self, Examination, Outcome},
};
use podstuck_model::{
    exit::{Exit, Failure},
    path::safe,
};

fn main() {
    let cli = Cli::try_parse().unwrap_or_else(|shown| shown.exit());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let status = match runtime {
        Ok(runtime) => runtime.block_on(answer(&cli)),
        Err(error) => {
            eprintln!("kubectl podstuck: cannot start: {error}");
            3
        }
    };
    // At once: what still waits for standard output must not keep a program that was ended.
    process::exit(status.into());
}

async fn answer(cli: &Cli) -> u8 {
    match run::run(cli).await {
        Ok(outcome) => shown(cli, outcome).await,
        Err(failure) => failed(&failure),
    }
}

async fn shown(cli: &Cli, Outcome { text, exit, examine }: Outcome) -> u8 {
    let print = examine.as_ref().filter(|_| cli.print);
    let text = print.map_or(text, |it| it.own.iter().map(manifest).collect());
    let is_printed = print.is_some();
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // What read the pipe has seen enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("kubectl podstuck: cannot write to standard output: {error}");
            return Exit::Unwritten.into();
        }
        Err(_) => return exit.into(),
        Ok(()) if is_printed => return 0,
        Ok(()) => drop(out),
    }
    match examine {
        Some(examination) => examined(cli, exit.into(), examination).await,
        None => exit.into(),
    }
}

/// One JSON document; several of them are what kubectl takes, too.
fn manifest(own: &OwnPod) -> String {
    serde_json::to_string_pretty(&own.manifest()).unwrap_or_default() + "\n"
}

async fn examined(cli: &Cli, exit: u8, Examination { client, own }: Examination) -> u8 {
    let mut out = tokio::io::stdout();
    let seconds = cli.wait.unwrap_or(60);
    let ended = match (&own[..], &cli.target) {
        ([own], target) if target.is_some() || cli.pod_uid.is_some() => {
            examine::examine(&client, own, seconds, &mut out, std::future::pending()).await
        }
        _ => {
            let at_a_time = cli.nodes_at_a_time.into();
            Ok(examine::all(&client, own, at_a_time, seconds, exit, &mut out).await)
        }
    };
    match ended {
        Ok(End::Answered(status) | End::Interrupted(status)) => status,
        Ok(End::Unread) => Exit::Unwritten.into(),
        Err(failure) => failed(&failure),
    }
}

fn failed(failure: &Failure) -> u8 {
    eprintln!("kubectl podstuck: {}", safe(failure.to_string().as_bytes()));
    failure.exit_status()
}
