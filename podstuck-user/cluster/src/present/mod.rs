//! What is found out, as text, as a table, as JSON or YAML, and as names.

mod data;
mod table;
mod text;

use std::time::Duration;

use jiff::Timestamp;
use podstuck_engine::cluster::{Answer, State};
use podstuck_model::{
    cluster::{Unread, Why},
    path::safe,
    shell::{self, word},
};

use crate::{cli::Cli, examine::Said};

pub use data::{json, schema, yaml};

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// One object.
    #[default]
    One,
    /// All that is stuck.
    All {
        /// In a namespace; `None` for the cluster.
        namespace: Option<String>,
    },
}

/// All that there is to show.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What was asked for.
    pub scope: Scope,
    /// The API server's time.
    pub now: Timestamp,
    /// Its version.
    pub server: String,
    /// What is said about each object.
    pub answers: Vec<Answer>,
    /// How many objects are being deleted and are within their grace.
    pub in_time: u64,
    /// Whether the node that has to be examined is examined next.
    pub examines: bool,
    /// What podstuck on the nodes says, for a program.
    pub examined: Vec<Said>,
    /// Whether kubelets were asked.
    pub asks_kubelets: bool,
    /// Requests that were made, and that were allowed.
    pub requests: (u32, u32),
    /// Questions without an answer.
    pub unread: Vec<Unread>,
}

impl Report {
    /// Whether objects may be stuck that were not listed.
    pub fn is_partial(&self) -> bool {
        let is_list = |unread: &Unread| {
            matches!(unread.question, podstuck_model::cluster::Question::Deleted { .. })
        };
        self.scope != Scope::One && self.unread.iter().any(is_list)
    }
}

/// How kubectl is called in the commands that are printed: for the same cluster and as the same user.
#[derive(Clone, Debug, Default)]
pub struct Kubectl(String);

/// By what was typed.
pub fn kubectl(cli: &Cli) -> Kubectl {
    let path = cli.kubeconfig.as_ref().map(|path| path.to_string_lossy().into_owned());
    let mut options = String::new();
    let each = [("--context", &cli.context), ("--kubeconfig", &path), ("--as", &cli.as_user)];
    let each = each.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    for (name, value) in each.chain(cli.as_groups.iter().map(|group| ("--as-group", group))) {
        // A name that cannot be typed is left out: the UID in the command keeps it from another cluster's objects.
        if let Ok(line) = shell::line(&word(value), false)
            && !line.by_xargs
        {
            options.push_str(&format!(" {name}={}", line.text));
        }
    }
    Kubectl(options)
}

impl Kubectl {
    /// A command with these options.
    pub fn command(&self, command: &str) -> String {
        // kubectl takes none before the name of a plugin.
        let program =
            if command.contains("kubectl podstuck") { "kubectl podstuck" } else { "kubectl" };
        command.replacen(program, &format!("{program}{}", self.0), 1)
    }
}

/// A table, or the whole answer about one object.
pub fn text(report: &Report, kubectl: &Kubectl, color: bool, wide: bool) -> String {
    match &report.scope {
        Scope::One => text::one(report, kubectl, color),
        Scope::All { namespace } => table::all(report, namespace.as_deref(), kubectl, color, wide),
    }
}

/// As kubectl's `-o name`.
pub fn names(report: &Report) -> String {
    let name = |answer: &Answer| {
        let key = &answer.case.key;
        format!("{}/{}\n", key.kind.for_kubectl(), safe(key.name.as_bytes()))
    };
    report.answers.iter().filter(|it| it.case.state != State::NotDeleted).map(name).collect()
}

/// By its two largest units, as kubectl writes ages.
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

/// A question that has no answer, why, and what to do.
pub fn not_read(unread: &Unread) -> String {
    let right = unread.question.right();
    let what = match &right {
        Some((verb, of, Some(namespace))) => format!("{verb} {of} in {namespace}"),
        Some((verb, of, None)) => format!("{verb} {of}"),
        None => "the types of an API group".into(),
    };
    let text = format!("{what}: {}", unread.why);
    safe(text.as_bytes()).into_owned()
}

/// The command that shows whether a right is there.
fn can_i(unread: &Unread, kubectl: &Kubectl) -> Option<String> {
    let (verb, of, namespace) = unread.question.right().filter(|_| unread.why == Why::Forbidden)?;
    let place = namespace.map(|it| format!(" --namespace {it}")).unwrap_or_default();
    // Of custom types and namespaces these names are what the API server says they are.
    let of = of.replacen('/', " --subresource=", 1);
    let line = shell::line(&format!("kubectl auth can-i {verb} {of}{place}"), false).ok()?;
    Some(kubectl.command(&line.text))
}

/// What is not known for want of an answer, each once.
fn gaps(report: &Report, kubectl: &Kubectl) -> Vec<(String, Option<String>)> {
    let mut gaps: Vec<(String, Option<String>)> = Vec::new();
    for unread in &report.unread {
        // One right for all objects of a type in a namespace.
        let gap = (not_read(unread), can_i(unread, kubectl));
        if !gaps.contains(&gap) {
            gaps.push(gap);
        }
    }
    gaps
}

/// The last lines of each text.
fn footer(report: &Report, kubectl: &Kubectl) -> String {
    let mut out = String::new();
    let gaps = gaps(report, kubectl);
    if !gaps.is_empty() {
        out.push_str("Not read, so that what needs it is not known:\n");
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
