//! `histograms.hlog`: an HdrHistogram interval log, one line and tag a series, for the Java and Python readers and
//! all that is built on them.

use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::{
    V2DeflateSerializer,
    interval_log::{IntervalLogWriterBuilder, Tag},
};
use jiff::Timestamp;

use super::{
    error::ExportError,
    histogram::{empty, fill},
    rows::{Labels, rows},
};
use podstuck_model::series::{NamesTable, SeriesTable};

/// Name of the file.
pub const FILE: &str = "histograms.hlog";

/// The readers read the column of the greatest value as milliseconds.
const NANOSECONDS_PER_MILLISECOND: f64 = 1e6;

/// Renders the log of one window. Values are nanoseconds.
pub fn hlog(
    start: Timestamp,
    window: Duration,
    (series, names): (&SeriesTable, &NamesTable),
) -> Result<Vec<u8>, ExportError> {
    let mut out = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let start = SystemTime::from(start);
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[Logged with podstuck; values are nanoseconds]")
        .add_comment("[Histogram log format version 1.3]")
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(NANOSECONDS_PER_MILLISECOND)
        .begin_log_with(&mut out, &mut serializer)
        .map_err(ExportError::render(FILE))?;
    let mut histogram = empty().map_err(ExportError::render(FILE))?;
    for (labels, series) in rows(series, names) {
        fill(&mut histogram, &series);
        log.write_histogram(&histogram, Duration::ZERO, window, Tag::new(&tag(&labels)))
            .map_err(ExportError::render(FILE))?;
    }
    drop(log);
    Ok(out)
}

/// `unlinkat;EBUSY;pod=UID;volume=data;by=kubelet;namespace=shop;name=cart-0;plugin=kubernetes.io/csi`; unknown parts
/// are left out.
fn tag(labels: &Labels) -> String {
    let mut tag = format!("{};{}", labels.syscall, quote(&labels.outcome));
    for (name, value) in [
        ("pod", labels.pod.as_str()),
        ("volume", &labels.volume),
        ("container", &labels.container),
        ("by", labels.component),
        ("namespace", &labels.names.namespace),
        ("name", &labels.names.pod_name),
        ("plugin", &labels.names.plugin),
    ] {
        if !value.is_empty() {
            tag.push_str(&format!(";{name}={}", quote(value)));
        }
    }
    tag
}

/// Escapes as `%NN` the characters that the log's grammar, the tag's or a shell would interpret.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_whitespace() || matches!(c, ',' | ';' | '=' | '%' | '"' | '\'') {
            let mut buffer = [0; 4];
            for byte in c.encode_utf8(&mut buffer).as_bytes() {
                out.push_str(&format!("%{byte:02X}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use base64::{Engine, prelude::BASE64_STANDARD};
    use hdrhistogram::{
        Histogram,
        serialization::{
            Deserializer,
            interval_log::{IntervalLogIterator, LogEntry},
        },
    };

    use super::*;
    use crate::export::sample;
    use podstuck_model::series::TargetNames;

    #[test]
    fn the_log_reads_back_with_tags_counts_and_times() {
        let names = TargetNames {
            namespace: "shop".into(),
            pod_name: "cart-0".into(),
            plugin: "kubernetes.io/csi".into(),
        };
        let key = (sample::UID.into(), "data".into(), String::new());
        let names = NamesTable::from([(key, names)]);
        let table = sample::table();
        let log = hlog(sample::start(), Duration::from_secs(30), (&table, &names)).unwrap();
        let text = std::str::from_utf8(&log).unwrap();
        assert!(text.contains("#[StartTime: 1700000000.000 (seconds since epoch)]\n"), "{text}");
        let mut seen = Vec::new();
        for entry in IntervalLogIterator::new(&log) {
            let LogEntry::Interval(interval) = entry.unwrap() else { continue };
            assert_eq!(interval.duration(), Duration::from_secs(30));
            let bytes = BASE64_STANDARD.decode(interval.encoded_histogram()).unwrap();
            let histogram: Histogram<u64> =
                Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
            let tag = interval.tag().map(|t| t.as_str().to_owned()).unwrap();
            seen.push((tag, histogram.len(), interval.max()));
        }
        let uid = sample::UID;
        assert_eq!(
            seen,
            [
                ("umount2;errno%20530;by=other".into(), 1, 5_003_636.9),
                (format!("unlink;ok;pod={uid};volume=a%2Cb%22%20%3Bc\\x1b;by=workload"), 2, 0.0),
                (
                    format!(
                        "unlinkat;EBUSY;pod={uid};volume=data;by=kubelet;namespace=shop;name=cart-0;plugin=kubernetes.io/csi"
                    ),
                    103,
                    1234.174
                ),
            ]
        );
    }

    #[test]
    fn a_quiet_window_is_a_log_without_lines() {
        let none = (&SeriesTable::new(), &NamesTable::new());
        let log = hlog(sample::start(), Duration::ZERO, none).unwrap();
        let text = String::from_utf8(log).unwrap();
        assert!(text.lines().count() == 5 && text.lines().all(|l| l.starts_with('#')), "{text}");
    }
}
