//! Renders a report as text, as a table, as JSON or YAML, or as names.

mod data;
mod on_node;
mod table;
mod text;

use std::time::Duration;

use jiff::Timestamp;
use podstuck_engine::cluster::{Answer, Case, State};
use podstuck_model::{
    cluster::{Kind, Question, Unread, Why},
    path::safe,
    shell::{self, word},
};

use crate::{answers::kinds, cli::Cli, examine::Said};

pub use data::{json, schema, yaml};

/// The scope of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// One object.
    #[default]
    One,
    /// All stuck objects.
    All {
        /// In this namespace; `None` for the whole cluster.
        namespace: Option<String>,
        /// Of every type that can be listed, not only of those that hold pods.
        all_types: bool,
    },
}

/// The data of one run, ready to be rendered.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The scope of the request.
    pub scope: Scope,
    /// The API server's time.
    pub now: Timestamp,
    /// The API server's version.
    pub server: String,
    /// One answer for each object.
    pub answers: Vec<Answer>,
    /// Number of objects that are being deleted and whose grace period has not passed.
    pub in_time: u64,
    /// Whether a node will be examined after this report.
    pub examines: bool,
    /// The answers of the examined nodes, for JSON and YAML.
    pub examined: Vec<Said>,
    /// Whether kubelets were read through the API server.
    pub asks_kubelets: bool,
    /// Whether requests of controllers and kubelets were tried in a dry run.
    pub tries_requests: bool,
    /// Number of requests that were made, and the limit.
    pub requests: (u32, u32),
    /// Questions that could not be answered.
    pub unread: Vec<Unread>,
}

impl Report {
    /// What was found on the node of this pod, if it was examined.
    pub(crate) fn said_about(&self, case: &Case) -> Option<&Said> {
        let namespace = case.key.namespace.as_deref().unwrap_or_default();
        let name = format!("{namespace}/{}", case.key.name);
        let is_pod = case.key.kind == Kind::POD;
        self.examined.iter().find(|said| is_pod && said.pod.as_deref() == Some(name.as_str()))
    }

    /// Whether a list could not be read, so that stuck objects may be missing.
    pub fn is_partial(&self) -> bool {
        let is_list = |unread: &Unread| match unread.question {
            Question::Deleted { .. } => true,
            Question::Types(_) | Question::Groups => {
                matches!(self.scope, Scope::All { all_types: true, .. })
            }
            _ => false,
        };
        self.scope != Scope::One && self.unread.iter().any(is_list)
    }
}

/// The kubectl options that printed commands repeat, so that they address the same cluster as the same user.
#[derive(Clone, Debug, Default)]
pub struct Kubectl(String);

/// From the command-line options.
pub fn kubectl(cli: &Cli) -> Kubectl {
    let path = cli.kubeconfig.as_ref().map(|path| path.to_string_lossy().into_owned());
    let mut options = String::new();
    let each = [("--context", &cli.context), ("--kubeconfig", &path), ("--as", &cli.as_user)];
    let each = each.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    for (name, value) in each.chain(cli.as_groups.iter().map(|group| ("--as-group", group))) {
        // A value that cannot be typed in a shell is omitted: the UID in the command prevents a change to another
        // cluster's object.
        if let Ok(line) = shell::line(&word(value), false)
            && !line.by_xargs
        {
            options.push_str(&format!(" {name}={}", line.text));
        }
    }
    Kubectl(options)
}

impl Kubectl {
    /// Inserts the options into a command.
    pub fn command(&self, command: &str) -> String {
        // kubectl does not accept options before a plugin's name.
        let program =
            if command.contains("kubectl podstuck") { "kubectl podstuck" } else { "kubectl" };
        command.replacen(program, &format!("{program}{}", self.0), 1)
    }
}

/// A table, or the full text about one object.
pub fn text(report: &Report, kubectl: &Kubectl, color: bool, wide: bool) -> String {
    match &report.scope {
        Scope::One => text::one(report, kubectl, color),
        Scope::All { namespace, all_types } => {
            let mut out = table::all(report, namespace.as_deref(), kubectl, color, wide);
            if !all_types {
                out.push_str(&only_read(namespace.as_deref()));
            }
            out + &footer(report, kubectl)
        }
    }
}

/// What was found about a pod whose node was examined, below a heading; without an object at the API server, the
/// findings on the node alone.
pub fn examined(report: &Report, said: &Said, kubectl: &Kubectl, color: bool) -> String {
    let named = said.pod.as_deref().unwrap_or_default();
    let (pod, node) = (safe(named.as_bytes()), safe(said.node.as_bytes()));
    let is_about =
        |answer: &&Answer| report.said_about(answer.leaf()).is_some_and(|it| it.pod == said.pod);
    let about = report.answers.iter().find(is_about);
    let about = about.map(|answer| text::about(answer, report, kubectl, color));
    format!("\n== {pod} on {node} ==\n{}", about.unwrap_or_default())
}

/// The types that were read, where others were not.
fn only_read(namespace: Option<&str>) -> String {
    let kinds = kinds(namespace);
    let names: Vec<&str> = kinds.iter().map(|kind| &*kind.plural).collect();
    format!("Only these types were read: {}; --all-types reads all.\n", names.join(", "))
}

/// Like `kubectl get -o name`.
pub fn names(report: &Report) -> String {
    let name = |answer: &Answer| {
        let key = &answer.case.key;
        format!("{}/{}\n", key.kind.for_kubectl(), safe(key.name.as_bytes()))
    };
    report.answers.iter().filter(|it| it.case.state != State::NotDeleted).map(name).collect()
}

/// The age in its two largest units, as kubectl prints ages.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = Duration::try_from(now.duration_since(since)).unwrap_or_default().as_secs();
    let (days, hours, minutes) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, _, _) => format!("{hours}h{minutes}m"),
        _ => format!("{days}d{hours}h"),
    }
}

/// A question that could not be answered: the reason, and what to do.
pub fn not_read(unread: &Unread) -> String {
    let right = unread.question.right();
    let what = match (&right, &unread.question) {
        (Some((verb, of, Some(namespace))), _) => format!("{verb} {of} in {namespace}"),
        (Some((verb, of, None)), _) => format!("{verb} {of}"),
        (None, Question::Types(group)) => format!("the types of the API group {group:?}"),
        (None, _) => "the API groups".into(),
    };
    let text = format!("{what}: {}", unread.why);
    safe(text.as_bytes()).into_owned()
}

/// The `kubectl auth can-i` command that checks a missing right; `None` unless access was forbidden.
fn can_i(unread: &Unread, kubectl: &Kubectl) -> Option<String> {
    let (verb, of, namespace) = unread.question.right().filter(|_| unread.why == Why::Forbidden)?;
    let place = namespace.map(|it| format!(" --namespace {it}")).unwrap_or_default();
    // The names of custom types and namespaces come from the API server and are not trusted.
    let of = of.replacen('/', " --subresource=", 1);
    let line = shell::line(&format!("kubectl auth can-i {verb} {of}{place}"), false).ok()?;
    Some(kubectl.command(&line.text))
}

/// The unanswered questions without duplicates, each with the command that checks the missing right.
fn gaps(report: &Report, kubectl: &Kubectl) -> Vec<(String, Option<String>)> {
    let mut gaps: Vec<(String, Option<String>)> = Vec::new();
    for unread in &report.unread {
        // Several objects of one type and namespace need the same right.
        let gap = (not_read(unread), can_i(unread, kubectl));
        if !gaps.contains(&gap) {
            gaps.push(gap);
        }
    }
    gaps
}

/// The last lines of every text output.
fn footer(report: &Report, kubectl: &Kubectl) -> String {
    let mut out = String::new();
    let gaps = gaps(report, kubectl);
    if !gaps.is_empty() {
        out.push_str("Not read, so the answer may be incomplete:\n");
    }
    for (what, check) in gaps {
        out.push_str(&format!("  {what}\n"));
        if let Some(check) = check {
            out.push_str(&format!("    check: {check}\n"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_two_units() {
        let now: Timestamp = "2026-11-28T10:00:00Z".parse().unwrap();
        for (since, text) in [
            ("2026-11-28T09:59:18Z", "42s"),
            ("2026-11-28T09:47:57Z", "12m3s"),
            ("2026-11-28T03:55:00Z", "6h5m"),
            ("2026-11-18T03:55:00Z", "10d6h"),
            ("2026-11-28T10:00:09Z", "0s"),
        ] {
            assert_eq!(age(since.parse().unwrap(), now), text);
        }
    }

    #[test]
    fn a_command_is_for_the_cluster_that_was_asked() {
        let kubectl = Kubectl(" --context=prod".into());
        assert_eq!(kubectl.command("kubectl get node"), "kubectl --context=prod get node");
        assert_eq!(
            kubectl.command("kubectl podstuck pod/a"),
            "kubectl podstuck --context=prod pod/a"
        );
        assert_eq!(
            kubectl.command("echo x | kubectl delete --raw /x -f -"),
            "echo x | kubectl --context=prod delete --raw /x -f -"
        );
    }
}
