//! kubelet's log lines, in the form of klog: severity, date and time without a year, thread, source file.
//!
//! Parts of a line are chosen by whoever names a file or writes an error message, and may hold line
//! breaks. So a line is evidence of what kubelet says, and a name or a path in it is believed only where
//! it does not contradict what else is known.

use std::{path::PathBuf, sync::LazyLock};

use jiff::{SignedDuration, Timestamp, ToSpan, civil::DateTime, tz::TimeZone};
use nix::errno::Errno;
use regex::Regex;

use crate::{
    identity::uid::is_pod_uid,
    model::{
        call::{Call, Outcome},
        path::safe,
        said::{Complaint, NamedCall},
    },
};

/// Longest error that is kept: two paths and what is said about them.
const ERROR_MAX: usize = 9000;

/// What of a line matters.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A pod's name and UID.
    Named { namespace: String, name: String, uid: String },
    /// An operation on a pod's volume failed.
    Failed(Failed),
}

/// A failed operation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) uid: String,
    pub(super) volume: String,
    pub(super) at: Timestamp,
    pub(super) retry: Option<Timestamp>,
    pub(super) error: String,
}

/// Whether an entry begins with this line: others go on with the entry before.
pub(super) fn begins(line: &str) -> bool {
    HEADER.is_match(line)
}

static HEADER: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"^[IWEF](\d{2})(\d{2}) (\d{2}:\d{2}:\d{2}\.\d{6}) +\d+ [^\]\s]+\] "));
/// Structured lines write the pod first, and quote what others may choose.
static POD: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r#"^"[^"\\]*" pod="([a-z0-9-]+)/([a-z0-9.-]+)" (?:podUID="([0-9a-f-]+)"|event=\{"ID":"([0-9a-f-]+)")"#,
    )
});
/// Older ones (`format.Pod`) say `NAME_NAMESPACE(UID)`.
static OLD_POD: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r#"^SyncLoop \([A-Z ]+, "api"\): "([a-z0-9.-]+)_([a-z0-9-]+)\(([0-9a-f-]+)\)"$"#)
});
static FAILED: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r#"(?s)^Operation for "\{volumeName:(\S*) podName:([0-9a-f-]+) nodeName:\}" failed\. "#,
        r"No retries permitted until (\S+ \S+ \S+) .*?\(durationBeforeRetry ([0-9a-z.]+)\)\. Error: (.*)$"
    ))
});
/// What stands before the error proper, and says again which volume and pod it is about.
static PREFIX: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r#"(?s)^Unmount\w+\.\w+ failed .*?\(UID: \\?"[0-9a-f-]+\\?"\) : (.*)$"#)
});
static CALL: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r"(?s)^(unlinkat|remove|umount:|.*\n *Output: umount:) (/.+): ([^:]+?)\.?\n*$")
});

fn fixed(pattern: &str) -> Regex {
    // A pattern that is no pattern does not pass the tests of this file.
    #[expect(clippy::expect_used, reason = "constant, and tested")]
    Regex::new(pattern).expect("a constant pattern")
}

/// What an entry says; `None` for nothing of interest. `now` tells the year.
pub(super) fn parse(text: &str, now: Timestamp) -> Option<Entry> {
    let header = HEADER.captures(text)?;
    let message = text.get(header.get(0)?.end()..)?;
    let named = |namespace: &str, name: &str, uid: &str| {
        let (namespace, name) = (namespace.into(), name.into());
        let named = Entry::Named { namespace, name, uid: uid.into() };
        is_pod_uid(uid.as_bytes()).then_some(named)
    };
    if let Some(found) = POD.captures(message) {
        let uid = found.get(3).or_else(|| found.get(4))?;
        return named(&found[1], &found[2], uid.as_str());
    }
    if let Some(found) = OLD_POD.captures(message) {
        return named(&found[2], &found[1], &found[3]);
    }
    let found = FAILED.captures(message)?;
    let (volume, uid) = (found[1].to_owned(), found[2].to_owned());
    let retry = go_time(&found[3]);
    let error = unquoted(found[5].trim_end());
    let error = PREFIX.captures(&error).map_or_else(|| error.clone(), |rest| rest[1].to_owned());
    // The header's time is in the zone of the node, which need not be the one that is ours.
    let before = found[4].parse::<SignedDuration>().ok();
    let by_retry = retry.zip(before).and_then(|(retry, before)| retry.checked_sub(before).ok());
    let at = by_retry.or_else(|| time(&header[1], &header[2], &header[3], now))?;
    let end = error.floor_char_boundary(ERROR_MAX);
    let error = error[..end].to_owned();
    let known = is_pod_uid(uid.as_bytes());
    known.then_some(Entry::Failed(Failed { uid, volume, at, retry, error }))
}

/// Go's `time.Time.String`, up to the name of the zone.
fn go_time(text: &str) -> Option<Timestamp> {
    Timestamp::strptime("%Y-%m-%d %H:%M:%S%.f %z", text).ok()
}

/// A time of this node's zone, at most a year before now. klog writes the local time, without a year.
fn time(month: &str, day: &str, clock: &str, now: Timestamp) -> Option<Timestamp> {
    let zone = TimeZone::system();
    let year = now.to_zoned(zone.clone()).year();
    let in_year = |year: i16| {
        let text = format!("{year:04}-{month}-{day}T{clock}");
        let time: DateTime = text.parse().ok()?;
        Some(time.to_zoned(zone.clone()).ok()?.timestamp())
    };
    // A clock may have been set back a little; a date further ahead is last year's.
    let tomorrow = now.checked_add(24.hours()).ok()?;
    in_year(year).filter(|time| *time <= tomorrow).or_else(|| in_year(year - 1))
}

/// Older kubelets wrote the error as Go quotes a string.
fn unquoted(text: &str) -> String {
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let read = quoted.and_then(|_| serde_json::from_str::<String>(text).ok());
    read.unwrap_or_else(|| text.to_owned())
}

/// The call that an error names, as Go writes a `PathError` and umount(8) its complaint.
pub(super) fn named_call(error: &str) -> Option<NamedCall> {
    let found = CALL.captures(error)?;
    let path = PathBuf::from(&found[2]);
    let (call, outcome) = match &found[1] {
        "unlinkat" | "remove" => (Call::Unlinkat, errno(&found[3])?),
        _ => (Call::Umount2, (&found[3] == "target is busy").then_some(Errno::EBUSY)?),
    };
    Some(NamedCall { call, path, outcome: Outcome(u16::try_from(outcome as i32).ok()?) })
}

/// Go's words for an error of a system call (syscall/zerrors_linux_amd64.go).
fn errno(words: &str) -> Option<Errno> {
    Some(match words {
        "device or resource busy" => Errno::EBUSY,
        "operation not permitted" => Errno::EPERM,
        "read-only file system" => Errno::EROFS,
        "input/output error" => Errno::EIO,
        "structure needs cleaning" => Errno::EUCLEAN,
        "transport endpoint is not connected" => Errno::ENOTCONN,
        "stale NFS file handle" => Errno::ESTALE,
        _ => return None,
    })
}

/// By kubelet's words (pkg/volume/csi: `newCsiDriverClient`, `loadVolumeData`) and gRPC's.
pub(super) fn complaint(error: &str) -> Option<Complaint> {
    let has = |words: &[&str]| words.iter().any(|words| error.contains(words));
    if has(&["not found in the list of registered CSI drivers", "rpc error: code = Unavailable"]) {
        return Some(Complaint::NoDriver);
    }
    if has(&["rpc error: code = "]) {
        return Some(Complaint::DriverError);
    }
    has(&["volume data file", "vol_data.json"]).then_some(Complaint::NoData)
}

/// An error as it may be shown.
pub(super) fn shown(error: &str) -> String {
    safe(error.trim_end().replace('\n', " ").as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f0e0d0c-1111-4222-8333-444455556666";

    fn now() -> Timestamp {
        "2026-03-02T00:00:00Z".parse().unwrap()
    }

    fn named(namespace: &str, name: &str) -> Option<Entry> {
        let (namespace, name) = (namespace.into(), name.into());
        Some(Entry::Named { namespace, name, uid: UID.into() })
    }

    fn failed(error: &str) -> String {
        format!(
            "E0301 23:11:29.841398    7632 nestedpendingoperations.go:348] Operation for \
             \"{{volumeName:kubernetes.io/empty-dir/{UID}-data podName:{UID} nodeName:}}\" failed. No \
             retries permitted until 2026-03-01 23:12:33.841373347 +0000 UTC m=+132.550027554 \
             (durationBeforeRetry 1m4s). Error: {error}"
        )
    }

    #[test]
    fn pods_are_named_in_the_lines_of_new_and_old_kubelets() {
        let killing = format!(
            "I0301 10:00:00.000001    77 kuberuntime_container.go:915] \"Killing container with a grace \
             period\" pod=\"shop/cart-0\" podUID=\"{UID}\" containerName=\"main\""
        );
        assert_eq!(parse(&killing, now()), named("shop", "cart-0"));
        let event = format!(
            "I0301 10:00:00.000001    77 kubelet.go:2752] \"SyncLoop (PLEG): event for pod\" \
             pod=\"shop/cart-0\" event={{\"ID\":\"{UID}\",\"Type\":\"ContainerDied\"}}"
        );
        assert_eq!(parse(&event, now()), named("shop", "cart-0"));
        let old = format!(
            "I0301 10:00:00.000001    77 kubelet.go:1900] SyncLoop (DELETE, \"api\"): \
             \"cart-0_shop({UID})\""
        );
        assert_eq!(parse(&old, now()), named("shop", "cart-0"));
    }

    #[test]
    fn what_others_choose_names_no_pod() {
        let lines = [
            format!("pod=\"kube-system/etcd\" podUID=\"{UID}\""),
            format!(
                "E0301 10:00:00.000001 7 x.go:1] \"failed\" err=\"/a/\\\" pod=\\\"kube-system/etcd\\\" \
                 podUID=\\\"{UID}\\\"\""
            ),
            format!("I0301 10:00:00.000001 7 x.go:1] \"x\" pod=\"a b/c\" podUID=\"{UID}\""),
            "I0301 10:00:00.000001 7 x.go:1] \"x\" pod=\"a/c\" podUID=\"0-0\"".to_owned(),
        ];
        for line in lines {
            assert_eq!(parse(&line, now()), None, "{line}");
        }
    }

    #[test]
    fn a_failed_operation_says_when_and_when_next() {
        let path = format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~empty-dir/data/f");
        let text = failed(&format!(
            "UnmountVolume.TearDown failed for volume \"kubernetes.io/empty-dir/{UID}-data\" \
             (UniqueName: \"x\") pod \"{UID}\" (UID: \"{UID}\") : unlinkat {path}: operation not permitted"
        ));
        let Some(Entry::Failed(failed)) = parse(&text, now()) else { panic!() };
        let Failed { uid, volume, at, retry, error } = failed;
        let before: Timestamp = "2026-03-01T23:11:29.841373347Z".parse().unwrap();
        assert_eq!(at, before, "whatever the zone is");
        assert_eq!((uid.as_str(), volume), (UID, format!("kubernetes.io/empty-dir/{UID}-data")));
        assert_eq!(retry, "2026-03-01T23:12:33.841373347Z".parse().ok());
        assert_eq!(error, format!("unlinkat {path}: operation not permitted"));
        let call = named_call(&error).unwrap();
        assert_eq!((call.call, call.path.to_str()), (Call::Unlinkat, Some(path.as_str())));
        assert!(call.outcome.is(Errno::EPERM));
    }

    #[test]
    fn errors_that_are_quoted_or_have_several_lines() {
        let quoted = failed(&format!(
            "\"UnmountVolume.TearDown failed for volume \\\"pv\\\" (UniqueName: \\\"x\\\") pod \
             \\\"{UID}\\\" (UID: \\\"{UID}\\\") : kubernetes.io/csi: rpc error: code = NotFound\""
        ));
        let Some(Entry::Failed(Failed { error, .. })) = parse(&quoted, now()) else { panic!() };
        assert_eq!(error, "kubernetes.io/csi: rpc error: code = NotFound");
        assert_eq!(named_call(&error), None);
        let umount = failed(&format!(
            "UnmountVolume.TearDown failed for volume \"x\" (UniqueName: \"x\") pod \"{UID}\" (UID: \
             \"{UID}\") : unmount failed: exit status 32\nUnmounting arguments: /k/data\nOutput: umount: \
             /k/data: target is busy.\n\n"
        ));
        let Some(Entry::Failed(Failed { error, .. })) = parse(&umount, now()) else { panic!() };
        let call = named_call(&error).unwrap();
        assert_eq!((call.call, call.path.to_str()), (Call::Umount2, Some("/k/data")));
        assert!(!shown(&error).contains('\n') && shown("a\u{1b}[2J\nb") == r"a\x1b[2J b");
    }

    #[test]
    fn a_complaint_is_known_by_its_words() {
        let missing = "driver name x not found in the list of registered CSI drivers";
        assert_eq!(complaint(missing), Some(Complaint::NoDriver));
        let unavailable = "rpc error: code = Unavailable desc = dial unix";
        assert_eq!(complaint(unavailable), Some(Complaint::NoDriver));
        let not_found = "rpc error: code = NotFound desc = gone";
        assert_eq!(complaint(not_found), Some(Complaint::DriverError));
        let no_data = "unmounter failed to load volume data file [/k]: EOF";
        assert_eq!(complaint(no_data), Some(Complaint::NoData));
        assert_eq!(complaint("unlinkat /k/f: operation not permitted"), None);
    }

    #[test]
    fn a_year_is_the_last_that_fits() {
        let at = |month: &str, day: &str| time(month, day, "00:00:00.000000", now()).unwrap();
        assert!(
            at("03", "01") < now() && at("03", "01").as_second() > now().as_second() - 100_000 * 2
        );
        assert!(at("12", "31") < now(), "last year's");
    }

    #[test]
    fn an_entry_begins_with_a_header() {
        assert!(begins("E0301 10:00:00.000001    7 x.go:1] y"));
        assert!(!begins("Output: umount: /k/data: target is busy."));
    }
}
