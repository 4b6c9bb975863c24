//! Fits text and numbers into columns. The input is escaped already.

use textwrap::{Options, WordSeparator, WordSplitter, core::display_width};

const CUT: char = '…';

/// As much of the text as fits, from its start.
pub(super) fn fit_end(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    let mut out = take(text.chars(), width.saturating_sub(1));
    if width > 0 {
        out.push(CUT);
    }
    out
}

/// As [`fit_end`], padded with spaces.
pub(super) fn fit(text: &str, width: usize) -> String {
    let mut out = fit_end(text, width);
    out.extend(std::iter::repeat_n(' ', width.saturating_sub(display_width(&out))));
    out
}

/// Start and end of the text: in a path, both say more than the middle.
pub(super) fn middle(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let front = take(text.chars(), room / 3);
    let back: String =
        take(text.chars().rev(), room - display_width(&front)).chars().rev().collect();
    if width == 0 { String::new() } else { format!("{front}{CUT}{back}") }
}

fn take(chars: impl Iterator<Item = char>, width: usize) -> String {
    let (mut out, mut used) = (String::new(), 0);
    for c in chars {
        used += display_width(c.encode_utf8(&mut [0; 4]));
        if used > width {
            break;
        }
        out.push(c);
    }
    out
}

/// Wraps a line, with continuation lines indented; longer words are broken.
pub(super) fn wrap(line: &str, width: usize) -> Vec<String> {
    if display_width(line) <= width {
        return vec![line.to_owned()];
    }
    let body = line.trim_start_matches(' ');
    let indent = " ".repeat((line.len() - body.len()).min(width / 2));
    let further = format!("{indent}  ");
    let options = Options::new(width.max(8))
        .initial_indent(&indent)
        .subsequent_indent(&further)
        .break_words(true)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation);
    textwrap::wrap(body, options).into_iter().map(|line| line.into_owned()).collect()
}

/// Nanoseconds, as in `1.5 ms`.
pub(super) fn latency(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    if value < 10.0 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// Deletions per second.
pub(super) fn rate(per_second: f64) -> String {
    if per_second > 0.0 && per_second < 10.0 {
        format!("{per_second:.1}")
    } else {
        crate::present::words::count(per_second.round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_keeps_its_columns() {
        assert_eq!(fit("abc", 5), "abc  ");
        assert_eq!(fit("abcdef", 4), "abc…");
        assert_eq!(fit("日本語", 4), "日… ");
        assert_eq!(middle("/var/lib/kubelet/pods/x/mount", 12), "/va…/x/mount");
        for width in 0..12 {
            assert_eq!(display_width(&fit("日本語 text", width)), width);
            assert!(display_width(&middle("日本語 text/end", width)) <= width);
        }
    }

    #[test]
    fn long_lines_go_on_further_in_and_nothing_is_lost() {
        let lines = wrap("    - a fact [/proc/4242/cwd] that is long", 20);
        assert!(lines.iter().all(|line| display_width(line) <= 20), "{lines:?}");
        assert_eq!(lines[0], "    - a fact");
        assert!(lines[1].starts_with("      "));
        let command = format!("    $ umount {}", "x".repeat(50));
        let all: String = wrap(&command, 20).concat().replace(' ', "");
        assert_eq!(all, command.replace(' ', ""));
    }

    #[test]
    fn numbers_are_short() {
        let all = [512, 1_024, 15_000, 1_500_000, 2_000_000_000].map(latency);
        assert_eq!(all.join(", "), "512 ns, 1.0 µs, 15 µs, 1.5 ms, 2.0 s");
        assert_eq!([0.0, 0.4, 12.4, 5_120.5].map(rate).join(", "), "0, 0.4, 12, 5,121");
    }
}
