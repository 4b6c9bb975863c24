//! Signals that AppArmor denies a runtime, by the kernel's log: the audit daemon's log where there is one, else the
//! kernel's ring buffer. The kernel quotes what others choose, and writes what it cannot quote as hexadecimal digits.
//! From the ring buffer also lost servers of the SMB, NFS and CephFS clients, and warnings about block devices.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::LazyLock,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use jiff::Timestamp;
use regex::Regex;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::{fixed, kernel_devices::Devices, place};
use crate::identity::on_host;
use podstuck_confine::{
    clock,
    helper::{Budget, Question, Teller},
    role::Role,
};
use podstuck_model::{
    degraded::Feed,
    identity::Component,
    said::{Complaint, Said},
    time::{Clock, Monotonic},
};

/// Denials that are reported, the last ones: each says the same.
const DENIALS: usize = 16;
/// Records of the ring buffer that are read: more than the largest usual buffer holds.
const RECORDS: usize = 1 << 16;
/// Longest record, in bytes (`PRINTKRB_RECORD_MAX` and its escapes).
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

/// Reads the kernel's log.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct ReadKernelLog {
    pub(super) host_root: PathBuf,
}

impl Question for ReadKernelLog {
    const BUDGET: Budget = Budget::Logs;
    const FEEDS: Option<Feed> = Some(Feed::Logs);
    const ROLE: Role = Role::HelperKernelLog;
    /// The log that it reads.
    type Step = OsString;
    type Part = Vec<Said>;
    /// Name of the log that was read for denials.
    type Answer = String;

    fn answer(self, tell: &mut Teller<OsString, Vec<Said>>) -> Result<String> {
        let audit = on_host(&self.host_root, Path::new(AUDIT));
        let own = buffer().context(BUFFER).map(Iterator::collect::<Vec<Record>>);
        let (place, lines) = if place::lives(&audit, |log| tell.at(&log.into()))?.is_file() {
            (AUDIT, denials(lines(&*place::of_file(&audit)?.news(None, tell)?.text)))
        } else {
            let own = own.as_ref().map_err(|error| anyhow!("{error:#}"))?;
            (BUFFER, denials(own.iter().map(|record| record.text.clone())))
        };
        let source = |place| format!("log of the kernel, {place}");
        let refused = Complaint::SignalDenied;
        let denials = lines.into_iter().map(|(at, text)| said(at, refused, &text, &source(place)));
        tell.part(&denials.collect())?;
        let clock = clock::start();
        let own = own.as_deref().unwrap_or_default();
        let lost = lost_servers(own, clock).into_iter();
        let lost = lost.map(|(at, what, text)| said(at, what, text, &source(BUFFER)));
        tell.part(&lost.collect())?;
        tell.part(&Devices::read().warnings(own, clock, &source(BUFFER)))?;
        Ok(source(place))
    }
}

fn lines(text: impl Read) -> impl Iterator<Item = String> {
    let lines = BufReader::new(text).split(b'\n').map_while(Result::ok);
    lines.map(|line| String::from_utf8_lossy(&line).into_owned())
}

/// The kernel's own records in the ring buffer, without those of programs.
fn buffer() -> io::Result<impl Iterator<Item = Record>> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let mut file: File = OpenOptions::new().read(true).custom_flags(flags).open(BUFFER)?;
    let mut record = vec![0; LONGEST];
    let next = move || loop {
        match file.read(&mut record) {
            Ok(0) => return None,
            Ok(length) => return Some(record.get(..length)?.to_vec()),
            // EPIPE: the record was overwritten; the next read continues after it.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(_) => return None,
        }
    };
    let records = std::iter::from_fn(next).take(RECORDS);
    Ok(records.filter_map(|record| of_kernel(&String::from_utf8_lossy(&record))))
}

/// A record that the kernel wrote.
pub(super) struct Record {
    /// Time since the boot, without the time suspended.
    pub(super) since_boot: Duration,
    /// 0 (emergency) to 7 (debug).
    pub(super) level: u32,
    pub(super) text: String,
}

impl Record {
    /// When it was written.
    pub(super) fn at(&self, clock: Clock) -> Timestamp {
        clock.at(Monotonic(u64::try_from(self.since_boot.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Parses a record `PRIORITY,NUMBER,TIME,FLAGS;TEXT`, its time in microseconds, if its facility is the kernel's.
pub(super) fn of_kernel(record: &str) -> Option<Record> {
    let (head, text) = record.split_once(';')?;
    let mut head = head.split(',');
    let priority: u32 = head.next()?.parse().ok()?;
    let since_boot = Duration::from_micros(head.nth(1)?.parse().ok()?);
    let text = text.lines().next().unwrap_or_default().to_owned();
    (priority >> 3 == 0).then_some(Record { since_boot, level: priority & 7, text })
}

/// fs/smb/client/connect.c, `server_unresponsive`, and before Linux 5.4; fs/ceph/mds_client.c, `handle_session`,
/// `send_mds_reconnect` and `maybe_recover_session`, with the client's name since Linux 6.8. A closed
/// session is left out: the client connects again.
static LOST: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"^(?:(CIFS: VFS: \\\\[^\\ ]+ has not responded in \d+ seconds\.|",
        r"CIFS VFS: Server [^ ]+ has not responded in \d+ seconds\.)|",
        r"ceph: +(?:\[[0-9a-f-]{36} \d+\]: +)?(?:mds\d+ (?:rejected session|reconnect denied)|",
        r"auto reconnect after bl(?:ock|ack)listed))"
    ))
});

/// The last records about lost servers.
fn lost_servers(records: &[Record], clock: Clock) -> Vec<(Timestamp, Complaint, &str)> {
    let lost = |record: &Record| {
        let found = LOST.captures(&record.text)?;
        let smb = found.get(1).is_some();
        Some(if smb { Complaint::ServerSilent } else { Complaint::SessionRejected })
    };
    let found = records.iter().filter_map(|it| Some((it.at(clock), lost(it)?, it.text.as_str())));
    let mut found: Vec<_> = found.collect();
    found.extend(silent_nfs_servers(records, clock));
    found.drain(..found.len().saturating_sub(DENIALS));
    found
}

/// net/sunrpc/clnt.c, `call_timeout` and `rpc_check_timeout`; fs/lockd/clntproc.c, `nlm_wait_on_grace`.
static NFS: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"^(?:nfs|lockd): server (\S+) (?:(OK)|not responding, .*)$"));

/// The last records about NFS servers that have not answered since.
fn silent_nfs_servers(
    records: &[Record],
    clock: Clock,
) -> impl Iterator<Item = (Timestamp, Complaint, &str)> {
    let mut silent = BTreeMap::new();
    for record in records {
        let Some(found) = NFS.captures(&record.text) else { continue };
        let server = found.get(1).map_or("", |server| server.as_str());
        match found.get(2) {
            Some(_) => silent.remove(server),
            None => silent.insert(server, record),
        };
    }
    silent.into_values().map(move |it| (it.at(clock), Complaint::ServerSilent, it.text.as_str()))
}

/// The last denials.
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

pub(super) fn said(at: Timestamp, complaint: Complaint, text: &str, source: &str) -> Said {
    Said { complaint: Some(complaint), ..super::said(Component::Other, source, "", at, text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: Clock = Clock::new(Timestamp::UNIX_EPOCH, Monotonic(0));

    #[test]
    fn fuzz_kernel_log() {
        podstuck_fuzz::fuzz("kernel_log", |input| {
            let text = String::from_utf8_lossy(input);
            let own: Vec<Record> = text.lines().filter_map(of_kernel).collect();
            let _ = denials(own.iter().map(|own| own.text.clone()).chain(lines(input)));
            let _ = lost_servers(&own, BOOT);
            let _ = Devices::of([("sda", "8:0", &["8:1"][..])]).warnings(&own, BOOT, "log");
        });
    }

    /// As in moby pull request 47749 and moby issue 42544.
    #[test]
    fn a_denied_signal_of_a_runtime_is_found() {
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
        let own = of_kernel("5,1,2000000,-;audit: x\n SUBSYSTEM=a\n").unwrap();
        assert_eq!((own.text.as_str(), own.since_boot), ("audit: x", Duration::from_secs(2)));
        assert!(of_kernel("12,1,2,-;audit: x").is_none(), "a program's");
        assert!(of_kernel("audit: x").is_none());
    }

    /// Texts of Linux and of Ceph's documentation of troubleshooting.
    #[test]
    fn lost_servers_are_found() {
        let record = |text: &str| of_kernel(&format!("6,1,5000000,-;{text}\n")).unwrap();
        let (smb, ceph) = (Some(Complaint::ServerSilent), Some(Complaint::SessionRejected));
        let fsid = "[2d1dcb2e-9a4c-4a8b-9f5b-0b8f1a2c3d4e 977313]:";
        for (text, complaint) in [
            (r"CIFS: VFS: \\files.example has not responded in 180 seconds. Reconnecting...", smb),
            (
                "CIFS VFS: Server files.example has not responded in 120 seconds. Reconnecting...",
                smb,
            ),
            ("ceph: mds0 reconnect denied", ceph),
            ("ceph: mds12 rejected session", ceph),
            (&format!("ceph: {fsid}  mds0 rejected session"), ceph),
            ("ceph: auto reconnect after blocklisted", ceph),
            ("ceph: auto reconnect after blacklisted", ceph),
            ("ceph: mds0 closed our session", None),
            ("ceph: mds0 reconnect start", None),
            ("libceph: mds0 172.21.5.114:6812 connection reset", None),
            ("x ceph: mds0 reconnect denied", None),
            ("nfs: server 10.0.0.5 not responding, still trying", smb),
            ("nfs: server nas.example not responding, timed out", smb),
            ("lockd: server nas.example not responding, still trying", smb),
            ("nfs: server nas.example OK", None),
        ] {
            let records = [record(text)];
            let found = lost_servers(&records, BOOT);
            assert_eq!(found.first().map(|(_, complaint, _)| *complaint), complaint, "{text}");
        }
    }

    #[test]
    fn an_nfs_server_that_answers_again_is_not_lost() {
        let record = |text: &str| of_kernel(&format!("5,1,5000000,-;{text}\n")).unwrap();
        let gone = "nfs: server nas.example not responding, still trying";
        let back = [record(gone), record("nfs: server nas.example OK")];
        assert_eq!(lost_servers(&back, BOOT), []);
        let other = [record(gone), record("nfs: server other.example OK"), record(gone)];
        assert_eq!(lost_servers(&other, BOOT).len(), 1);
    }

    #[test]
    fn the_last_denials_are_kept() {
        let line = "audit: type=1400 audit(1713905126.444:253): apparmor=\"DENIED\" operation=\"signal\" \
            profile=\"p\" pid=1 comm=\"crun\" requested_mask=\"receive\" denied_mask=\"receive\" signal=term \
            peer=\"q\"";
        let all = std::iter::repeat_n(line.to_owned(), DENIALS * 2);
        assert_eq!(denials(all).len(), DENIALS);
    }
}
