//! Entries of the runtimes' logs, as logrus writes them: `time="..." level=error msg="..." error="..."`, or
//! as JSON. Both are one line.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::go_text::quoted;

/// Fields of an entry that are read. The runtimes write about five.
const FIELDS: usize = 32;

/// An entry.
#[derive(Debug, Default)]
pub(super) struct Entry {
    fields: BTreeMap<String, String>,
}

impl Entry {
    /// Of a line; `None` for what is no entry with a time.
    pub(super) fn parse(line: &str) -> Option<(Timestamp, Self)> {
        let entry = Self::read(line)?;
        let at = entry.written()?;
        Some((at, entry))
    }

    /// The same, whether or not it says its time.
    pub(super) fn read(line: &str) -> Option<Self> {
        let fields = if line.starts_with('{') { json(line)? } else { text(line)? };
        Some(Self { fields })
    }

    /// When it was written.
    pub(super) fn written(&self) -> Option<Timestamp> {
        self.field("time").parse().or_else(|_| self.field("ts").parse()).ok()
    }

    /// Empty where there is none.
    pub(super) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// Whether it complains.
    pub(super) fn complains(&self) -> bool {
        self.is_warning() || matches!(self.level().as_str(), "error" | "fatal" | "panic")
    }

    /// Whether it only warns.
    pub(super) fn is_warning(&self) -> bool {
        matches!(self.level().as_str(), "warning" | "warn")
    }

    fn level(&self) -> String {
        self.field("level").to_ascii_lowercase()
    }

    /// The message, and the error if there is one.
    pub(super) fn text(&self) -> String {
        match (self.field("msg"), self.field("error")) {
            (message, "") => message.to_owned(),
            (message, error) => format!("{message}: {error}"),
        }
    }
}

/// The first value of a name counts: what follows may be anything's.
fn text(line: &str) -> Option<BTreeMap<String, String>> {
    let mut fields = BTreeMap::new();
    let mut rest = line.trim();
    while !rest.is_empty() && fields.len() < FIELDS {
        let (name, after) = rest.split_once('=')?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || !name.chars().all(is_name) {
            break;
        }
        let (value, after) = match quoted(after) {
            Some(found) => found,
            None if after.starts_with('"') => break,
            None => {
                let end = after.find(' ').unwrap_or(after.len());
                (after.get(..end)?.to_owned(), after.get(end..)?)
            }
        };
        fields.entry(name.to_owned()).or_insert(value);
        rest = after.trim_start();
    }
    Some(fields)
}

fn json(line: &str) -> Option<BTreeMap<String, String>> {
    let all: BTreeMap<String, serde_json::Value> = serde_json::from_str(line).ok()?;
    let text = |(name, value)| match value {
        serde_json::Value::String(value) => Some((name, value)),
        _ => None,
    };
    Some(all.into_iter().take(FIELDS).filter_map(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_say_the_same() {
        let plain = r#"time="2023-04-18T05:28:34.275405098Z" level=error msg="StopPodSandbox for \"a9\" failed" error="a: \"b\"" runtime=io.containerd.runc.v2"#;
        let json = r#"{"error":"a: \"b\"","level":"error","msg":"StopPodSandbox for \"a9\" failed","runtime":"io.containerd.runc.v2","time":"2023-04-18T05:28:34.275405098Z","pid":7}"#;
        for line in [plain, json] {
            let (at, entry) = Entry::parse(line).unwrap();
            assert_eq!(at.to_string(), "2023-04-18T05:28:34.275405098Z");
            assert_eq!(entry.text(), "StopPodSandbox for \"a9\" failed: a: \"b\"");
            assert!(entry.complains() && entry.field("runtime").ends_with("v2"));
            assert_eq!(entry.field("none"), "");
        }
    }

    #[test]
    fn whatever_else_there_is_in_a_log_is_nothing() {
        for line in [
            "",
            "panic: runtime error",
            "{\"time\":",
            "time=\"",
            "time=never level=error",
            "level=error msg=x",
            "=",
            "a b=\"c",
            "{\"time\":7}",
        ] {
            assert!(Entry::parse(line).is_none(), "{line}");
        }
        let second = "time=2023-04-18T05:28:34Z level=info msg=\"x\" level=error msg=y";
        let (_, entry) = Entry::parse(second).unwrap();
        assert_eq!((entry.field("level"), entry.field("msg")), ("info", "x"), "the first counts");
        let cut = "time=2023-04-18T05:28:34Z level=error msg=\"x y";
        assert_eq!(Entry::parse(cut).unwrap().1.field("msg"), "", "a cut value is none");
    }

    #[test]
    fn a_line_of_many_fields_ends() {
        let long = (0..9999)
            .fold(String::from("time=2023-04-18T05:28:34Z"), |line, i| format!("{line} a{i}=b"));
        assert!(Entry::parse(&long).unwrap().1.fields.len() <= FIELDS);
    }
}
