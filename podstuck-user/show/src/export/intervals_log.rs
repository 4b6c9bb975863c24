//! `intervals.hlog`: an HdrHistogram interval log with a line for each interval and kind of call, for heat maps and
//! comparisons of two runs. One significant digit is as fine as the latency buckets are.

use std::{
    io::{self, Read},
    time::{Duration, SystemTime},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::read::ZlibDecoder;
use hdrhistogram::{
    Histogram,
    serialization::{
        Deserializer, V2DeflateSerializer,
        interval_log::{IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag},
    },
};
use jiff::Timestamp;
use podstuck_common::bucket;

use super::{
    error::ExportError,
    hlog::quote,
    intervals::{Intervals, Kind},
};

/// Name of the file.
pub const FILE: &str = "intervals.hlog";

const SIGNIFICANT_DIGITS: u8 = 1;
/// Bytes of the counts and the header: fewer than a thousand counts of at most nine bytes.
const LARGEST_HISTOGRAM: u64 = 16 << 10;
/// Seconds of ten years, and more calls than any interval has.
const LONGEST_INTERVAL: u64 = 315_360_000;
const MOST_CALLS: u64 = 1 << 40;
const NANOSECONDS_PER_MILLISECOND: f64 = 1e6;
/// The comment with the length of each interval: an interval without calls has no line.
const LENGTH: &str = "[Interval: ";
/// The comment with the longest call of a kind, exact: nanoseconds, and the tag.
const LONGEST: &str = "[Longest: ";

/// Renders the log. Values are nanoseconds.
pub fn log(start: Timestamp, intervals: &Intervals) -> Result<Vec<u8>, ExportError> {
    let mut out = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let start = SystemTime::from(start);
    let mut log = IntervalLogWriterBuilder::new();
    log.add_comment("[Logged with podstuck; values are nanoseconds]")
        .add_comment("[Histogram log format version 1.3]")
        .add_comment(&format!("{LENGTH}{} s]", intervals.length().as_secs()));
    for (kind, ns) in intervals.longest() {
        log.add_comment(&format!("{LONGEST}{ns} ns, {}]", tag(kind)));
    }
    let mut log = log
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(NANOSECONDS_PER_MILLISECOND)
        .begin_log_with(&mut out, &mut serializer)
        .map_err(ExportError::render(FILE))?;
    let longest = bucket::lower_bound(bucket::BUCKETS) * 2;
    let mut histogram = Histogram::<u64>::new_with_bounds(1, longest, SIGNIFICANT_DIGITS)
        .map_err(ExportError::render(FILE))?;
    for (number, interval) in (0..).zip(intervals.iter()) {
        for (kind, buckets) in interval {
            histogram.reset();
            for (bucket, calls) in buckets {
                histogram.saturating_record_n(bucket::highest(*bucket), *calls);
            }
            let begin = intervals.length() * number;
            log.write_histogram(&histogram, begin, intervals.length(), Tag::new(&tag(kind)))
                .map_err(ExportError::render(FILE))?;
        }
    }
    drop(log);
    Ok(out)
}

fn tag(kind: &Kind) -> String {
    let mut tag = format!("{};{}", kind.syscall, quote(&kind.outcome));
    if !kind.plugin.is_empty() {
        tag.push_str(&format!(";plugin={}", quote(&kind.plugin)));
    }
    tag + ";by=" + &kind.component
}

fn kind(tag: &str) -> Option<Kind> {
    let mut parts = tag.split(';');
    let (syscall, outcome) = (unquote(parts.next()?), unquote(parts.next()?));
    let mut kind = Kind { syscall, outcome, plugin: String::new(), component: String::new() };
    for part in parts {
        match part.split_once('=')? {
            ("plugin", value) => kind.plugin = unquote(value),
            ("by", value) => kind.component = unquote(value),
            _ => return None,
        }
    }
    Some(kind)
}

/// Reverses [`quote`].
fn unquote(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let byte = || u8::from_str_radix(std::str::from_utf8(after.get(..2)?).ok()?, 16).ok();
        match (first, byte()) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Decompresses a histogram, if it is one of podstuck's: any other could require gigabytes.
fn inflated(bytes: &[u8]) -> Option<Vec<u8>> {
    // In the format's second version, the counts follow their length, an offset, the digits, and the least and the
    // greatest value.
    let (mut plain, compressed) = (Vec::new(), bytes.get(8..)?);
    ZlibDecoder::new(compressed).take(LARGEST_HISTOGRAM).read_to_end(&mut plain).ok()?;
    let number = |at: usize| Some(u32::from_be_bytes(plain.get(at..at + 4)?.try_into().ok()?));
    let greatest = u64::from_be_bytes(plain.get(24..32)?.try_into().ok()?);
    let counts = plain.len().checked_sub(40)?;
    let is_ours = number(4)? as usize <= counts
        && number(12)? == u32::from(SIGNIFICANT_DIGITS)
        && greatest <= bucket::lower_bound(bucket::BUCKETS) * 2;
    is_ours.then_some(plain)
}

/// Reads a log; returns its start time and intervals.
///
/// # Errors
/// Fails with the part that differs from podstuck's format.
pub fn read(log: &[u8]) -> io::Result<(Timestamp, Intervals)> {
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let text = String::from_utf8_lossy(log);
    let length = text.lines().find_map(|line| {
        line.strip_prefix('#')?.strip_prefix(LENGTH)?.strip_suffix(" s]")?.parse().ok()
    });
    let length = length.filter(|length| (1..=LONGEST_INTERVAL).contains(length));
    let length = length.ok_or_else(|| wrong("it does not say how long an interval is".into()))?;
    let mut intervals = Intervals::of(Duration::from_secs(length));
    for line in text.lines() {
        let comment = line.strip_prefix('#').and_then(|line| line.strip_prefix(LONGEST));
        let Some(comment) = comment else { continue };
        let longest = comment.strip_suffix(']').and_then(|it| it.split_once(" ns, "));
        let longest = longest.and_then(|(ns, tag)| Some((ns.parse().ok()?, kind(tag)?)));
        let (ns, kind) = longest.ok_or_else(|| wrong("a longest call is not understood".into()))?;
        intervals.note(&kind, ns);
    }
    let (mut start, mut deserializer) = (Duration::ZERO, Deserializer::new());
    for entry in IntervalLogIterator::new(log) {
        match entry.map_err(|why| wrong(format!("a line is not a log entry: {why:?}")))? {
            LogEntry::StartTime(time) => start = time,
            LogEntry::BaseTime(_) => {}
            LogEntry::Interval(line) => {
                let tag = line.tag().map(|tag| tag.as_str().to_owned()).unwrap_or_default();
                let kind =
                    kind(&tag).ok_or_else(|| wrong(format!("the tag {tag:?} is not known")))?;
                let bytes = BASE64_STANDARD.decode(line.encoded_histogram());
                let bytes = bytes.map_err(|why| wrong(format!("a histogram: {why}")))?;
                let bytes =
                    inflated(&bytes).ok_or_else(|| wrong("a histogram of others".into()))?;
                let histogram: Histogram<u64> = deserializer
                    .deserialize(&mut bytes.as_slice())
                    .map_err(|why| wrong(format!("a histogram: {why}")))?;
                for value in histogram.iter_recorded() {
                    let ns = histogram.lowest_equivalent(value.value_iterated_to());
                    let (at, bucket) = (line.start_timestamp(), bucket::bucket_of(ns));
                    let calls = value.count_at_value();
                    if calls > MOST_CALLS {
                        return Err(wrong(format!("{calls} calls in one interval")));
                    }
                    intervals.add(at, kind.clone(), bucket, calls);
                }
            }
        }
    }
    let start = SystemTime::UNIX_EPOCH.checked_add(start).and_then(|time| time.try_into().ok());
    Ok((start.unwrap_or_default(), intervals))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Intervals {
        let mut all = Intervals::default();
        let kind = |plugin: &str, outcome: &str| Kind {
            syscall: "unlinkat+AT_REMOVEDIR".into(),
            outcome: outcome.into(),
            plugin: plugin.into(),
            component: "kubelet".into(),
        };
        for bucket in 0..bucket::BUCKETS {
            let at = Duration::from_secs(u64::from(bucket) % 50);
            all.add(at, kind("kubernetes.io/csi", "ok"), bucket, 3 + u64::from(bucket));
        }
        all.add(Duration::from_secs(3), kind("", "errno 530"), 9, 1);
        all.note(&kind("", "errno 530"), 123_456_789);
        all.note(&kind("a=b; \"%25,\u{e4}", "EBUSY"), u64::MAX);
        all.add(Duration::from_secs(60), kind("a=b; \"%25,\u{e4}", "EBUSY"), 9, 1);
        all
    }

    #[test]
    fn every_bucket_kind_and_interval_is_read_back() {
        let start = Timestamp::from_second(1_700_000_000).unwrap();
        let (read_start, read) = read(&log(start, &sample()).unwrap()).unwrap();
        assert_eq!((read_start, read), (start, sample()));
    }

    #[test]
    fn fuzz_intervals_log() {
        podstuck_fuzz::fuzz("intervals_log", |input| drop(read(input)));
    }

    #[test]
    fn any_other_file_is_an_error_with_its_reason() {
        assert!(read(b"#[a]\n").unwrap_err().to_string().contains("how long"));
        let log = b"#[Interval: 1 s]\n#[Longest: many ns, unlink;ok;by=other]\n";
        assert!(read(log).unwrap_err().to_string().contains("longest call"), "{:?}", read(log));
        let log = b"#[Interval: 1 s]\nTag=x,0.000,1.000,0.0,AAAA\n";
        assert!(read(log).unwrap_err().to_string().contains("is not known"), "{:?}", read(log));
    }
}
