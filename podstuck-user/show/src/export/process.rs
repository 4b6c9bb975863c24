//! The process that writes the export directory, and its protocol: a line of JSON for each job, and one for its
//! result. In the kernel it may wait for a frozen or dead disk for ever, and no signal ends that: so a process that
//! must be able to end cannot do this itself.

use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader},
    os::unix::net::UnixStream,
    path::Path,
};

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};

use super::Exporter;
use podstuck_confine::{
    fork_server::{
        Process, Work,
        lines::{BEGIN, heard, put},
        spawn,
    },
    role::only_write_beneath,
};
use podstuck_model::path::safe_path;

/// A job.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Job {
    /// The first job: opens this directory.
    Open(OsString),
    /// Adds a line to the findings.
    Append(String),
    /// Replaces the contents of a file.
    Replace(String, String),
}

/// The result of a job, or the error.
type Done = Result<(), String>;

/// Does the jobs until the client closes the channel.
///
/// # Errors
/// Fails when a line is no job.
pub fn serve(channel: UnixStream) -> Result<()> {
    let mut jobs = BufReader::new(channel.try_clone()?).lines();
    let mut next = || jobs.next().map(|line| anyhow::Ok(serde_json::from_str(&line?)?)).transpose();
    let say = |done: Result<(), anyhow::Error>| {
        let done: Done = done.map_err(|error| format!("{error:#}"));
        put(&channel, &done)
    };
    let Some(Job::Open(directory)) = next()? else { return Err(anyhow!("no directory")) };
    let mut exporter = match Exporter::new(Path::new(&directory)) {
        Ok(exporter) => exporter,
        Err(error) => return Ok(say(Err(error.into()))?),
    };
    only_write_beneath(exporter.directory());
    say(Ok(()))?;
    while let Some(job) = next()? {
        let done = match job {
            Job::Append(line) => exporter.append(&line).map_err(Into::into),
            Job::Replace(name, text) if Path::new(&name).file_name() == Some(name.as_ref()) => {
                exporter.replace(&name, text.as_bytes()).map_err(Into::into)
            }
            Job::Replace(..) | Job::Open(_) => Err(anyhow!("no name of a file")),
        };
        say(done)?;
    }
    Ok(())
}

/// The client of that process.
#[derive(Debug)]
pub struct Writer {
    channel: UnixStream,
    answers: BufReader<UnixStream>,
    process: Option<Process>,
}

impl Writer {
    /// Starts the process, which creates and locks the directory.
    ///
    /// # Errors
    /// Fails when the directory cannot be created, belongs to another run, or does not answer.
    pub fn start(directory: &Path) -> Result<Self> {
        let (process, channel) = spawn(Work::Export).map_err(|why| anyhow!("the export: {why}"))?;
        let mut writer = Self::through(channel, directory)?;
        writer.process = Some(process);
        Ok(writer)
    }

    /// As [`Self::start`], with a process that is started already.
    pub(super) fn through(channel: UnixStream, directory: &Path) -> Result<Self> {
        channel.set_read_timeout(Some(BEGIN))?;
        let answers = BufReader::new(channel.try_clone()?);
        let mut writer = Self { channel, answers, process: None };
        let opened = writer.tell(&Job::Open(directory.into()));
        opened.with_context(|| format!("the export directory {}", safe_path(directory)))??;
        // From now on only a thread of its own waits for it.
        writer.channel.set_read_timeout(None)?;
        writer.channel.set_write_timeout(None)?;
        Ok(writer)
    }

    /// Sends a job, and waits for its result.
    ///
    /// # Errors
    /// Fails when the process has ended.
    pub(super) fn tell(&mut self, job: &Job) -> io::Result<Result<()>> {
        put(&self.channel, job)?;
        Ok(heard::<Done>(&mut self.answers)?.map_err(|why| anyhow!(why)))
    }

    /// Its process id.
    pub(super) fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::thread;

    use super::*;

    /// Runs the server in a thread, which restricts itself like that process.
    pub(in crate::export) fn writer(directory: &Path) -> Result<Writer> {
        let (channel, theirs) = UnixStream::pair()?;
        thread::spawn(|| serve(theirs));
        Writer::through(channel, directory)
    }

    #[test]
    fn files_are_written_and_nothing_beside_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = writer(&dir.path().join("new")).unwrap();
        let path = |name: &str| dir.path().join("new").join(name);
        writer.tell(&Job::Append("{}\n".into())).unwrap().unwrap();
        writer.tell(&Job::Replace("a.csv".into(), "b".into())).unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(path("findings.jsonl")).unwrap(), "{}\n");
        assert_eq!(std::fs::read_to_string(path("a.csv")).unwrap(), "b");
        for name in ["../a", "/tmp/a", "", ".."] {
            assert!(writer.tell(&Job::Replace(name.into(), "b".into())).unwrap().is_err());
        }
    }

    #[test]
    fn a_missing_directory_is_an_error_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let _first = writer(dir.path()).unwrap();
        let error = writer(dir.path()).unwrap_err();
        assert!(format!("{error:#}").contains("another run"), "{error:#}");
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = writer(&file.join("x")).unwrap_err();
        assert!(format!("{error:#}").contains("Not a directory"), "{error:#}");
    }
}
