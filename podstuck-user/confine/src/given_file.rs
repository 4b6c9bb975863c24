//! Files that are named on the command line, or lie in a directory that is. Another user may have made the file: one
//! without an end, or one that waits for a writer, must not block a command.

use std::{
    fs::{File, FileType, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::Path,
};

use rustix::fs::OFlags;

/// Opens a file to read it.
///
/// # Errors
/// Fails where it is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // A pipe without a writer would block the call; a terminal must not become the controlling one.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let flags = i32::try_from(flags).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    let why = format!("it is {}, not a regular file", name(kind));
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// Reads a file of at most `most` bytes.
///
/// # Errors
/// Fails where it cannot be read, is no regular file, or is longer.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    // It may grow, or report less than it has, as files of `/proc` do.
    if file.metadata()?.len() <= most {
        file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 <= most {
            return Ok(bytes);
        }
    }
    Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {most} bytes")))
}

fn name(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(test)]
mod tests {
    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    #[test]
    fn only_a_regular_file_is_read_and_none_waits() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        let refused = |path: &Path| open(path).unwrap_err().to_string();
        assert_eq!(refused(&pipe), "it is a pipe, not a regular file");
        assert_eq!(refused("/dev/zero".as_ref()), "it is a device, not a regular file");
        assert_eq!(refused(directory.path()), "it is a directory, not a regular file");
        assert!(open("/proc/self/status".as_ref()).is_ok());
    }

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert_eq!(read(&path, 4).unwrap_err().to_string(), "it is longer than 4 bytes");
        // A sparse file.
        File::create(&path).unwrap().set_len(20 << 30).unwrap();
        assert!(read(&path, 1 << 20).is_err());
        assert!(read("/proc/self/status".as_ref(), 10).is_err(), "it says that it is empty");
    }
}
