//! Entries of the runtimes' and drivers' logs, in logrus' text format (`time="..." level=error msg="..." error="..."`),
//! as JSON, or in zap's console format. Each is one line.

use std::{collections::BTreeMap, sync::LazyLock};

use jiff::Timestamp;
use regex::Regex;

use super::{fixed, go_json::Json, go_text::quoted};

/// Most fields of an entry that are read. The runtimes write about five.
const FIELDS: usize = 32;

/// An entry.
#[derive(Debug, Default)]
pub(super) struct Entry {
    fields: BTreeMap<String, String>,
    is_quoted: bool,
}

impl Entry {
    /// Parses a line; `None` where it is no entry with a time.
    pub(super) fn parse(line: &str) -> Option<(Timestamp, Self)> {
        let entry = Self::read(line)?;
        let at = entry.written()?;
        Some((at, entry))
    }

    /// The same, also without a time.
    pub(super) fn read(line: &str) -> Option<Self> {
        let (fields, is_quoted) = if line.starts_with('{') {
            (json(line)?, true)
        } else if let Some(fields) = console(line) {
            (fields, false)
        } else {
            (text(line)?, true)
        };
        Some(Self { fields, is_quoted })
    }

    /// When it was written.
    pub(super) fn written(&self) -> Option<Timestamp> {
        let text = ["time", "ts", "timestamp", "@timestamp"].into_iter();
        let time = text.filter_map(|name| self.field(name).parse().ok()).next();
        time.or_else(|| Json::Bare(self.field("ts").to_owned()).time())
    }

    /// Whether text that a tenant can choose is quoted, so that it cannot break the line.
    pub(super) fn is_quoted(&self) -> bool {
        self.is_quoted
    }

    /// Whether it has a level and a message, as a logger's entries do.
    pub(super) fn has_level(&self) -> bool {
        !self.field("level").is_empty() && !self.field("msg").is_empty()
    }

    /// A field's value; empty where there is no such field.
    pub(super) fn field(&self, name: &str) -> &str {
        let other = match name {
            "msg" => "message",
            "error" => "err",
            "level" => "severity",
            name => name,
        };
        let found = self.fields.get(name).or_else(|| self.fields.get(other));
        found.map_or("", String::as_str)
    }

    /// The values of all fields but the message and the error.
    pub(super) fn others(&self) -> impl Iterator<Item = &str> {
        let others =
            self.fields.iter().filter(|field| !matches!(field.0.as_str(), "msg" | "error"));
        others.map(|field| field.1.as_str())
    }

    /// Whether its level is warning or higher.
    pub(super) fn complains(&self) -> bool {
        let errors = ["error", "err", "fatal", "panic", "dpanic", "critical"];
        self.is_warning() || errors.contains(&self.level().as_str())
    }

    /// Whether its level is warning.
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

/// logrus' text format. The first value of a name counts: later ones may be part of a quoted text.
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
    let all = Json::object(line)?;
    let mut fields = BTreeMap::new();
    for (name, value) in all.fields() {
        let value = match value {
            Json::Text(value) => value.clone(),
            Json::Bare(value) if name == "ts" => value.clone(),
            _ => continue,
        };
        if fields.len() < FIELDS {
            fields.entry(name.clone()).or_insert(value);
        }
    }
    Some(fields)
}

/// zap's console format: time, level, source and message, separated by tabs, and fields as JSON. Some collectors
/// replace the tabs by spaces.
static CONSOLE: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"^(?<ts>\d{4}-\d{2}-\d{2}T[0-9:.]+(?:Z|[+-]\d{2}:?\d{2})|\d+\.\d+(?:[eE]\+?\d+)?)[\t ]+(?:\x1b\[\d+m)?",
        r"(?<level>(?i:debug|info|warn|error|dpanic|panic|fatal))(?:\x1b\[0m)?[\t ]+",
        r"(?:[a-zA-Z0-9_.-]+\t)?(?:[a-zA-Z0-9_./@-]+\.go:\d+[\t ]+)?(?<msg>.*)$"
    ))
});

fn console(line: &str) -> Option<BTreeMap<String, String>> {
    if !line.as_bytes().first()?.is_ascii_digit() {
        return None;
    }
    let found = CONSOLE.captures(line)?;
    let message = &found["msg"];
    let fields = message.find("\t{").or_else(|| message.find(" {"));
    let json = fields.and_then(|at| json(message.get(at + 1..)?));
    let message = message.get(..fields.filter(|_| json.is_some()).unwrap_or(message.len()))?;
    let mut fields = json.unwrap_or_default();
    for (name, value) in [("ts", &found["ts"]), ("level", &found["level"]), ("msg", message)] {
        fields.insert(name.to_owned(), value.to_owned());
    }
    Some(fields)
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
    fn other_lines_of_a_log_are_no_entries() {
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
