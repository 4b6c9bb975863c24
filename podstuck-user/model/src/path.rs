//! Safe display of file names, which are bytes that an attacker may choose.

use std::{
    borrow::Cow,
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::SerializeStruct,
};
use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// Text that is safe on a terminal, in HTML and in a label. If it contains anything but printable UTF-8 (control
/// characters of any kind, bidirectional overrides, stray bytes), each such byte becomes `\xNN`, and so does each
/// backslash, so that the encoding is reversible. Other text is unchanged.
pub fn safe(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.chars().all(is_harmless) => Cow::Borrowed(text),
        _ => Cow::Owned(escape(bytes)),
    }
}

/// Replaces `/var/run` by `/run` (Filesystem Hierarchy Standard 3.0, section 5.13).
pub fn in_run(path: &Path) -> Cow<'_, Path> {
    match path.strip_prefix("/var/run") {
        Ok(below) => Cow::Owned(Path::new("/run").join(below)),
        Err(_) => Cow::Borrowed(path),
    }
}

/// [`safe`] for a path.
pub fn safe_path(path: &Path) -> Cow<'_, str> {
    safe(path.as_os_str().as_bytes())
}

/// Stands for omitted names.
pub const ELLIPSIS: &str = "…";
/// Maximum columns of a path in a sentence.
const NEAR: usize = 52;
/// The entries of a pod's directory.
const OF_A_POD: [&str; 6] =
    ["volumes/", "volume-subpaths/", "volumeDevices/", "plugins/", "containers/", "etc-hosts"];

/// Splits a path below a pod's directory into that directory and the rest, which begins with a slash.
pub fn below_pod(path: &str) -> Option<(&str, &str)> {
    let mut all = path.match_indices("/pods/");
    all.find_map(|(at, pods)| {
        let after = at + pods.len();
        let split = after + path[after..].find('/')?;
        let (pod, rest) = path.split_at(split);
        let is_pods = split > after && OF_A_POD.iter().any(|name| rest[1..].starts_with(name));
        is_pods.then_some((pod, rest))
    })
}

/// A short form of a path for a sentence: without the pod's directory, and of a long path the last names. Safe to
/// show.
pub fn near(path: &Path, columns: usize) -> String {
    let whole = safe_path(path);
    let text = match below_pod(&whole) {
        Some((_, rest)) => format!("{ELLIPSIS}{rest}"),
        None => whole.into_owned(),
    };
    let columns = columns.min(NEAR);
    if text.chars().count() <= columns {
        return text;
    }
    let fits = |from: &usize| text[*from..].chars().count() < columns;
    let names = text.match_indices('/').map(|(at, _)| at).find(fits);
    names.map_or_else(|| clip(&text, columns), |at| format!("{ELLIPSIS}{}", &text[at..]))
}

/// The end of a text that exceeds `columns`.
pub fn clip(text: &str, columns: usize) -> String {
    let more = text.chars().count().saturating_sub(columns);
    if more == 0 {
        return text.to_owned();
    }
    let end: String = text.chars().skip(more + 1).collect();
    format!("{ELLIPSIS}{end}")
}

fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_harmless(c) && c != '\\' {
                out.push(c);
            } else {
                let mut buffer = [0; 4];
                push_hex(&mut out, c.encode_utf8(&mut buffer).as_bytes());
            }
        }
        push_hex(&mut out, chunk.invalid());
    }
    out
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        out.push_str(&format!("\\x{byte:02x}"));
    }
}

/// Whether a character is visible, is no control character and does not change how its neighbours are displayed.
fn is_harmless(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    // Controls, formats (also those that reorder), private and unassigned ones; spaces and line ends.
    let group = c.general_category_group();
    !matches!(group, GeneralCategoryGroup::Other | GeneralCategoryGroup::Separator)
        && !is_invisible(c)
}

/// Letters, marks and symbols without a glyph: `Default_Ignorable_Code_Point` (DerivedCoreProperties.txt) outside of
/// the groups above, and the empty Braille pattern.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{034f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2800}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0100}'..='\u{e01ef}')
}

/// A path in JSON: `path`, and `path_bytes` (base64) if the text had to be escaped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JsonPath(pub PathBuf);

impl JsonPath {
    /// The text, and the base64 of the bytes if they differ from it.
    pub fn parts(&self) -> (Cow<'_, str>, Option<String>) {
        let bytes = self.0.as_os_str().as_bytes();
        let text = safe(bytes);
        let encoded = (text.as_bytes() != bytes).then(|| BASE64_STANDARD.encode(bytes));
        (text, encoded)
    }
}

/// For `#[serde(flatten)]` into the object that has the path.
impl Serialize for JsonPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (text, bytes) = self.parts();
        let mut object = serializer.serialize_struct("path", 1 + usize::from(bytes.is_some()))?;
        object.serialize_field("path", &text)?;
        if let Some(bytes) = bytes {
            object.serialize_field("path_bytes", &bytes)?;
        }
        object.end()
    }
}

impl<'de> Deserialize<'de> for JsonPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Parts {
            path: String,
            path_bytes: Option<String>,
        }
        let Parts { path, path_bytes } = Parts::deserialize(deserializer)?;
        let bytes = match path_bytes {
            Some(encoded) => BASE64_STANDARD.decode(encoded).map_err(D::Error::custom)?,
            None => path.into_bytes(),
        };
        Ok(Self(OsString::from_vec(bytes).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_sentence_begins_at_the_pod_and_keeps_its_end() {
        let near = |path: &str| near(Path::new(path), 100);
        let of_pod = "/k/pods/3f2a1f5c/volumes/kubernetes.io~empty-dir/data";
        assert_eq!(near(of_pod), "…/volumes/kubernetes.io~empty-dir/data");
        assert_eq!(below_pod(of_pod), Some(("/k/pods/3f2a1f5c", &of_pod[16..])));
        for other in ["/k/pods/3f2a1f5c", "/srv/pods/a/b", "/pods//volumes/x", "/k/pods"] {
            assert_eq!((near(other).as_str(), below_pod(other)), (other, None));
        }
        let long = format!("/k/pods/u/volumes/kubernetes.io~csi/{}/mount", "p".repeat(40));
        assert_eq!(near(&long), format!("…/{}/mount", "p".repeat(40)));
        let name = near(&format!("/{}\x1b", "x".repeat(80)));
        assert!(name.chars().count() == 52 && name.ends_with(r"\x1b"), "{name}");
    }

    #[test]
    fn harmless_text_is_left_alone() {
        assert_eq!(safe("/a/Größe/日本 \\x41".as_bytes()), "/a/Größe/日本 \\x41");
    }

    #[test]
    fn what_a_terminal_would_obey_is_spelled_out() {
        assert_eq!(safe(b"a\x1b[2J\\b\n"), r"a\x1b[2J\x5cb\x0a");
        assert_eq!(safe("\u{9b}31m".as_bytes()), r"\xc2\x9b31m");
        assert_eq!(safe("txt.\u{202e}exe".as_bytes()), r"txt.\xe2\x80\xaeexe");
        assert_eq!(safe(b"caf\xe9"), r"caf\xe9");
        // Soft hyphen, no-break space, Hangul filler, a tag, a variation selector.
        for unseen in ["\u{ad}", "\u{a0}", "\u{3164}", "\u{e0041}", "\u{fe0f}"] {
            assert!(safe(unseen.as_bytes()).starts_with("\\x"), "{}", unseen.escape_unicode());
        }
    }

    #[test]
    fn json_carries_the_bytes_only_when_the_text_differs() {
        let plain = serde_json::to_string(&JsonPath("/a".into())).unwrap();
        assert_eq!(plain, r#"{"path":"/a"}"#);
        let odd = JsonPath(PathBuf::from(std::ffi::OsStr::from_bytes(b"/\xff")));
        assert_eq!(
            serde_json::to_string(&odd).unwrap(),
            r#"{"path":"/\\xff","path_bytes":"L/8="}"#
        );
        let back: JsonPath = serde_json::from_str(&serde_json::to_string(&odd).unwrap()).unwrap();
        assert_eq!(back, odd);
    }
}
