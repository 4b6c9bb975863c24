//! Words and numbers for people, the same everywhere.

use jiff::{SignedDuration, Timestamp};

pub use podstuck_model::words::{count, plural};
use podstuck_model::{
    evidence::Certainty,
    finding::{FindingState, Severity},
};

/// As in JSON.
pub(crate) const fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

/// As in JSON.
pub const fn state(state: FindingState) -> &'static str {
    match state {
        FindingState::New => "new",
        FindingState::Update => "update",
        FindingState::Cleared => "cleared",
    }
}

/// What a finding means for its pod.
pub const fn blocks(blocks_deletion: Option<bool>) -> &'static str {
    match blocks_deletion {
        Some(true) => "blocks the pod",
        Some(false) => "does not block the pod",
        None => "unknown whether it blocks the pod",
    }
}

/// As in `likely (0.70)`.
pub fn certainty(certainty: Certainty) -> String {
    format!("{} ({:.2})", certainty.word(), certainty.confidence())
}

/// As in `once`, `3 times`.
pub fn times(n: u64) -> String {
    if n == 1 { "once".into() } else { format!("{} times", count(n)) }
}

/// As in `4m 2s`.
pub fn duration(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    format!("{:#}", SignedDuration::from_secs(seconds))
}

/// As in `45s`, `12m`, `3h5m` or `2d3h`: short enough for a column.
pub fn age(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m"),
        (0, ..) => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// As in `9.7 µs` or `1.28 s`.
pub(crate) fn latency(ns: u64) -> String {
    let (unit, scale) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => ("µs", 1e3),
        1_000_000..1_000_000_000 => ("ms", 1e6),
        1_000_000_000..120_000_000_000 => ("s", 1e9),
        _ => ("min", 60e9),
    };
    let value = ns as f64 / scale;
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// A time span in seconds, as in `30 s` or `0.5 s`.
pub fn window(seconds: f64) -> String {
    let text = format!("{seconds:.1}");
    format!("{} s", text.strip_suffix(".0").unwrap_or(&text))
}

/// In UTC, as in `2023-11-14 22:13:20Z`.
pub(crate) fn moment(time: Timestamp) -> String {
    time.strftime("%F %TZ").to_string()
}

/// As in `12.3 MiB`.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [0, 999, 1_000, 812_345, 1_234_567].map(count).join(" "),
            "0 999 1,000 812,345 1,234,567"
        );
        assert_eq!((times(1), times(1_000)), ("once".into(), "1,000 times".into()));
        assert_eq!([0, 59, 242, 7_384].map(duration).join(", "), "0s, 59s, 4m 2s, 2h 3m 4s");
        assert_eq!([30.0, 0.52, 3_600.0].map(window).join(", "), "30 s, 0.5 s, 3600 s");
        assert_eq!(certainty(Certainty::Possible), "possible (0.30)");
        assert!(duration(u64::MAX).contains('h'));
        assert_eq!([59, 60, 7_384, 183_600].map(age).join(" "), "59s 1m 2h3m 2d3h");
        let all = [0, 256, 9_728, 34_600, 512_000, 1_275_068_416, 4_398_046_511_104].map(latency);
        assert_eq!(all.join(", "), "0 ns, 256 ns, 9.73 µs, 34.6 µs, 512 µs, 1.28 s, 73.3 min");
    }

    #[test]
    fn words_are_those_of_the_contract() {
        for s in [Severity::Info, Severity::Warning, Severity::Critical] {
            assert_eq!(serde_json::to_value(s).unwrap(), severity(s));
        }
        for s in [FindingState::New, FindingState::Update, FindingState::Cleared] {
            assert_eq!(serde_json::to_value(s).unwrap(), state(s));
        }
    }
}
