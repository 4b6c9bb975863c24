//! Renders the progress of a mass deletion in a line or two.

use super::nouns;
use crate::present::{
    style::{Ink, Style},
    words,
};
use podstuck_model::finding::Progress;

/// Label of the line.
const LABEL: &str = "deleting";

/// What is gone, the rate, what is left, and the expected end.
pub fn progress(progress: &Progress, style: Style) -> String {
    let of = progress.pod.as_ref().map(|pod| format!(" of pod {}", nouns::pod_short(pod)));
    let of = of.unwrap_or_default();
    let path = nouns::path(&progress.path);
    let path = style.path(&path, LABEL.len() + 1 + of.len());
    let label = style.paint(Ink::Label, LABEL);
    format!("{label} {path}{of}\n{}", style.wrap("  ", "  ", &numbers(progress)))
}

fn numbers(p: &Progress) -> String {
    let gone = words::plural(p.deleted, "entry", "entries");
    let directories = words::plural(p.directories, "directory", "directories");
    // The cast saturates: a rate is never negative or too large.
    let rate = words::count(p.rate_per_s.round() as u64);
    format!("{gone} gone ({directories} among them), {rate} per second; {}", rest(p, " left"))
}

/// What is left, the rate, and the expected end.
pub(super) fn left(p: &Progress) -> String {
    format!("{}, at {} per second", rest(p, ""), words::count(p.rate_per_s.round() as u64))
}

fn rest(p: &Progress, word: &str) -> String {
    let Some(left) = estimate(p.remaining_estimate, p.remaining_range, words::count) else {
        return "podstuck is still counting what is left".into();
    };
    let eta = estimate(p.eta_s, p.eta_range_s, words::duration);
    let eta = eta.map_or("no end in sight".into(), |t| format!("done in about {t}"));
    format!("about {left}{word}, {eta}")
}

/// `200,000 (150,000 to 300,000)`.
fn estimate(
    best: Option<u64>,
    range: Option<(u64, u64)>,
    show: impl Fn(u64) -> String,
) -> Option<String> {
    match (best, range) {
        (Some(best), Some((low, high))) => {
            Some(format!("{} ({} to {})", show(best), show(low), show(high)))
        }
        (Some(best), None) => Some(show(best)),
        (None, Some((low, high))) => Some(format!("{} to {}", show(low), show(high))),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::present::sample::{self, HOSTILE};
    use podstuck_model::path::JsonPath;

    #[test]
    fn a_deletion_is_shown_with_its_end() {
        let path = sample::progress().path.0;
        assert_eq!(
            progress(&sample::progress(), Style { width: 200, ..Style::PLAIN }),
            format!(
                "deleting {} of pod shop/cart-0\n  812,345 entries gone (12,001 directories among them), \
                 5,121 per second; about 200,000 (150,000 to 300,000) left, done in about 39s (29s to 58s)\n",
                path.display()
            )
        );
    }

    #[test]
    fn without_an_estimate_none_is_made_up_and_names_stay_harmless() {
        let mut unknown = sample::progress();
        unknown.path = JsonPath(HOSTILE.into());
        (unknown.remaining_estimate, unknown.remaining_range) = (None, None);
        (unknown.eta_s, unknown.eta_range_s) = (None, None);
        unknown.rate_per_s = f64::NAN;
        let shown = progress(&unknown, Style { width: 200, ..Style::PLAIN });
        assert!(
            !shown.contains('\u{1b}') && shown.starts_with(r"deleting \x1b[2J\x0aok"),
            "{shown}"
        );
        assert!(shown.contains("podstuck is still counting what is left"), "{shown}");
    }
}
