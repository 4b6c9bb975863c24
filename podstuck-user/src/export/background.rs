//! Exports from a thread of its own: a disk that does not answer then keeps files back, and nothing
//! else.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use jiff::Timestamp;

use super::{Exporter, Snapshot};
use crate::{
    kernel::role::only_write_beneath,
    model::{finding::Finding, series::SeriesTable, summary::Completeness},
};

/// What is written at one moment, to be handed over.
#[derive(Clone, Debug)]
pub struct Shot {
    /// See [`Snapshot`].
    pub series: SeriesTable,
    /// See [`Snapshot`].
    pub findings: Vec<Finding>,
    /// See [`Snapshot`].
    pub completeness: Completeness,
    /// See [`Snapshot`].
    pub window: Duration,
    /// See [`Snapshot`].
    pub start: Timestamp,
}

enum Job {
    Append(String),
    Write(Box<Shot>),
    /// Everything before it is done.
    Done(Sender<()>),
}

/// The thread, from outside.
#[derive(Debug)]
pub struct Background {
    jobs: Sender<Job>,
    /// Whether files are being renewed, or wait for it.
    busy: Arc<AtomicBool>,
}

impl Background {
    /// Starts the thread.
    pub fn start(exporter: Exporter) -> std::io::Result<Self> {
        let (jobs, queue) = channel();
        let busy = Arc::new(AtomicBool::new(false));
        let mine = busy.clone();
        thread::Builder::new()
            .name("export".into())
            .spawn(move || serve(exporter, &queue, &mine))?;
        Ok(Self { jobs, busy })
    }

    /// Adds a line to `findings.jsonl`.
    pub fn append(&self, line: String) {
        self.send(Job::Append(line));
    }

    /// Renews the other files, unless that is still being done: then the shot is not even taken.
    pub fn renew(&self, shot: impl FnOnce() -> Shot) {
        if !self.busy.swap(true, Relaxed) {
            self.send(Job::Write(Box::new(shot())));
        }
    }

    /// Writes the files for the last time. Says whether everything was written within the limit.
    pub fn finish(&self, shot: Shot, limit: Duration) -> bool {
        let (sender, done) = channel();
        self.send(Job::Write(Box::new(shot)));
        self.send(Job::Done(sender));
        done.recv_timeout(limit).is_ok()
    }

    fn send(&self, job: Job) {
        // If the thread has died, `finish` says so.
        let _ = self.jobs.send(job);
    }
}

fn serve(mut exporter: Exporter, jobs: &Receiver<Job>, busy: &AtomicBool) {
    only_write_beneath(exporter.directory());
    for job in jobs {
        let result = match job {
            Job::Append(line) => exporter.append(&line),
            Job::Write(shot) => {
                let result = exporter.write(&Snapshot {
                    series: &shot.series,
                    findings: &shot.findings,
                    completeness: &shot.completeness,
                    window: shot.window,
                    start: shot.start,
                });
                busy.store(false, Relaxed);
                result
            }
            Job::Done(done) => {
                let _ = done.send(());
                Ok(())
            }
        };
        // An export that fails must not end the run: what is found is printed all the same.
        if let Err(error) = result {
            tracing::warn!("{:#}", anyhow::Error::from(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample;

    #[test]
    fn everything_is_there_when_it_has_finished() {
        let dir = tempfile::tempdir().unwrap();
        let background = Background::start(Exporter::new(dir.path()).unwrap()).unwrap();
        background.append("{}\n".into());
        let shot = Shot {
            series: sample::table(),
            findings: Vec::new(),
            completeness: Completeness::default(),
            window: Duration::from_secs(1),
            start: sample::start(),
        };
        background.renew(|| shot.clone());
        assert!(background.finish(shot, Duration::from_secs(30)));
        assert_eq!(std::fs::read_to_string(dir.path().join("findings.jsonl")).unwrap(), "{}\n");
        assert!(dir.path().join("metrics.prom").exists());
    }

    #[test]
    fn a_shot_that_nobody_would_write_is_not_taken() {
        let (jobs, queue) = channel();
        let busy = Arc::new(AtomicBool::new(true));
        Background { jobs, busy }.renew(|| unreachable!("the disk does not keep up"));
        assert!(queue.try_recv().is_err());
    }
}
