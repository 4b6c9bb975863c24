//! Complaints in a CSI driver's log: the lines that name the volume. Most drivers log by klog, some by logrus
//! or zap.

use std::sync::LazyLock;

use jiff::Timestamp;
use regex::Regex;
use serde::{Deserialize, Serialize};

use super::{entries::Entry, fixed, klog};

/// Shortest name that is searched for: shorter ones occur within other words.
const NAME_MIN: usize = 6;
/// Longest text that is kept, in bytes. Some drivers log whole requests.
const TEXT_MAX: usize = 1000;

/// Most paths of an entry that are added to its text.
const PATHS: usize = 2;

/// A failed call as csi-lib-utils and drivers modelled on it log it: at level info, with the request and the
/// error (kubernetes-csi/csi-test, `gRPCCall`).
static FAILED_CALL: LazyLock<Regex> = LazyLock::new(|| fixed(r#""Error":"[^"]"#));

/// The same as gocsi logs it (middleware/logging), at level debug or info, without the names of the request.
static FAILED_REPLY: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"^/csi\.v\d\.\w+/\w+: REP \d+: rpc error: code = "));

/// The names of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VolumeNames {
    /// Its directory below kubelet's root; the path contains the pod's UID.
    pub directory: String,
    /// Its handle, by which kubelet names it to the driver.
    pub handle: String,
    /// The PersistentVolume's name.
    pub name: String,
}

impl VolumeNames {
    /// Whether a text contains one of the names as a whole word.
    fn are_in(&self, text: &str) -> bool {
        let named = |name: &str| {
            let is_word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
            name.len() >= NAME_MIN
                && text.match_indices(name).any(|(at, _)| {
                    let before = text.get(..at).and_then(|text| text.chars().next_back());
                    let after = text.get(at + name.len()..).and_then(|text| text.chars().next());
                    !is_word(before) && !is_word(after)
                })
        };
        [&self.directory, &self.handle, &self.name].into_iter().any(|name| named(name))
    }
}

/// The complaint in a line about the volume, and whether the line quotes text that a tenant can choose.
pub(super) fn complaint(line: &str, volume: &VolumeNames) -> Option<(String, bool)> {
    if volume.are_in(line) { of_entry(line) } else { None }
}

/// The complaint in a line, whatever it is about.
pub(super) fn of_entry(line: &str) -> Option<(String, bool)> {
    let (text, is_quoted) = match klog::message(line) {
        Some(message) if line.starts_with('I') => {
            (FAILED_CALL.is_match(message).then_some(message)?.into(), true)
        }
        Some(message) => (message.to_owned(), true),
        None => {
            let entry = Entry::read(line)?;
            let complains = entry.complains() || FAILED_REPLY.is_match(entry.field("msg"));
            (complains.then(|| with_paths(&entry))?, entry.is_quoted())
        }
    };
    Some((text.get(..text.floor_char_boundary(TEXT_MAX))?.to_owned(), is_quoted))
}

/// An entry's text, and the paths that it has in fields of their own: what the call was about.
fn with_paths(entry: &Entry) -> String {
    let mut text = entry.text();
    let is_path = |value: &&str| value.len() > 1 && value.starts_with('/');
    for path in entry.others().filter(is_path).take(PATHS) {
        if !text.contains(path) {
            text = format!("{text} ({path})");
        }
    }
    text
}

/// When a line was written, by its own time.
pub(super) fn written(line: &str, now: Timestamp) -> Option<Timestamp> {
    klog::written(line, now).or_else(|| Entry::read(line)?.written())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> VolumeNames {
        VolumeNames {
            directory: "/k/pods/u/volumes/kubernetes.io~csi/pv-web".into(),
            handle: "5a264716-e609-11f1-aa82-4a94a00867cd".into(),
            name: "pv-web".into(),
        }
    }

    /// As recorded with the CSI hostpath driver.
    #[test]
    fn a_line_counts_if_it_complains_and_names_the_volume() {
        let of = |line: &str| complaint(line, &volume()).map(|found| found.0);
        let error = "GRPC error: rpc error: code = NotFound desc = volume id \
            5a264716-e609-11f1-aa82-4a94a00867cd does not exist in the volumes list";
        assert_eq!(
            of(&format!("E1122 00:12:09.719338    9828 server.go:107] {error}")).as_deref(),
            Some(error)
        );
        let call = |error: &str| {
            format!(
                "I1122 00:10:31.002673    7633 server.go:156] gRPCCall: {{\"Method\":\"x\",\"Request\":{{\
                 \"target_path\":\"{}/mount\"}},\"Response\":null,\"Error\":\"{error}\"}}",
                volume().directory
            )
        };
        assert!(of(&call("rpc error")).is_some() && of(&call("")).is_none());
        let zap = r#"{"level":"error","ts":1.5,"msg":"unmount","volume":"pv-web","error":"busy"}"#;
        assert_eq!(of(zap).as_deref(), Some("unmount: busy"));
        let logrus = "time=\"2026-01-01T00:00:00Z\" level=error msg=\"pv-web: busy\"";
        assert_eq!(of(logrus).as_deref(), Some("pv-web: busy"));
        for other in [
            "I1122 00:10:33.272622    8911 nodeserver.go:232] Volume pv-web is not published",
            "E1122 00:10:33.272622    8911 x.go:1] pv-webs is another",
            "E1122 00:10:33.272622    8911 x.go:1] failed",
            "pv-web",
            "",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    /// As in spiffe-csi issue 158, vsphere-csi-driver pull request 770 and the hcloud driver's issue 534.
    #[test]
    fn the_forms_of_loggers_are_known() {
        let of = |line: &str| complaint(line, &volume());
        let path = "/k/pods/u/volumes/kubernetes.io~csi/pv-web/mount";
        let error = format!("unable to unmount \\\"{path}\\\": invalid argument");
        let fields =
            format!("{{\"volumeID\": \"x\", \"targetPath\": \"{path}\", \"error\": \"{error}\"}}");
        let said =
            format!("Failed to unpublish volume: unable to unmount \"{path}\": invalid argument");
        for line in [
            format!(
                "2024-01-17T20:21:47.131Z\tERROR\tdriver/driver.go:150\tFailed to unpublish volume\t{fields}"
            ),
            format!(
                "2024-01-17T20:21:47.131Z ERROR driver/driver.go:150 Failed to unpublish volume {fields}"
            ),
            format!(
                "1.705522907131e+09\tERROR\tdriver\tdriver/driver.go:150\tFailed to unpublish volume\t{fields}"
            ),
        ] {
            assert_eq!(
                of(&line),
                Some((said.clone(), false)),
                "{line}: a console quotes no message"
            );
            assert_eq!(
                written(&line, Timestamp::MAX).unwrap().to_string(),
                "2024-01-17T20:21:47.131Z"
            );
        }
        let logfmt = format!(
            "level=error ts=2024-01-17T20:21:47.131Z component=linux-mount-service msg=\"unpublishing volume\" \
             target-path={path} err=\"busy\""
        );
        assert_eq!(of(&logfmt), Some((format!("unpublishing volume: busy ({path})"), true)));
        let zap = format!(
            "{{\"level\":\"error\",\"ts\":1705522907.131,\"msg\":\"x\",\"path\":\"{path}\"}}"
        );
        assert_eq!(of(&zap), Some((format!("x ({path})"), true)));
        assert_eq!(written(&zap, Timestamp::MAX).unwrap().to_string(), "2024-01-17T20:21:47.131Z");
        // dell/csm issue 1782, and vsphere-csi-driver issue 338: gocsi logs an error at level debug.
        let dell = format!(
            "time=\"2025-03-04T06:12:44Z\" level=error msg=\"unmount failed\" cmd=umount error=\"invalid argument\" path={path}"
        );
        assert_eq!(of(&dell), Some((format!("unmount failed: invalid argument ({path})"), true)));
        let reply = "/csi.v1.Node/NodeUnpublishVolume: REP 0491: rpc error: code = Internal desc = error getting block device for \
                     volume: pv-web, err: lstat devtmpfs: no such file or directory";
        let gocsi = format!("time=\"2021-01-04T12:57:04Z\" level=debug msg=\"{reply}\"");
        assert_eq!(of(&gocsi), Some((reply.into(), true)));
        assert_eq!(of(&gocsi.replace("rpc error: code = Internal", "volume_id=")), None);
        let informs =
            format!("2024-01-17T20:21:47.131Z\tINFO\tdriver/driver.go:150\tUnpublished\t{fields}");
        assert_eq!(of(&informs), None);
    }

    #[test]
    fn a_short_name_is_not_searched_for() {
        let volume =
            VolumeNames { directory: String::new(), handle: "1".into(), name: "data".into() };
        let line = "E1122 00:10:33.272622    8911 x.go:1] 1 data";
        assert_eq!(complaint(line, &volume), None);
    }
}
