//! Printed commands, to be pasted into any common shell: bash, zsh, dash, busybox's ash or fish, with history and
//! line editing on. A command must do only what it says, whatever a tenant has named a file.
//!
//! Quotes alone do not ensure that: in an interactive bash, `\'` and `!#` in a name execute text that was typed
//! before, and `$'...'` is not a quote in a POSIX shell. So a name has one of three forms:
//!
//! - `[A-Za-z0-9/._-]` is unquoted;
//! - printable ASCII without `'`, `\` and `!` is in single quotes;
//! - any other name is data: `printf '/a/b\047c\000' | xargs -0 sh -c 'SCRIPT' sh`, with a fixed script.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use thiserror::Error;

/// Delimits a name, in hexadecimal digits, in the text of a command until [`line`] converts it.
const NAME: char = '\u{e000}';
const END: char = '\u{e001}';
/// Characters that a script for `sh -c` must not contain.
const UNFIT: [char; 3] = ['\'', '\\', '!'];
/// Maximum number of names in a command: `$10` is `$1` and a zero.
const NAMES: usize = 9;
/// Maximum length of a line. busybox's ash takes 1,023 characters and drops the rest, a terminal takes 4,095; a
/// truncated line would be another command.
const LONGEST: usize = 1000;

/// Why a command is not printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unprintable {
    /// Some shells would truncate it.
    #[error(
        "no command is given, because it would be longer than the line that every shell accepts"
    )]
    Long,
    /// A program would take a name for an option, or a name is in a text that not all shells accept.
    #[error("no command is given, because of the characters in a name")]
    Name,
}

/// A command as it is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// One line of printable ASCII.
    pub text: String,
    /// Whether it requires `xargs`.
    pub by_xargs: bool,
}

/// A name in the text of a command, for [`line`].
pub fn word(name: impl AsRef<OsStr>) -> String {
    let bytes = name.as_ref().as_bytes();
    if is_bare(bytes) {
        return bytes.iter().map(|byte| char::from(*byte)).collect();
    }
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{NAME}{digits}{END}")
}

/// Whether this can be the name of a Kubernetes object and not an option of kubectl.
pub fn is_object_name(name: &str) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut bytes = name.as_bytes().iter();
    bytes.next().is_some_and(is_part) && bytes.all(|byte| is_part(byte) || b".-".contains(byte))
}

/// The line for a text that contains names as [`word`]s; `in_sh` if it uses syntax that not every shell supports.
///
/// # Errors
/// Fails if no line is safe to type.
pub fn line(text: &str, in_sh: bool) -> Result<Line, Unprintable> {
    // Outside of the script, which must not contain it.
    let (not, text) = text.strip_prefix("! ").map_or(("", text), |rest| ("! ", rest));
    let (texts, names) = parts(text);
    if names.iter().any(|name| name.starts_with(b"-")) {
        return Err(Unprintable::Name);
    }
    let by_xargs = !names.iter().all(|name| is_quotable(name));
    let quoted = |name: &Vec<u8>| format!("'{}'", String::from_utf8_lossy(name));
    let text = if !in_sh && !by_xargs {
        joined(&texts, &names, quoted)
    } else {
        let mut known: Vec<&Vec<u8>> = Vec::new();
        for name in &names {
            if !known.contains(&name) {
                known.push(name);
            }
        }
        let number = |name: &Vec<u8>| known.iter().position(|it| *it == name).unwrap_or(NAMES) + 1;
        let script = joined(&texts, &names, |name| format!("\"${}\"", number(name)));
        if script.contains(UNFIT) || known.len() > NAMES {
            return Err(Unprintable::Name);
        }
        if by_xargs {
            let data: String = known.iter().map(|name| octal(name)).collect();
            format!("printf '{data}' | xargs -0 sh -c '{script}' sh")
        } else if known.is_empty() {
            format!("sh -c '{script}'")
        } else {
            let words: String = known.iter().map(|name| format!(" {}", quoted(name))).collect();
            format!("sh -c '{script}' sh{words}")
        }
    };
    let text = format!("{not}{text}");
    if !text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return Err(Unprintable::Name);
    }
    if text.len() > LONGEST {
        return Err(Unprintable::Long);
    }
    Ok(Line { text, by_xargs })
}

/// The texts around the names, one more than there are names, and the names.
fn parts(text: &str) -> (Vec<&str>, Vec<Vec<u8>>) {
    let (mut texts, mut names) = (Vec::new(), Vec::new());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(NAME) {
        let Some((name, after)) = after.split_once(END) else { break };
        texts.push(before);
        names.push(bytes(name));
        rest = after;
    }
    texts.push(rest);
    (texts, names)
}

fn joined(texts: &[&str], names: &[Vec<u8>], form: impl Fn(&Vec<u8>) -> String) -> String {
    let mut forms = names.iter().map(form);
    let mut out = String::new();
    for text in texts {
        out.push_str(text);
        out.push_str(&forms.next().unwrap_or_default());
    }
    out
}

/// Decodes pairs of hexadecimal digits.
fn bytes(digits: &str) -> Vec<u8> {
    let pairs = (0..digits.len() / 2).filter_map(|at| digits.get(2 * at..2 * at + 2));
    pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

/// The name as a printf(1) format, with a null byte at the end.
fn octal(name: &[u8]) -> String {
    let one = |byte: &u8| match byte {
        byte if is_plain(*byte) => char::from(*byte).to_string(),
        byte => format!("\\{byte:03o}"),
    };
    name.iter().chain([&0]).map(one).collect()
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/._-".contains(&byte)
}

fn is_bare(name: &[u8]) -> bool {
    !name.is_empty() && !name.starts_with(b"-") && name.iter().all(|byte| is_plain(*byte))
}

fn is_quotable(name: &[u8]) -> bool {
    let is_fit = |byte: &u8| {
        (*byte == b' ' || byte.is_ascii_graphic()) && !UNFIT.contains(&char::from(*byte))
    };
    name.iter().all(is_fit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &[u8], in_sh: bool) -> String {
        line(&format!("act {}", word(OsStr::from_bytes(name))), in_sh).unwrap().text
    }

    #[test]
    fn a_name_has_one_of_three_forms() {
        assert_eq!(of(b"/a/b_c-1.x", false), "act /a/b_c-1.x");
        assert_eq!(of(b"/k~v", false), "act '/k~v'");
        assert_eq!(of(b"/a b;rm$(x)`y`", false), "act '/a b;rm$(x)`y`'");
        for (name, data) in [
            (&b"/a/b'c"[..], r"/a/b\047c"),
            (b"/!!", r"/\041\041"),
            (b"/a\\", r"/a\134"),
            (b"/%d\n\xff \x1b", r"/\045d\012\377\040\033"),
        ] {
            let line = of(name, false);
            assert_eq!(line, format!("printf '{data}\\000' | xargs -0 sh -c 'act \"$1\"' sh"));
        }
    }

    #[test]
    fn a_script_gets_its_names_from_outside() {
        assert_eq!(of(b"/a/b", true), "sh -c 'act /a/b'");
        assert_eq!(of(b"/a b", true), "sh -c 'act \"$1\"' sh '/a b'");
        let (odd, plain) = (word("/x!y"), word("/p q"));
        let made = line(&format!("! see {odd} {plain} && do {odd}"), false).unwrap();
        let expected =
            r#"! printf '/x\041y\000/p\040q\000' | xargs -0 sh -c 'see "$1" "$2" && do "$1"' sh"#;
        assert_eq!(made, Line { text: expected.into(), by_xargs: true });
        assert_eq!(line("sleep 1; ! kill -0 7", false).unwrap().text, "sleep 1; ! kill -0 7");
    }

    #[test]
    fn what_cannot_be_typed_safely_is_no_command() {
        let error = |text: &str, in_sh| line(text, in_sh).unwrap_err();
        let odd = word("/a'b");
        assert_eq!(error(&format!("sed 's/x//' {odd}"), false), Unprintable::Name);
        assert_eq!(error("echo 'x'", true), Unprintable::Name);
        assert_eq!(error(&format!("rm {}", word("-rf")), false), Unprintable::Name);
        assert_eq!(error("rm /a\u{1b}", false), Unprintable::Name);
        let many: String = (0..10).map(|at| word(format!("'{at}"))).collect();
        assert_eq!(error(&many, false), Unprintable::Name);
        assert_eq!(error(&format!("rm /{}", "n".repeat(1000)), false), Unprintable::Long);
        // A delimiter from other input is not accepted.
        assert_eq!(error("rm \u{e000}2f61", false), Unprintable::Name);
    }

    #[test]
    fn an_object_of_kubernetes_is_no_option() {
        for name in ["shop", "cart-0", "0.a"] {
            assert!(is_object_name(name), "{name}");
        }
        for other in ["", "-A", ".a", "Cart", "a b", "a_b", "a;b", "ä"] {
            assert!(!is_object_name(other), "{other}");
        }
    }
}
