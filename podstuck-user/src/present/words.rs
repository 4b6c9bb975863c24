//! Words and numbers for people, the same everywhere.

use jiff::{SignedDuration, Timestamp};

use crate::model::{
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
pub(crate) const fn state(state: FindingState) -> &'static str {
    match state {
        FindingState::New => "new",
        FindingState::Update => "update",
        FindingState::Cleared => "cleared",
    }
}

/// What a finding means for its pod.
pub(crate) const fn blocks(blocks_deletion: Option<bool>) -> &'static str {
    match blocks_deletion {
        Some(true) => "blocks the pod",
        Some(false) => "does not block the pod",
        None => "unknown whether it blocks the pod",
    }
}

/// As in `likely (0.70)`.
pub(crate) fn certainty(certainty: Certainty) -> String {
    let word = match certainty {
        Certainty::Firm => "certain",
        Certainty::Likely => "likely",
        Certainty::Possible => "possible",
    };
    format!("{word} ({:.2})", certainty.confidence())
}

/// As in `812,345`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// As in `1 call`, `2 calls`.
pub(crate) fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

/// As in `once`, `3 times`.
pub(crate) fn times(n: u64) -> String {
    if n == 1 { "once".into() } else { format!("{} times", count(n)) }
}

/// As in `4m 2s`.
pub(crate) fn duration(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    format!("{:#}", SignedDuration::from_secs(seconds))
}

/// A window in seconds, as in `30 s` or `0.5 s`.
pub(crate) fn window(seconds: f64) -> String {
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
