//! What a CSI driver's log complains of: the lines that name the volume. Drivers log as they like; most
//! by klog, some as logrus and zap do.

use std::sync::LazyLock;

use jiff::Timestamp;
use regex::Regex;
use serde::{Deserialize, Serialize};

use super::{entries::Entry, fixed, klog};

/// Shorter names are in other words, too.
const NAME_MIN: usize = 6;
/// Longest text that is kept. Some drivers write whole requests.
const TEXT_MAX: usize = 1000;

/// A call as csi-lib-utils and the drivers made after its example log it, with the request and, at the
/// level of information, its error (kubernetes-csi/csi-test, `gRPCCall`).
static FAILED_CALL: LazyLock<Regex> = LazyLock::new(|| fixed(r#""Error":"[^"]"#));

/// How a volume may be named.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VolumeNames {
    /// Its directory in kubelet's, which has the pod's UID in it.
    pub directory: String,
    /// What kubelet calls it to the driver.
    pub handle: String,
    /// The PersistentVolume's name.
    pub name: String,
}

impl VolumeNames {
    /// Whether a text names it, as a word of its own.
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

/// What a line complains of, if it is about the volume.
pub(super) fn complaint(line: &str, volume: &VolumeNames) -> Option<String> {
    if !volume.are_in(line) {
        return None;
    }
    let text = match klog::message(line) {
        Some(message) if line.starts_with('I') => {
            FAILED_CALL.is_match(message).then_some(message)?.into()
        }
        Some(message) => message.to_owned(),
        None => {
            let entry = Entry::read(line)?;
            entry.complains().then(|| entry.text())?
        }
    };
    Some(text.get(..text.floor_char_boundary(TEXT_MAX))?.to_owned())
}

/// When a line was written, by itself.
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
    fn a_line_counts_where_it_complains_and_names_the_volume() {
        let of = |line: &str| complaint(line, &volume());
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

    #[test]
    fn a_short_name_is_none() {
        let volume =
            VolumeNames { directory: String::new(), handle: "1".into(), name: "data".into() };
        let line = "E1122 00:10:33.272622    8911 x.go:1] 1 data";
        assert_eq!(complaint(line, &volume), None);
    }
}
