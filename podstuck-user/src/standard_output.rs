//! Standard output: the layout of its text, and the handling of failed writes.

use std::{
    io::{self, ErrorKind, IsTerminal, Write},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use nix::libc;
use rustix::fs::{FileType, fstat};

use super::outcome::Exit;
use crate::logging::Unwaiting;
use podstuck_show::present::style::Style;

/// A part of the output was not written. A command checks this last, so one flag for the process is enough.
static IS_INCOMPLETE: AtomicBool = AtomicBool::new(false);

/// As wide as the terminal, within readable limits, and coloured unless `NO_COLOR` is set; plain in files and pipes.
pub(crate) fn style() -> Style {
    if !io::stdout().is_terminal() {
        return Style::PLAIN;
    }
    Style {
        color: std::env::var_os("NO_COLOR").is_none(),
        width: usize::from(console::Term::stdout().size().1).clamp(60, 120),
        elides: true,
    }
}

/// Prints the whole output of a command.
pub(crate) fn print(text: impl AsRef<[u8]>) {
    let mut out = io::stdout().lock();
    written(out.write_all(text.as_ref()).and_then(|()| out.flush()));
}

/// Notes the result of a write. The first failure is reported at once; the run continues, since it may export or
/// record.
pub fn written(result: io::Result<()>) {
    let Err(error) = result else { return };
    if !is_reader_gone(&error) && !IS_INCOMPLETE.swap(true, Relaxed) {
        let _ = writeln!(Unwaiting, "podstuck: cannot write to standard output: {error}");
    }
}

/// A reader that closed a pipe (`| head`) or a terminal needs no more: that is no failure.
fn is_reader_gone(error: &io::Error) -> bool {
    let is_device = || {
        fstat(io::stdout())
            .is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::CharacterDevice)
    };
    error.kind() == ErrorKind::BrokenPipe || error.raw_os_error() == Some(libc::EIO) && is_device()
}

/// The exit status of a command, which a failed write changes.
pub fn exit(exit: Exit) -> Exit {
    if IS_INCOMPLETE.load(Relaxed) { Exit::Unwritten } else { exit }
}
