//! Text as Go quotes it (`strconv.Quote`): klog and logrus write what others can choose in this form.

/// The quoted text that `text` begins with, unquoted, and the rest. `None` where it begins with no quote, or the
/// quote has no end.
pub(super) fn quoted(text: &str) -> Option<(String, &str)> {
    let mut out = Vec::new();
    let mut rest = text.strip_prefix('"')?;
    loop {
        let end = rest.find(['"', '\\'])?;
        out.extend_from_slice(rest.as_bytes().get(..end)?);
        let is_end = rest.as_bytes().get(end) == Some(&b'"');
        rest = rest.get(end + 1..)?;
        if is_end {
            return Some((String::from_utf8_lossy(&out).into_owned(), rest));
        }
        rest = escaped(rest, &mut out)?;
    }
}

/// Decodes the escape after a backslash into `out`; returns the rest.
fn escaped<'a>(text: &'a str, out: &mut Vec<u8>) -> Option<&'a str> {
    let mut chars = text.chars();
    let kind = chars.next()?;
    let rest = chars.as_str();
    let digits = match kind {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => 0,
    };
    if digits > 0 {
        let code = u32::from_str_radix(rest.get(..digits)?, 16).ok()?;
        match u8::try_from(code) {
            // `\x` is a byte, and may be no whole character.
            Ok(byte) if kind == 'x' => out.push(byte),
            _ => {
                let mut buffer = [0; 4];
                out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut buffer).as_bytes());
            }
        }
        return rest.get(digits..);
    }
    out.push(match kind {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' => b'\\',
        '"' => b'"',
        _ => return None,
    });
    Some(rest)
}

/// Quotes a text so that [`quoted`] reads it.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A value as klog writes it: quoted, or over several lines, each after a tab, until ` >`. Returns it and the rest.
pub(super) fn value(text: &str) -> Option<(String, &str)> {
    let Some(lines) = text.strip_prefix("<\n") else { return quoted(text) };
    let end = lines.find("\n >")?;
    let error: Vec<&str> =
        lines.get(..end)?.lines().map(|line| line.strip_prefix('\t').unwrap_or(line)).collect();
    Some((error.join("\n"), lines.get(end + 3..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded() {
        let (text, rest) = quoted(r#""a\"b\\\n\x1b[2J\u00e4\xc3\xa4" level=x"#).unwrap();
        assert_eq!((text.as_str(), rest), ("a\"b\\\n\u{1b}[2Jää", " level=x"));
    }

    #[test]
    fn a_quoted_text_is_read_back() {
        for text in ["", "a", "a\"b\\\n\t\u{1b}[2Jä\u{85}"] {
            assert_eq!(quoted(&quote(text)), Some((text.to_owned(), "")));
        }
    }

    #[test]
    fn other_text_is_not_taken_for_a_quote() {
        for text in [
            "",
            "a",
            "\"",
            "\"a",
            r#""\"#,
            r#""\q""#,
            r#""\x1""#,
            r#""\u12"#,
            r#""\Uffffffff""#,
            "\"ä\\",
        ] {
            assert_eq!(quoted(text), None, "{text}");
        }
    }
}
