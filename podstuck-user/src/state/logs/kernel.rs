//! Signals that AppArmor refuses a runtime, by the kernel's log: the audit daemon's where there is one, else
//! the kernel's own buffer. The kernel quotes what others choose, and writes what it cannot quote as digits.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use anyhow::{Context, Result};
use jiff::Timestamp;
use regex::Regex;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::{fixed, place};
use crate::{
    identity::on_host,
    kernel::role::Role,
    model::{
        degraded::Feed,
        identity::Component,
        said::{Complaint, Said},
    },
    state::helper::{Budget, Question, Teller},
};

/// Denials that are told, the last ones: one by one they say the same.
const DENIALS: usize = 16;
/// Records of the kernel's buffer that are read: more than the largest usual one holds.
const RECORDS: usize = 1 << 16;
/// Longest record (`PRINTKRB_RECORD_MAX` and its escapes).
const LONGEST: usize = 8 << 10;
const AUDIT: &str = "/var/log/audit/audit.log";
const BUFFER: &str = "/dev/kmsg";

static DENIED: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"^(?:type=\w+ msg=|audit: type=1400 )audit\((\d{1,12})\.(\d{3}):\d+\): ",
        r#"(apparmor="DENIED" operation="signal" (?:class="signal" )?profile="[^"]*" pid=\d+ "#,
        r#"comm="(?:runc|crun|kubelet|dockerd|containerd[a-z-]*)" requested_mask="receive" "#,
        r#"denied_mask="receive" signal=[a-z0-9]+ peer="[^"]*")"#
    ))
});

/// Of the kernel.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct ReadKernelLog {
    pub(super) host_root: PathBuf,
}

impl Question for ReadKernelLog {
    const BUDGET: Budget = Budget::Logs;
    const FEEDS: Option<Feed> = Some(Feed::Logs);
    const ROLE: Role = Role::HelperKernelLog;
    type Step = ();
    type Part = Vec<Said>;
    /// Which log.
    type Answer = String;

    fn answer(self, tell: &mut Teller<(), Vec<Said>>) -> Result<String> {
        let audit = on_host(&self.host_root, Path::new(AUDIT));
        let (place, lines) = if audit.is_file() {
            (AUDIT, denials(lines(tell.reading(place::of_file(&audit)?.text))))
        } else {
            (BUFFER, denials(buffer().context(BUFFER)?))
        };
        let source = format!("log of the kernel, {place}");
        tell.part(&lines.into_iter().map(|(at, text)| said(at, &text, &source)).collect())?;
        Ok(source)
    }
}

fn lines(text: impl Read) -> impl Iterator<Item = String> {
    let lines = BufReader::new(text).split(b'\n').map_while(Result::ok);
    lines.map(|line| String::from_utf8_lossy(&line).into_owned())
}

/// What the kernel has written into its buffer, without what programs have.
fn buffer() -> io::Result<impl Iterator<Item = String>> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let mut file: File = OpenOptions::new().read(true).custom_flags(flags).open(BUFFER)?;
    let mut record = vec![0; LONGEST];
    let next = move || loop {
        match file.read(&mut record) {
            Ok(0) => return None,
            Ok(length) => return Some(record.get(..length)?.to_vec()),
            // Overwritten meanwhile: the next read goes on behind it.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(_) => return None,
        }
    };
    let records = std::iter::from_fn(next).take(RECORDS);
    Ok(records.filter_map(|record| of_kernel(&String::from_utf8_lossy(&record))))
}

/// The text of a record `PRIORITY,NUMBER,TIME,FLAGS;TEXT`, if its facility is the kernel's.
fn of_kernel(record: &str) -> Option<String> {
    let (head, text) = record.split_once(';')?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    (priority >> 3 == 0).then(|| text.lines().next().unwrap_or_default().to_owned())
}

/// The last refusals.
fn denials(lines: impl Iterator<Item = String>) -> Vec<(Timestamp, String)> {
    let mut found: Vec<(Timestamp, String)> = lines.filter_map(|line| denial(&line)).collect();
    found.drain(..found.len().saturating_sub(DENIALS));
    found
}

fn denial(line: &str) -> Option<(Timestamp, String)> {
    let found = DENIED.captures(line)?;
    let [seconds, millis] = [found[1].parse::<i64>().ok()?, found[2].parse::<i64>().ok()?];
    let at = Timestamp::from_millisecond(seconds * 1000 + millis).ok()?;
    Some((at, found[3].to_owned()))
}

fn said(at: Timestamp, text: &str, source: &str) -> Said {
    let complaint = Some(Complaint::SignalDenied);
    Said { complaint, ..super::said(Component::Other, source, "", at, text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_kernel_log() {
        crate::fuzz::fuzz("kernel_log", |input| {
            let text = String::from_utf8_lossy(input);
            let own = text.lines().filter_map(of_kernel);
            let _ = denials(own.chain(lines(input)));
        });
    }

    /// As in moby pull request 47749 and moby issue 42544.
    #[test]
    fn a_refused_signal_of_a_runtime_is_found() {
        let denied = "apparmor=\"DENIED\" operation=\"signal\" class=\"signal\" profile=\"docker-default\" \
            pid=9289 comm=\"runc\" requested_mask=\"receive\" denied_mask=\"receive\" signal=kill peer=\"runc\"";
        let (at, text) =
            denial(&format!("audit: type=1400 audit(1713905126.444:253): {denied}")).unwrap();
        assert_eq!((at.to_string().as_str(), text.as_str()), ("2024-04-23T20:45:26.444Z", denied));
        let older =
            denied.replace("class=\"signal\" ", "").replace("\"runc\" req", "\"kubelet\" req");
        assert!(denial(&format!("type=AVC msg=audit(1624302097.850:235338): {older}")).is_some());
        for other in [
            format!("x audit: type=1400 audit(1713905126.444:253): {denied}"),
            format!(
                "audit: type=1400 audit(1713905126.444:253): {}",
                denied.replace("DENIED", "ALLOWED")
            ),
            format!(
                "audit: type=1400 audit(1713905126.444:253): {}",
                denied.replace("comm=\"runc\"", "comm=\"x\"")
            ),
            format!("audit: type=1400 audit(9999999999999.444:253): {denied}"),
            String::new(),
        ] {
            assert_eq!(denial(&other), None, "{other}");
        }
    }

    #[test]
    fn only_what_the_kernel_writes_counts() {
        assert_eq!(of_kernel("5,1,2,-;audit: x\n SUBSYSTEM=a\n").as_deref(), Some("audit: x"));
        assert_eq!(of_kernel("12,1,2,-;audit: x"), None, "a program's");
        assert_eq!(of_kernel("audit: x"), None);
    }

    #[test]
    fn the_last_are_told() {
        let line = "audit: type=1400 audit(1713905126.444:253): apparmor=\"DENIED\" operation=\"signal\" \
            profile=\"p\" pid=1 comm=\"crun\" requested_mask=\"receive\" denied_mask=\"receive\" signal=term \
            peer=\"q\"";
        let all = std::iter::repeat_n(line.to_owned(), DENIALS * 2);
        assert_eq!(denials(all).len(), DENIALS);
    }
}
