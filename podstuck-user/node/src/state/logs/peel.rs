//! Removes what log collectors put around a line, and converts klog's JSON to klog's text: the one place that knows how
//! logs are transported. Later stages read klog's text, or an entry of logrus or zap.
//!
//! These wrap a line: journalctl (in its text formats, and as JSON), syslog daemons (RFC 3164 and 5424), container
//! runtimes (CRI's and Docker's format), `kubectl logs` and `talosctl`, Talos where it forwards logs, k3s and its like
//! (in a message of logrus), and MicroShift (with the name of its part).

use std::{borrow::Cow, sync::LazyLock};

use jiff::Timestamp;
use regex::Regex;

use super::{
    container_log::Line, entries::Entry, fixed, go_json::Json, go_text::quote, klog, zone::zone,
};
use podstuck_model::identity::Component;

/// Longest line that is read, in bytes, also where it comes in parts.
pub(super) const LONGEST: usize = 64 << 10;
/// Most wrappers around a line.
const LAYERS: usize = 5;

/// A line as its component wrote it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Peeled<'a> {
    /// The time that a collector noted.
    pub(super) at: Option<Timestamp>,
    /// The program that wrote it, where a collector noted it.
    pub(super) program: Option<String>,
    /// The line; klog's JSON is converted to klog's text.
    pub(super) text: Cow<'a, str>,
    /// It was klog's JSON: a whole entry, with its line breaks escaped.
    pub(super) is_json: bool,
}

/// journalctl's short formats, and what syslog daemons write to files.
static SYSLOG: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"^(?:<\d{1,3}>)?(?:",
        // `Nov  8 00:31:22`, in any locale.
        r"[^\s\d]{3,8} [ \d]\d \d{2}:\d{2}:\d{2}(?:\.\d+)?|",
        r"(?<iso>\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:[.,]\d+)?(?:Z|[+-]\d{2}:?\d{2}))|",
        // `Sat 2026-11-28 00:31:22 UTC`
        r"[^\s\d]{2,8} \d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(?:\.\d+)? [A-Z0-9+:-]{1,9}|",
        // Since the epoch, or since the boot.
        r"\d{9,}\.\d+|\[ *\d+\.\d+\]",
        r") [^\s:]+ (?<program>[^\s:\[\]]+)(?:\[\d+\])?:(?: |$)"
    ))
});
static SYSLOG_5424: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"^<\d{1,3}>1 (?<iso>\S+) \S+ (?<program>\S+) \S+ \S+ ",
        r"(?:-|(?:\[(?:[^\]\\]|\\.)*\])+)(?: \x{FEFF}?|$)"
    ))
});
/// A time, a pod, the name of a node or of a part: removed only where an entry follows.
static BEFORE_AN_ENTRY: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"^(?:(?<iso>\d{4}-\d{2}-\d{2}T[0-9:.]+(?:Z|[+-]\d{2}:?\d{2})) |\[[^\]\s]{1,300}\] |",
        r"[a-z][a-z0-9-]{0,40} +|",
        r"(?:[0-9A-Za-z.:_-]{1,255}: )?(?:kern|user|daemon): +[a-z]+: \[(?<talos>[^\]]{1,40})\]: |",
        r"[0-9A-Za-z.:_-]{1,255}: )"
    ))
});

/// All lines of a text; the parts of a line that a container runtime has split are joined.
pub(super) fn peeled(text: &[u8], own: u32) -> impl Iterator<Item = Peeled<'_>> {
    let mut lines = text.split(|byte| *byte == b'\n').map(bounded).peekable();
    let mut parts = String::new();
    std::iter::from_fn(move || {
        loop {
            let line = lines.next()?;
            let Some(Line { at, text, goes_on }) = Line::parse(&line) else {
                return Some(peel(line, own));
            };
            if parts.len() + text.len() <= LONGEST {
                parts.push_str(&text);
            }
            // A split line continues only where the next line is in the runtime's format, too.
            let goes_on = goes_on && lines.peek().is_some_and(|next| Line::parse(next).is_some());
            if !goes_on {
                let line = peel(std::mem::take(&mut parts).into(), own);
                return Some(Peeled { at: Some(at), ..line });
            }
        }
    })
}

fn bounded(line: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(line.get(..line.len().min(LONGEST)).unwrap_or_default())
}

/// Unwraps one line. `own` is the id of the process that writes the log, in its PID namespace: klog's JSON has none.
pub(super) fn peel(line: Cow<'_, str>, own: u32) -> Peeled<'_> {
    let mut peeled = Peeled { at: None, program: None, text: line, is_json: false };
    for _ in 0..LAYERS {
        if peeled.is_json || klog::writer(peeled.text.as_bytes()).is_some() {
            break;
        }
        let Some(inner) = layer(&peeled.text, own) else { break };
        // The outermost collector knows the program, the innermost the time.
        let (at, program) = (inner.at.or(peeled.at), peeled.program.take().or(inner.program));
        peeled = Peeled { at, program, ..inner };
    }
    peeled
}

/// Removes one wrapper; `None` for a line without one.
fn layer(text: &str, own: u32) -> Option<Peeled<'static>> {
    if let Some(Line { at, text, .. }) = Line::parse(text) {
        return Some(inner(Some(at), None, &text));
    }
    match text.as_bytes().first()? {
        b'{' => return object(text, own),
        // klog's JSON is not searched for in a message: a message can contain anything.
        b't' if text.starts_with("time=") => {
            // Most entries are a runtime's own.
            let (_, message) = text.split_once("msg=\"")?;
            if !message.starts_with(['I', 'W', 'E', 'F']) {
                return None;
            }
            let (at, entry) = Entry::parse(text)?;
            let message = entry.field("msg");
            let is_klog = klog::writer(message.as_bytes()).is_some();
            return is_klog.then(|| inner(Some(at), None, message));
        }
        // A line that continues an entry.
        b'\t' | b' ' => return None,
        _ => {}
    }
    let time = |text: &str| text.replace(',', ".").parse().ok();
    for form in [&*SYSLOG, &*SYSLOG_5424] {
        let Some(found) = form.captures(text) else { continue };
        let rest = text.get(found.get(0)?.end()..)?;
        let at = found.name("iso").and_then(|at| time(at.as_str()));
        // syslog daemons write a tab as `#011`.
        let tab = rest.strip_prefix("#011").map(|rest| format!("\t{rest}"));
        return Some(inner(at, Some(&found["program"]), tab.as_deref().unwrap_or(rest)));
    }
    let found = BEFORE_AN_ENTRY.captures(text)?;
    let rest = text.get(found.get(0)?.end()..)?;
    let at = found.name("iso").or(found.name("talos")).and_then(|at| time(at.as_str()));
    begins(rest).then(|| inner(at, None, rest))
}

fn inner(at: Option<Timestamp>, program: Option<&str>, text: &str) -> Peeled<'static> {
    let (program, text) = (program.map(str::to_owned), text.to_owned().into());
    Peeled { at, program, text, is_json: false }
}

/// Whether a component's entry begins here.
fn begins(text: &str) -> bool {
    klog::writer(text.as_bytes()).is_some()
        || Entry::read(text).is_some_and(|entry| entry.has_level())
        || Json::object(text).is_some_and(|object| is_klog(&object))
}

/// The message in a collector's object, or klog's JSON as text.
fn object(text: &str, own: u32) -> Option<Peeled<'static>> {
    let object = Json::object(text)?;
    if let Some(message) = object.get("MESSAGE") {
        let at = object.text("__REALTIME_TIMESTAMP").and_then(|at| at.parse().ok());
        let at = at.and_then(|at| Timestamp::from_microsecond(at).ok());
        let program = ["_COMM", "SYSLOG_IDENTIFIER"].into_iter().find_map(|name| object.text(name));
        return Some(inner(at, Some(program?), &journals(message)?));
    }
    if let (Some(service), Some(message)) = (object.text("talos-service"), object.text("msg")) {
        let at = object.get("talos-time").and_then(Json::time);
        return Some(inner(at, Some(service), message));
    }
    let text = klog_text(&object, own)?;
    Some(Peeled { at: None, program: None, text: Cow::Owned(text), is_json: true })
}

/// The message of a journal entry: a text, or a list of bytes where it is not printable.
fn journals(message: &Json) -> Option<Cow<'_, str>> {
    match message {
        Json::Text(text) => Some(text.into()),
        Json::List(bytes) => {
            let byte = |byte: &Json| match byte {
                Json::Bare(byte) => byte.parse().ok(),
                _ => None,
            };
            let bytes: Option<Vec<u8>> = bytes.iter().map(byte).collect();
            Some(String::from_utf8_lossy(&bytes?).into_owned().into())
        }
        _ => None,
    }
}

/// Whether an object is klog's: `--logging-format=json` (k8s.io/component-base/logs/json) has no level, and a number as
/// its time.
fn is_klog(object: &Json) -> bool {
    object.text("msg").is_some()
        && matches!(object.get("ts"), Some(Json::Bare(_)))
        && object.get("level").is_none()
}

/// klog's JSON as klog would write it as text. Errors have no `v`; a message without fields is written without
/// quotes.
fn klog_text(object: &Json, own: u32) -> Option<String> {
    if !is_klog(object) {
        return None;
    }
    let (message, at) = (object.text("msg")?, object.get("ts")?.time()?);
    let is_error = object.get("v").is_none();
    let at = at.to_zoned(zone()).strftime("%m%d %H:%M:%S.%6f").to_string();
    let caller = object.text("caller").unwrap_or("-");
    let caller = caller.rsplit('/').next().filter(|caller| !caller.contains([']', ' ', '\n']));
    let caller = caller.filter(|caller| !caller.is_empty()).unwrap_or("-");
    let severity = if is_error { 'E' } else { 'I' };
    let mut text = format!("{severity}{at} {own:7} {caller}] ");
    let is_plain = |name: &str| matches!(name, "ts" | "caller" | "msg" | "v" | "errCauses");
    let mut fields: Vec<_> = object.fields().iter().filter(|field| !is_plain(&field.0)).collect();
    if fields.is_empty() {
        text.push_str(message.trim_end_matches('\n'));
        return Some(text);
    }
    text.push_str(&quote(message));
    // In text, an error comes first, and fields of the logger itself come after the pod.
    fields.sort_by_key(|(name, _)| match name.as_str() {
        "err" if is_error => 0,
        "pod" => 1,
        "podUID" => 2,
        _ => 3,
    });
    for (name, value) in fields {
        if name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/')) {
            text.push_str(&format!(" {name}={}", value.klog()));
        }
    }
    Some(text)
}

/// Whether another component has written a line, by its program. `false` where the program is not noted.
pub(super) fn is_others(line: &Peeled<'_>, component: Component) -> bool {
    let names: &[&str] = match component {
        Component::Kubelet => &KUBELETS,
        Component::Containerd => &["containerd", "k3s", "rke2", "k0s"],
        Component::Dockerd => &["dockerd", "docker"],
        Component::CriO => &["crio"],
        _ => return false,
    };
    let program = line.program.as_deref().unwrap_or_default();
    let mut words = program.split(|c: char| !c.is_ascii_alphanumeric());
    !program.is_empty() && !words.any(|word| names.contains(&word))
}

/// Programs that are a kubelet, or contain one.
const KUBELETS: [&str; 7] =
    ["kubelet", "kubelite", "hyperkube", "k3s", "rke2", "k0s", "microshift"];

#[cfg(test)]
#[path = "peel_tests.rs"]
mod tests;
