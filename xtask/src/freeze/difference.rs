//! The first difference between two answers, shortened: a line of JSON may have thousands of characters.

/// Number of characters shown from the difference on.
const SHOWN: usize = 160;
/// Number of characters shown before it.
const BEFORE: usize = 40;

/// The first differing line, from shortly before the difference; `None` without one.
pub(super) fn difference(before: &[u8], now: &[u8]) -> Option<String> {
    if before == now {
        return None;
    }
    let [before, now] = [before, now].map(String::from_utf8_lossy);
    let (mut before, mut now) = (before.lines(), now.lines());
    let mut number = 0;
    loop {
        number += 1;
        let pair = (before.next(), now.next());
        if pair == (None, None) {
            return Some("only the ends of lines differ".into());
        }
        if pair.0 == pair.1 {
            continue;
        }
        let [before, now] = [pair.0, pair.1].map(Option::unwrap_or_default);
        let same = before.chars().zip(now.chars()).take_while(|(one, other)| one == other).count();
        let [before, now] = [before, now].map(|line| {
            line.chars().skip(same.saturating_sub(BEFORE)).take(SHOWN).collect::<String>()
        });
        return Some(format!("line {number}\n  before: {before}\n  now:    {now}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_shown_from_where_it_differs() {
        let line = |end: &str| format!("same\n{}{end}", "x".repeat(5_000));
        assert_eq!(difference(line("a").as_bytes(), line("a").as_bytes()), None);
        let shown = difference(line("a").as_bytes(), line("b").as_bytes()).unwrap();
        assert!(shown.starts_with("line 2\n  before: xxx") && shown.ends_with("xxxb"), "{shown}");
        assert!(shown.len() < 200);
        assert_eq!(difference(b"a\n", b"a").unwrap(), "only the ends of lines differ");
        assert_eq!(difference(b"a\nb\n", b"a\n").unwrap(), "line 2\n  before: b\n  now:    ");
    }
}
