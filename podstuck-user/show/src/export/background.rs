//! Exports from a thread of its own, which renders the files and hands them to the writing process: a disk that does
//! not answer then delays the files, and nothing else.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use jiff::Timestamp;

use super::{
    ExportError, Snapshot,
    process::{self, Writer},
};
use podstuck_confine::role::Role;
use podstuck_model::{
    finding::Finding,
    series::{NamesTable, SeriesTable},
    summary::Completeness,
    totals::Totals,
};

/// A file of another module, rendered by the thread: its name, and the function that renders it.
pub type Page = (&'static str, Box<dyn FnOnce() -> Result<Vec<u8>, ExportError> + Send>);

/// The data of one export, to be handed to the thread.
pub struct Shot {
    /// See [`Snapshot`].
    pub by_target: Option<(Arc<SeriesTable>, Arc<NamesTable>)>,
    /// See [`Snapshot`].
    pub totals: Totals,
    /// See [`Snapshot`].
    pub findings: Vec<Finding>,
    /// See [`Snapshot`].
    pub completeness: Completeness,
    /// See [`Snapshot`].
    pub window: Duration,
    /// See [`Snapshot`].
    pub start: Timestamp,
    /// Other files.
    pub pages: Vec<Page>,
}

enum Job {
    Append(String),
    Write(Box<Shot>),
    /// Signals that all earlier jobs are done.
    Done(Sender<()>),
}

/// The handle of the thread.
#[derive(Debug)]
pub struct Background {
    jobs: Sender<Job>,
    /// Whether files are being replaced, or queued for it.
    busy: Arc<AtomicBool>,
    /// Id of the writing process.
    writer: Option<u32>,
}

impl Background {
    /// Starts the thread.
    pub fn start(writer: Writer) -> std::io::Result<Self> {
        let (jobs, queue) = channel();
        let busy = Arc::new(AtomicBool::new(false));
        let (mine, id) = (busy.clone(), writer.id());
        thread::Builder::new().name("export".into()).spawn(move || serve(writer, &queue, &mine))?;
        Ok(Self { jobs, busy, writer: id })
    }

    /// Adds a line to `findings.jsonl`.
    pub fn append(&self, line: String) {
        self.send(Job::Append(line));
    }

    /// Replaces the other files, unless that is still in progress: then the shot is not even taken.
    pub fn renew(&self, shot: impl FnOnce() -> Shot) {
        if !self.busy.swap(true, Relaxed) {
            self.send(Job::Write(Box::new(shot())));
        }
    }

    /// Writes the files for the last time.
    ///
    /// # Errors
    /// Fails when the process still writes at the limit, or has ended.
    pub fn finish(&self, shot: Shot, limit: Duration) -> Result<(), String> {
        let (sender, done) = channel();
        self.send(Job::Write(Box::new(shot)));
        self.send(Job::Done(sender));
        done.recv_timeout(limit).map_err(|error| match (error, self.writer) {
            (RecvTimeoutError::Timeout, Some(writer)) => {
                format!("process {writer} of podstuck still waits for the disk, after {limit:?}")
            }
            (RecvTimeoutError::Timeout, None) => format!("no answer within {limit:?}"),
            (RecvTimeoutError::Disconnected, _) => "the process that writes has ended".into(),
        })
    }

    fn send(&self, job: Job) {
        // If the thread has ended, `finish` reports it.
        let _ = self.jobs.send(job);
    }
}

fn serve(mut writer: Writer, jobs: &Receiver<Job>, busy: &AtomicBool) {
    Role::WriteOpen.assume();
    for job in jobs {
        let written = match job {
            Job::Append(line) => tell(&mut writer, &process::Job::Append(line)),
            Job::Write(shot) => {
                let written = write(&mut writer, *shot);
                busy.store(false, Relaxed);
                written
            }
            Job::Done(done) => {
                let _ = done.send(());
                Ok(())
            }
        };
        if let Err(error) = written {
            tracing::warn!("the export has ended: {error}");
            return;
        }
    }
}

fn write(writer: &mut Writer, shot: Shot) -> io::Result<()> {
    let snapshot = Snapshot {
        by_target: shot.by_target.as_ref().map(|(series, names)| (&**series, &**names)),
        totals: &shot.totals,
        findings: &shot.findings,
        completeness: &shot.completeness,
        window: shot.window,
        start: shot.start,
    };
    // A failed file does not keep the others from being written.
    let pages = shot.pages.into_iter().map(|(name, render)| Ok((name, render()?)));
    for file in snapshot.files().chain(pages) {
        match file {
            Ok((name, bytes)) => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                tell(writer, &process::Job::Replace(name.into(), text))?;
            }
            Err(error) => tracing::warn!("{:#}", anyhow::Error::from(error)),
        }
    }
    Ok(())
}

/// A failed export must not end the run: findings are printed all the same.
fn tell(writer: &mut Writer, job: &process::Job) -> io::Result<()> {
    writer.tell(job)?.unwrap_or_else(|error| tracing::warn!("{error:#}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::{process::tests::writer, sample};

    #[test]
    fn everything_is_there_when_it_has_finished() {
        let dir = tempfile::tempdir().unwrap();
        let background = Background::start(writer(dir.path()).unwrap()).unwrap();
        background.append("{}\n".into());
        let shot = || Shot {
            by_target: Some((sample::table().into(), NamesTable::new().into())),
            totals: Totals::default(),
            findings: Vec::new(),
            completeness: Completeness::default(),
            window: Duration::from_secs(1),
            start: sample::start(),
            pages: vec![("page.html", Box::new(|| Ok(b"<p>".to_vec())))],
        };
        background.renew(shot);
        background.finish(shot(), Duration::from_secs(30)).unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("page.html")).unwrap(), "<p>");
        assert_eq!(std::fs::read_to_string(dir.path().join("findings.jsonl")).unwrap(), "{}\n");
        assert!(dir.path().join("metrics.prom").exists());
    }

    #[test]
    fn no_shot_is_taken_while_the_writer_is_busy() {
        let (jobs, queue) = channel();
        let busy = Arc::new(AtomicBool::new(true));
        Background { jobs, busy, writer: None }.renew(|| unreachable!("the disk does not keep up"));
        assert!(queue.try_recv().is_err());
    }
}
