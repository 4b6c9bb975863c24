//! Renders a comparison as text.

use super::series::{Change, Comparison, Measure, TooFew};
use crate::present::{style::Style, words};
use podstuck_model::path::safe;

/// The changes, the most certain first; then the series that could not be compared.
pub fn text(comparison: &Comparison, style: Style) -> String {
    let Comparison { changes, compared, too_few } = comparison;
    let of = words::plural(*compared as u64, "measure", "measures");
    let mut out = match (changes.len(), compared) {
        (0, 0) => "nothing can be compared: there is too little of every series\n".to_owned(),
        (0, _) => format!("no change in {of}\n"),
        (n, _) => format!("{} in {of}\n", words::plural(n as u64, "change", "changes")),
    };
    for change in changes {
        out.push_str(&style.wrap("  ", "    ", &described(change)));
    }
    if !too_few.is_empty() {
        out.push_str("cannot be compared: too few\n");
    }
    for TooFew { syscall, outcome, plugin, component, why } in too_few {
        let series = series([syscall, outcome, plugin, component]);
        out.push_str(&style.wrap("  - ", "    ", &format!("{series}: {why}")));
    }
    out
}

fn described(change: &Change) -> String {
    let Change { measure, worse, syscall, outcome, plugin, component, before, after, p } = change;
    let series = series([syscall, outcome, plugin, component]);
    let how = match (measure, worse) {
        (Measure::Failures, true) => "fails more",
        (Measure::Failures, false) => "fails less",
        (_, true) => "slower",
        (_, false) => "faster",
    };
    let (least, most) = (before.min(*after), before.max(*after));
    let ratio = if least > 0.0 { format!(", {:.1} times", most / least) } else { String::new() };
    let (name, before, after) = match measure {
        Measure::Median => ("half take up to", latency(*before), latency(*after)),
        Measure::P99 => ("99 % take up to", latency(*before), latency(*after)),
        Measure::Failures => ("of all calls", share(*before), share(*after)),
    };
    format!("{how}: {series}: {name} {before}, now {after}{ratio} (p {p:.4})")
}

fn series(parts: [&str; 4]) -> String {
    let [syscall, outcome, plugin, component] = parts.map(|part| safe(part.as_bytes()));
    let on = if plugin.is_empty() { "no known volume".into() } else { plugin };
    format!("{syscall} {outcome}, on {on}, by {component}")
}

fn latency(ns: f64) -> String {
    words::latency(ns as u64)
}

fn share(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_says_what_of_which_series_and_how_sure() {
        let [syscall, outcome, plugin, component] =
            ["unlinkat", "ok", "kubernetes.io/csi\u{1b}", "kubelet"].map(String::from);
        let why = "none in the first run".to_owned();
        let too_few = TooFew {
            syscall: syscall.clone(),
            outcome: outcome.clone(),
            plugin: String::new(),
            component: component.clone(),
            why,
        };
        let change = Change {
            measure: Measure::Median,
            worse: true,
            syscall,
            outcome,
            plugin,
            component,
            before: 10_000.0,
            after: 25_000.0,
            p: 0.0031,
        };
        let failures = Change {
            measure: Measure::Failures,
            worse: false,
            before: 0.5,
            after: 0.0,
            ..change.clone()
        };
        let comparison =
            Comparison { changes: vec![change, failures], compared: 4, too_few: vec![too_few] };
        assert_eq!(
            text(&comparison, Style { width: 200, ..Style::PLAIN }),
            "2 changes in 4 measures\n  \
             slower: unlinkat ok, on kubernetes.io/csi\\x1b, by kubelet: half take up to 10.0 µs, now 25.0 µs, 2.5 times (p 0.0031)\n  \
             fails less: unlinkat ok, on kubernetes.io/csi\\x1b, by kubelet: of all calls 50.00 %, now 0.00 % (p 0.0031)\n\
             cannot be compared: too few\n  \
             - unlinkat ok, on no known volume, by kubelet: none in the first run\n"
        );
    }
}
