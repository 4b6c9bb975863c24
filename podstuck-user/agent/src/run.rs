//! The agent's loop.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch as pages},
    time::interval,
};

use crate::{
    cli::Cli,
    events::Events,
    health::Health,
    line::Line,
    log::Log,
    metrics, privilege,
    reporter::Reporter,
    serve::{Pages, serve},
    watch::Watch,
};

/// Interval at which the agent checks for a due write.
const TICK: Duration = Duration::from_secs(1);
/// Number of ticks after which the agent runs the self-test and renews its pages.
const PAGES: u32 = 5;
/// File of the watch's metrics, below the export directory.
const METRICS: &str = "node-metrics.txt";
/// The same as protobuf.
const PROTOBUF: &str = "node-metrics.pb";
/// Its line that the counts do not outlive the watch although they are to.
const NOT_KEPT: &str = "podstuck_counts_kept 0";
/// Maximum size of the watch's metrics that is read, in bytes.
const LARGEST: u64 = 4 << 20;

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// Fails if the agent cannot start, and when the watch ends.
pub async fn run(cli: Cli) -> Result<()> {
    let named = cli.node.clone().or_else(|| std::env::var("NODE_NAME").ok());
    let Some(node) = named.or_else(|| cli.no_events.then(String::new)) else {
        bail!(
            "--node NAME (or NODE_NAME) is required, because Events name the node; --no-events needs neither"
        )
    };
    let listener = TcpListener::bind(cli.listen)
        .await
        .with_context(|| format!("cannot listen on {}", cli.listen))?;
    let export = cli.directory.join("export");
    directory(&cli.directory)?;
    // The metrics of the previous watch do not apply to this one.
    for file in [METRICS, PROTOBUF] {
        let _ = fs::remove_file(export.join(file));
    }
    let log = Log::start().context("cannot start a thread")?;
    let mut watch = Watch::start(&program(&cli)?, &export, cli.pin.as_deref(), &cli.watch)?;
    let watch_id = watch.id();
    // The process that reads the watch's lines keeps none of the watch's privileges.
    privilege::drop_all()?;
    let events = match cli.no_events {
        true => None,
        false => Some(Events::of(&node, cli.kubeconfig.clone()).await?),
    };
    let (sender, mut lines) = mpsc::channel(64);
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let reader = tokio::spawn(async move {
        let mut line = Vec::new();
        loop {
            tokio::select! {
                read = watch.line(&mut line) => match read {
                    Ok(true) => if sender.send(std::mem::take(&mut line)).await.is_err() { break },
                    _ => break,
                },
                _ = &mut stopped => {
                    watch.stop();
                    break;
                }
            }
        }
        watch
    });
    let (publish, published) = pages::channel(Pages::default());
    tokio::spawn(serve(listener, published));
    let mut agent = Agent {
        reporter: Reporter::new(&node, events, cli.directory.clone()),
        health: Health::new(cli.directory.join("self-test")),
        log,
        began: Instant::now(),
        export,
        watch: watch_id,
    };
    let (mut terminated, mut interrupted) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (mut ticks, mut turn) = (interval(TICK), 0_u32);
    let is_asked_to_end = loop {
        tokio::select! {
            line = lines.recv() => match line {
                Some(line) => agent.take(line),
                None => break false,
            },
            _ = ticks.tick() => {
                agent.reporter.write_due(agent.now());
                if turn.is_multiple_of(PAGES) {
                    publish.send_replace(agent.pages());
                }
                turn = turn.wrapping_add(1);
            },
            written = agent.reporter.written() => if let Some(written) = written {
                agent.reporter.wrote(written, agent.now());
            },
            _ = terminated.recv() => break true,
            _ = interrupted.recv() => break true,
        }
    };
    agent.reporter.save();
    let _ = stop.send(());
    let status = match reader.await {
        Ok(watch) => watch.end().await,
        Err(error) => error.to_string(),
    };
    if is_asked_to_end { Ok(()) } else { bail!("`podstuck watch` has ended: {status}") }
}

struct Agent {
    reporter: Reporter,
    health: Health,
    log: Log,
    began: Instant,
    export: PathBuf,
    watch: Option<u32>,
}

impl Agent {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn take(&mut self, line: Vec<u8>) {
        match serde_json::from_slice(&line) {
            Ok(Line::Start {}) => self.health.is_counting = true,
            Ok(Line::Finding(finding)) => {
                self.reporter.board.take(&finding, self.began.elapsed(), fastrand::f64());
            }
            Ok(Line::Other) => {}
            Err(error) => {
                eprintln!("podstuck-agent: cannot parse a line of `podstuck watch`: {error}")
            }
        }
        self.log.line(line);
    }

    fn pages(&mut self) -> Pages {
        let now = self.now();
        self.health.test(now);
        let of_watch = read(&self.export.join(METRICS)).and_then(|it| String::from_utf8(it).ok());
        let of_watch = of_watch.unwrap_or_default();
        self.health.read(&of_watch, now);
        let unhealthy = self.health.check(now).err();
        let own = metrics::own(&metrics::State {
            board: &self.reporter.board,
            is_well: unhealthy.is_none(),
            lines_lost: self.log.lost(),
            api_errors: self.reporter.api_errors,
            watch: self.watch,
        });
        let begins_again = of_watch.lines().any(|line| line == NOT_KEPT);
        let is_ready = self.health.is_ready();
        let protobuf = read(&self.export.join(PROTOBUF));
        let protobuf = protobuf.map(|of_watch| [of_watch, own.protobuf()].concat().into());
        let metrics = (of_watch + &own.text().unwrap_or_default()).into();
        Pages { metrics, protobuf, unhealthy, is_ready, begins_again }
    }
}

/// A file of the watch's metrics; `None` if it does not exist or is too large.
fn read(path: &Path) -> Option<Vec<u8>> {
    let is_small = fs::metadata(path).is_ok_and(|metadata| metadata.len() <= LARGEST);
    is_small.then(|| fs::read(path).ok()).flatten()
}

/// Creates the directory. It must belong to this user: in another user's directory, a file that the agent writes may
/// be a link to elsewhere.
fn directory(path: &Path) -> Result<()> {
    let failed = || format!("cannot create {}", path.display());
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o755).create(path).with_context(failed)?;
    let found = fs::symlink_metadata(path).with_context(failed)?;
    let is_own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    if !is_own || found.mode() & 0o022 != 0 {
        bail!(
            "{} is not a directory that only the agent's user can write: name one with --directory",
            path.display()
        );
    }
    Ok(())
}

/// The `podstuck` program: the named one, or the one beside the agent.
fn program(cli: &Cli) -> Result<PathBuf> {
    if let Some(named) = &cli.podstuck {
        return Ok(named.clone());
    }
    let own = std::env::current_exe().context("cannot find the agent's own file")?;
    let beside = own.with_file_name("podstuck");
    let is_there = beside.is_file();
    if is_there { Ok(beside) } else { Ok("podstuck".into()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let own = top.path().join("a/b");
        assert!(directory(&own).is_ok() && directory(&own).is_ok());
        symlink(&own, top.path().join("link")).unwrap();
        assert!(directory(&top.path().join("link")).is_err());
        fs::set_permissions(&own, PermissionsExt::from_mode(0o777)).unwrap();
        let why = directory(&own).unwrap_err().to_string();
        assert!(why.contains("--directory"), "{why}");
    }
}
