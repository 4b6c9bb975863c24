//! The program that kubectl runs for `kubectl podstuck`.

use std::{
    io::{self, ErrorKind, Write},
    process,
};

use clap::Parser;
use podstuck_cluster::{
    cli::Cli,
    examine::{self, Done, End, OwnPod},
    progress::Progress,
    run::{self, Examination, Outcome},
};
use podstuck_model::{
    exit::{Exit, Failure},
    path::safe,
};
use tokio::io::AsyncWriteExt;

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
    // Exits at once: a thread that is blocked on standard output must not keep the program running.
    process::exit(status.into());
}

async fn answer(cli: &Cli) -> u8 {
    match run::run(cli).await {
        Ok(outcome) => shown(cli, outcome).await,
        Err(failure) => failed(&failure),
    }
}

async fn shown(cli: &Cli, Outcome { mut report, exit, examine }: Outcome) -> u8 {
    let exit = exit.into();
    if cli.print
        && let Some(it) = &examine
    {
        let manifests: String = it.own.iter().map(manifest).collect();
        return printed(&manifests, 0).err().unwrap_or(0);
    }
    let Some(Examination { client, own }) = examine else {
        return printed(&run::shown(cli, &report), exit).err().unwrap_or(exit);
    };
    let seconds = cli.wait.unwrap_or(60);
    let at_a_time = cli.nodes_at_a_time.into();
    // With options of its own, podstuck on the node also chooses the form of its answer.
    let is_verbatim = !cli.reads_answers() || report.answers.is_empty();
    if cli.output.is_document() {
        let take = async |done: Done| {
            report.examined.push(done.read());
            true
        };
        let end = examine::all(&client, own, at_a_time, seconds, exit, take).await;
        let exit = status(&end);
        return printed(&run::shown(cli, &report), exit).err().unwrap_or(exit);
    }
    let mut out = tokio::io::stdout();
    if let ([own], true) = (&own[..], cli.target.is_some() || cli.pod_uid.is_some()) {
        let never = std::future::pending();
        let ended = if is_verbatim {
            if let Err(status) = printed(&run::shown(cli, &report), exit) {
                return status;
            }
            examine::examine(&client, own, seconds, &mut out, never).await
        } else {
            let mut said = Vec::new();
            let progress = Progress::examining(&own.node);
            let ended = examine::examine(&client, own, seconds, &mut said, never).await;
            drop(progress);
            report.examines = false;
            if let Ok(End::Answered(status)) = &ended {
                report.examined.push(Done::new(own.clone(), said, Ok(*status)).read());
            }
            let is_over = matches!(&ended, Ok(End::Interrupted(_) | End::Unread));
            if !is_over && let Err(status) = printed(&run::shown(cli, &report), exit) {
                return status;
            }
            ended
        };
        return match ended {
            // The API server has shown a cause that the node does not show.
            Ok(End::Answered(status))
                if status == u8::from(Exit::Unexplained) && exit == u8::from(Exit::Found) =>
            {
                exit
            }
            Ok(end) => status(&end),
            // The API server's answer is sufficient unless the user asked for the node's answer explicitly.
            Err(failure) if !cli.examine && cli.node.is_none() => {
                failed(&failure);
                eprintln!("kubectl podstuck: --no-examine asks only the API server");
                exit
            }
            Err(failure) => failed(&failure),
        };
    }
    if let Err(status) = printed(&run::shown(cli, &report), exit) {
        return status;
    }
    let take = async |done: Done| {
        let text = if is_verbatim || done.has_failed() {
            done.text()
        } else {
            let said = done.read();
            report.examined.push(said.clone());
            run::examined(cli, &report, &said).into_bytes()
        };
        out.write_all(&text).await.and(out.flush().await).is_ok()
    };
    status(&examine::all(&client, own, at_a_time, seconds, exit, take).await)
}

/// Writes the text. If that fails, the run ends with the returned exit status.
fn printed(text: &str, exit: u8) -> Result<(), u8> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        // The reader has closed the pipe.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(exit),
        Err(error) => {
            eprintln!("kubectl podstuck: cannot write to standard output: {error}");
            Err(Exit::Unwritten.into())
        }
    }
}

/// The manifest as one JSON document. kubectl also accepts several in a row.
fn manifest(own: &OwnPod) -> String {
    serde_json::to_string_pretty(&own.manifest()).unwrap_or_default() + "\n"
}

fn status(end: &End) -> u8 {
    match end {
        End::Answered(status) | End::Interrupted(status) => *status,
        End::Unread => Exit::Unwritten.into(),
    }
}

fn failed(failure: &Failure) -> u8 {
    eprintln!("kubectl podstuck: {}", safe(failure.to_string().as_bytes()));
    failure.exit_status()
}
