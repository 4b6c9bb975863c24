//! The process that writes a recording, and its protocol: a line of JSON with the name of the file, then its
//! contents. It answers with a line when the file is created, and with one when all is on the disk. In the kernel it
//! may wait for that for ever, and no signal ends it: so a process that must be able to end cannot do this itself.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    net::Shutdown,
    os::unix::{fs::OpenOptionsExt, net::UnixStream},
    path::Path,
};

use anyhow::{Context, Result};
use nix::libc;

use podstuck_confine::{
    fork_server::lines::{BEGIN, heard, put},
    role::Role,
};

/// Limit of the line with the file name: `PATH_MAX`, each byte as a number.
const LONGEST: u64 = 32 << 10;

/// The result of a step, or the errno.
type Done = Result<(), i32>;

/// Writes all input until the client closes the channel.
///
/// # Errors
/// Fails when the client has closed the channel.
pub fn serve(channel: UnixStream) -> Result<()> {
    let mut input = BufReader::new(channel.try_clone()?);
    let mut line = String::new();
    input.by_ref().take(LONGEST).read_line(&mut line)?;
    let path: OsString = serde_json::from_str(&line).context("the name of the file")?;
    let created = create(Path::new(&path));
    Role::WriteOpen.assume();
    let mut file = match created {
        Ok(file) => file,
        Err(error) => return Ok(say(&channel, Err(error))?),
    };
    say(&channel, Ok(()))?;
    let written = io::copy(&mut input, &mut file).and_then(|_| file.sync_all());
    Ok(say(&channel, written)?)
}

/// Creates the file, readable only by its owner.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)
}

fn say(channel: &UnixStream, done: io::Result<()>) -> io::Result<()> {
    let done: Done = done.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO));
    put(channel, &done)
}

/// The client's end of the file that the process writes.
pub(super) struct RecordFile(UnixStream);

impl RecordFile {
    /// Makes the process create the file.
    ///
    /// # Errors
    /// Fails when the file exists, cannot be created, or when that takes too long.
    pub(super) fn create(channel: UnixStream, path: &Path) -> io::Result<Self> {
        put(&channel, &path.as_os_str())?;
        channel.set_read_timeout(Some(BEGIN))?;
        let file = Self(channel);
        file.answer()?;
        // From now on only a thread of its own waits for it.
        file.0.set_read_timeout(None)?;
        file.0.set_write_timeout(None)?;
        Ok(file)
    }

    /// Ends the file, and waits until all is on the disk.
    ///
    /// # Errors
    /// Fails when the disk does.
    pub(super) fn finish(self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Write)?;
        self.answer()
    }

    fn answer(&self) -> io::Result<()> {
        // It sends nothing further before it gets more input.
        let done: Done = heard(&mut BufReader::new(&self.0))?;
        done.map_err(io::Error::from_raw_os_error)
    }
}

impl Write for RecordFile {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        // A process that has ended has sent its error.
        self.0.write(part).map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                self.answer().err().unwrap_or(error)
            }
            _ => error,
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{thread, time::Duration};

    use super::*;

    /// Runs the server in a thread, which restricts itself like that process.
    pub(in crate::recording) fn served() -> UnixStream {
        let (channel, theirs) = UnixStream::pair().unwrap();
        thread::spawn(|| serve(theirs));
        channel
    }

    #[test]
    fn all_input_is_in_the_file_when_the_process_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut file = RecordFile::create(served(), &path).unwrap();
        file.write_all(b"text").unwrap();
        file.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"text");
    }

    #[test]
    fn a_full_disk_is_the_reason() {
        let (mut channel, theirs) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            let mut input = BufReader::new(theirs.try_clone().unwrap());
            let mut full = OpenOptions::new().write(true).open("/dev/full").unwrap();
            let written = io::copy(&mut input, &mut full).map(drop);
            say(&theirs, written).unwrap();
        });
        channel.write_all(b"x").unwrap();
        let mut file = RecordFile(channel);
        let error = loop {
            match file.write_all(b"text") {
                Ok(()) => thread::sleep(Duration::from_millis(1)),
                Err(error) => break error,
            }
        };
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
    }
}
