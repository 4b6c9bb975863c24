//! The log, on standard error and in the form of `klog`, which nearly all drivers and kubelet use:
//! `I1122 08:00:00.000000       1 node.rs:41] text` (kubernetes/klog, `formatHeader`: severity, month
//! and day, time, process padded to seven, file and line).

use std::fmt::Display;
use std::panic::Location;
use std::path::Path;

use jiff::Zoned;
use tonic::Status;

/// A line about what went as it should.
#[track_caller]
pub fn info(text: impl Display) {
    write('I', text, Location::caller());
}

/// A line about what did not.
#[track_caller]
pub fn error(text: impl Display) {
    write('E', text, Location::caller());
}

fn write(severity: char, text: impl Display, at: &Location<'_>) {
    eprintln!("{}{text}", header(severity, &Zoned::now(), std::process::id(), at));
}

fn header(severity: char, now: &Zoned, pid: u32, at: &Location<'_>) -> String {
    let file = Path::new(at.file()).file_name().unwrap_or_default().to_string_lossy();
    let time = now.strftime("%m%d %H:%M:%S%.6f");
    format!("{severity}{time} {pid:7} {file}:{}] ", at.line())
}

/// A call, of which the log says one line when it is answered.
#[derive(Clone, Debug)]
pub struct Call {
    method: &'static str,
    volume: String,
    target: String,
}

impl Call {
    /// The call of a method; volume and path are empty where it has none.
    pub fn new(method: &'static str, volume: &str, target: &str) -> Self {
        Self { method, volume: volume.to_owned(), target: target.to_owned() }
    }

    /// Says how it was answered.
    #[track_caller]
    pub fn answered<T>(&self, result: &Result<T, Status>) {
        match result {
            Ok(_) => info(self.line("OK", "")),
            Err(status) => error(self.line(&format!("{:?}", status.code()), status.message())),
        }
    }

    /// Says that it will not be.
    #[track_caller]
    pub fn never_answered(&self) {
        error(self.line("none", "it will never be answered"));
    }

    /// Quoted, as paths may contain what ends a line.
    fn line(&self, result: &str, message: &str) -> String {
        let Self { method, volume, target } = self;
        format!(
            "GRPC call: {method} volume={volume:?} target={target:?} result={result} \
             message={message:?}"
        )
    }
}

#[cfg(test)]
mod tests {
    use jiff::{civil::date, tz::TimeZone};

    use super::*;

    #[test]
    fn a_line_begins_as_klog_s_do() {
        let now = date(2026, 11, 22).at(8, 0, 0, 1_234_567).to_zoned(TimeZone::UTC).unwrap();
        let at = Location::caller();
        let expected = format!("I1122 08:00:00.001234       1 klog.rs:{}] ", at.line());
        assert_eq!(header('I', &now, 1, at), expected);
    }

    #[test]
    fn a_path_does_not_end_a_line() {
        let line = Call::new("NodeUnpublishVolume", "v", "/a\nI1122 all is well").line("OK", "");
        assert_eq!(
            line,
            "GRPC call: NodeUnpublishVolume volume=\"v\" target=\"/a\\nI1122 all is well\" \
             result=OK message=\"\""
        );
    }
}
