//! How far a log was read, so that the next read takes only what is new.
//!
//! A file is recognised by the bytes before that offset, and not by its name or inode: a log that is rotated is
//! renamed and created again under its name, or copied and truncated. What was written before the rotation and not
//! read yet is in a file in the same directory, whose name begins alike.

use std::{
    cmp::Reverse,
    fs::{self, DirEntry, File},
    io::{self, Read, Seek, SeekFrom},
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Most bytes of a log that are read at a time: an hour and more of a kubelet in trouble, at its usual level.
pub(super) const TAIL: u64 = 8 << 20;
/// The same, in entries of the journal.
const ENTRIES: &str = "--lines=40000";
/// Bytes that identify a file: they contain the times of a few lines.
const LAST: u64 = 256;
/// Most files that are tried as the rotated log.
const ROTATED: usize = 8;
/// Prefix of the last line of journalctl's output (`--show-cursor`).
const CURSOR: &[u8] = b"-- cursor: ";

/// The place up to which a log was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mark {
    /// Number of bytes read of a file, and the last ones of them.
    File { read: u64, last: Vec<u8> },
    /// Cursor of an entry of the journal.
    Journal { cursor: String },
}

impl Mark {
    fn of(file: &File, read: u64) -> io::Result<Self> {
        let mut last = vec![0; usize::try_from(read.min(LAST)).unwrap_or_default()];
        file.read_exact_at(&mut last, read.saturating_sub(LAST))?;
        Ok(Self::File { read, last })
    }

    /// How many bytes of this file were read; `None` where it is not the marked file.
    fn read_of(&self, file: &File) -> Option<u64> {
        let Self::File { read, .. } = self else { return None };
        Self::of(file, *read).is_ok_and(|same| same == *self).then_some(*read)
    }
}

/// What is new in a log.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Whole lines; the first one may be cut where `is_cut`.
    pub(super) text: Vec<u8>,
    /// Whether text between the last read and this one is missing.
    pub(super) is_cut: bool,
    /// Where the next read continues; `None`: from the end of the log.
    pub(super) next: Option<Mark>,
}

/// Reads a text to its end, and returns the last of it ([`last_of`]).
pub(super) type ReadEnd<'a> = &'a mut dyn FnMut(&mut dyn Read) -> io::Result<Vec<u8>>;

/// Reads a file with this path: its end, or what is new since a mark.
pub(super) fn of_file(
    file: &File,
    path: &Path,
    after: Option<&Mark>,
    read: ReadEnd<'_>,
) -> Result<News> {
    let size = file.metadata()?.len();
    let mut news = News::default();
    let from = match after.map(|mark| (mark, mark.read_of(file))) {
        None => size.saturating_sub(TAIL),
        Some((_, Some(from))) => from,
        Some((mark, None)) => {
            match rotated(path, mark) {
                Some((old, from)) => (news.text, _) = rest(&old, from, read)?,
                None => news.is_cut = true,
            }
            0
        }
    };
    let start = from.max(size.saturating_sub(TAIL));
    news.is_cut |= start > from;
    let (text, end) = rest(file, start, read)?;
    news.text.extend(text);
    news.next = Some(Mark::of(file, end)?);
    Ok(news)
}

/// The whole lines from an offset on, and the offset where they end.
fn rest(mut file: &File, from: u64, read: ReadEnd<'_>) -> Result<(Vec<u8>, u64)> {
    file.seek(SeekFrom::Start(from))?;
    // The file may grow meanwhile.
    let mut text = read(&mut file.take(TAIL))?;
    let whole = memchr::memrchr(b'\n', &text).map_or(0, |at| at + 1);
    text.truncate(whole);
    // A process that writes without O_APPEND continues at its old offset in a truncated file, after zeroes.
    let hole = text.iter().take_while(|byte| **byte == 0).count();
    text.drain(..hole);
    Ok((text, from + whole as u64))
}

/// The file that a log was renamed or copied to when it was rotated, and how many bytes of it were read.
fn rotated(path: &Path, mark: &Mark) -> Option<(File, u64)> {
    let (name, stem) = (path.file_name()?, path.file_stem()?.as_bytes());
    let is_alike = |entry: &DirEntry| {
        let other = entry.file_name();
        let is_other = other != name && other.as_bytes().starts_with(stem);
        is_other && entry.file_type().is_ok_and(|kind| kind.is_file())
    };
    let changed = |entry: &DirEntry| entry.metadata().and_then(|file| file.modified()).ok();
    let beside = fs::read_dir(path.parent()?).ok()?.filter_map(Result::ok);
    let mut beside: Vec<DirEntry> = beside.filter(is_alike).collect();
    beside.sort_by_cached_key(|entry| Reverse(changed(entry)));
    beside.iter().take(ROTATED).find_map(|entry| {
        let file = File::open(entry.path()).ok()?;
        let read = mark.read_of(&file)?;
        Some((file, read))
    })
}

/// Reads the output of a journalctl command: the end of the journal, or what is new since a mark.
pub(super) fn of_journal(
    mut command: Command,
    after: Option<&Mark>,
    read: ReadEnd<'_>,
) -> Result<News> {
    command.args(["--show-cursor", ENTRIES]);
    if let Some(Mark::Journal { cursor }) = after {
        command.arg(format!("--after-cursor={cursor}"));
    }
    // A helper's own standard error is /dev/null, which it may not open to write.
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.context("its log is the journal, and journalctl cannot be run")?;
    let mut output = child.stdout.take().context("journalctl has no output")?;
    // It ends when it has written all, or when the pipe is closed.
    let mut text = read(&mut output)?;
    let lines = text.strip_suffix(b"\n").unwrap_or(&text);
    let last = memchr::memrchr(b'\n', lines).map_or(0, |at| at + 1);
    let cursor = lines.get(last..).and_then(|line| line.strip_prefix(CURSOR));
    let cursor = cursor.map(|cursor| String::from_utf8_lossy(cursor).into_owned());
    if cursor.is_some() {
        text.truncate(last);
    }
    let next = cursor.map(|cursor| Mark::Journal { cursor }).or_else(|| after.cloned());
    Ok(News { text, is_cut: false, next })
}

/// The last [`TAIL`] bytes of a text of unknown length.
pub(super) fn last_of(text: &mut dyn Read) -> io::Result<Vec<u8>> {
    let most = usize::try_from(TAIL).unwrap_or(usize::MAX);
    let (mut last, mut part) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let length = text.read(&mut part)?;
        last.extend_from_slice(part.get(..length).unwrap_or_default());
        let surplus = last.len().saturating_sub(most);
        if length == 0 || surplus >= most {
            last.drain(..surplus);
        }
        if length == 0 {
            return Ok(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, path::PathBuf};

    use super::*;

    /// A log that is followed.
    struct Followed {
        directory: tempfile::TempDir,
        after: Option<Mark>,
    }

    impl Followed {
        fn new() -> Self {
            let followed = Self { directory: tempfile::tempdir().unwrap(), after: None };
            File::create(followed.path("kubelet.log")).unwrap();
            followed
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn write(&self, text: &str) {
            let log = self.path("kubelet.log");
            let mut log = File::options().create(true).append(true).open(log).unwrap();
            log.write_all(text.as_bytes()).unwrap();
        }

        /// What is new, and whether something is missing.
        fn read(&mut self) -> (String, bool) {
            let path = self.path("kubelet.log");
            let mut read = last_of;
            let file = File::open(&path).unwrap();
            let news = of_file(&file, &path, self.after.as_ref(), &mut read).unwrap();
            self.after = news.next;
            (String::from_utf8(news.text).unwrap(), news.is_cut)
        }
    }

    fn all(text: &str) -> (String, bool) {
        (text.into(), false)
    }

    #[test]
    fn a_file_is_read_on_from_its_last_whole_line() {
        let mut log = Followed::new();
        assert_eq!(log.read(), all(""));
        log.write("one\ntw");
        assert_eq!(log.read(), all("one\n"));
        assert_eq!(log.read(), all(""));
        log.write("o\nthree\n");
        assert_eq!(log.read(), all("two\nthree\n"));
        log.write(&"x".repeat(TAIL as usize));
        log.write("\nend\n");
        let (text, is_cut) = log.read();
        assert!(is_cut && text.len() as u64 == TAIL && text.ends_with("x\nend\n"));
        assert_eq!(log.read(), all(""));
    }

    #[test]
    fn nothing_is_lost_or_read_again_when_a_log_is_rotated() {
        for by_copy in [false, true] {
            let mut log = Followed::new();
            log.write("one\n");
            log.read();
            fs::write(log.path("kubelet-other.log"), "another\n").unwrap();
            log.write("two\n");
            let (now, old) = (log.path("kubelet.log"), log.path("kubelet.log.1"));
            if by_copy {
                fs::copy(&now, &old).unwrap();
                File::options().write(true).open(&now).unwrap().set_len(0).unwrap();
            } else {
                fs::rename(&now, &old).unwrap();
            }
            log.write("three\n");
            assert_eq!(log.read(), all("two\nthree\n"), "{by_copy}");
            log.write("four\n");
            assert_eq!(log.read(), all("four\n"), "{by_copy}");
        }
        // Without the rotated file, the gap is known.
        let mut log = Followed::new();
        log.write("one\n");
        log.read();
        fs::write(log.path("kubelet.log"), "as long\n").unwrap();
        assert_eq!(log.read(), ("as long\n".into(), true));
    }

    #[test]
    fn a_hole_is_left_out() {
        let mut log = Followed::new();
        log.write("one\n");
        log.read();
        let file = File::options().write(true).open(log.path("kubelet.log")).unwrap();
        file.set_len(0).unwrap();
        file.write_all_at(b"two\n", 4000).unwrap();
        assert_eq!(log.read(), ("two\n".into(), true));
        file.write_all_at(b"three\n", 4004).unwrap();
        assert_eq!(log.read(), all("three\n"));
    }

    /// A shell in the place of journalctl, which prints its arguments.
    #[test]
    fn the_journal_is_read_on_from_its_cursor() {
        let read = |after: Option<&Mark>, script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script, "journalctl"]);
            of_journal(command, after, &mut last_of).unwrap()
        };
        let first = read(None, "echo one; echo '-- cursor: s=1;i=2'");
        assert_eq!(first.text, b"one\n");
        let mark = Mark::Journal { cursor: "s=1;i=2".into() };
        assert_eq!(first.next.as_ref(), Some(&mark));
        let next = read(first.next.as_ref(), r#"echo "$@"; echo '-- cursor: s=1;i=3'"#);
        let asked = String::from_utf8(next.text).unwrap();
        assert!(asked.contains("--after-cursor=s=1;i=2"), "{asked}");
        let none = read(Some(&mark), "true");
        assert_eq!((none.text.len(), none.next), (0, Some(mark)));
        let long = read(None, "seq 3000000; echo '-- cursor: s=1;i=9'");
        assert!(long.text.len() as u64 <= TAIL && long.text.ends_with(b"\n3000000\n"));
        assert!(long.next.is_some());
    }
}
