//! Runs the command: from the command line to the report.

use std::{
    collections::BTreeSet,
    env,
    io::{self, IsTerminal, Write},
    path::Path,
    time::Duration,
};

use anyhow::{Context, anyhow};
use http::Method;
use jiff::Timestamp;
use kube::Client;
use podstuck_engine::cluster::{Answer, Case, PATIENCE, State};
use podstuck_model::{
    cluster::{Facts, Key, Kind, Known, Meta},
    exit::{Exit, Failure},
};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    answers::{kinds, other_kinds, settle},
    cli::{Cli, Output},
    examine::{self, About, OwnPod, Said},
    present::{self, Report, Scope},
    progress::Progress,
    read::{Connection, Reader, connect, page},
    recording::{self, Answers, Head},
    target::{self, Asked, Target},
    watch,
};

/// Number of objects that are judged together. The objects that have been stuck longest come first, in case the
/// requests run out.
const TOGETHER: usize = 100;

/// Name of the release image. `xtask/src/dist` may set another name.
const IMAGE: &str = match option_env!("PODSTUCK_IMAGE_NAME") {
    Some(name) => name,
    None => "docker.io/library/podstuck",
};

/// The result from the API server, and how the run ends.
pub struct Outcome {
    /// The report to print.
    pub report: Report,
    /// The exit status.
    pub exit: Exit,
    /// The nodes to examine next, if the API server does not decide and examination is enabled.
    pub examine: Option<Examination>,
}

/// Nodes to examine.
pub struct Examination {
    /// The client for the API server.
    pub client: Client,
    /// podstuck's own pods, one for each stuck pod.
    pub own: Vec<OwnPod>,
}

/// Produces the report.
///
/// # Errors
///
/// Fails if the object's name is invalid or the API server does not answer.
pub async fn run(cli: &Cli) -> Result<Outcome, Failure> {
    if cli.examine && cli.output == Output::Name {
        return Err(Failure::Usage(anyhow!(
            "--examine cannot be used with -o name: use another output format"
        )));
    }
    if let Some(file) = &cli.replay {
        return replay(file).await;
    }
    let file = cli.record.as_deref().map(recording::create).transpose().map_err(Failure::Usage)?;
    let connected = connect(
        cli.kubeconfig.as_deref(),
        cli.context.as_deref(),
        cli.as_user.as_deref(),
        &cli.as_groups,
    );
    let Connection { client, server: address, namespace } =
        connected.await.map_err(Failure::CannotRun)?;
    if let (Some(node), Some(uid)) = (&cli.node, &cli.pod_uid) {
        let about = About::Uid(uid.clone());
        let own = vec![own_pod(cli, node, about, cli.output.is_document())];
        let examine = Some(Examination { client, own });
        return Ok(Outcome { report: Report::default(), exit: Exit::Unexplained, examine });
    }
    let asked =
        cli.target.as_deref().map(|text| target::parse(text, cli.namespace.as_deref(), &namespace));
    let asked = asked.transpose().map_err(Failure::Usage)?;
    let namespace = cli.namespace.clone().unwrap_or(namespace);
    let reader = Reader::new(client.clone(), cli.max_requests);
    let server = reader.server().await;
    let server = server.map_err(|why| {
        let why = why.trim_start_matches("ServiceError: ");
        Failure::CannotRun(anyhow!(
            "the API server {address} gives no version: {why}; where `kubectl get --raw /version` works, run this with the \
             same --context, --kubeconfig and --as"
        ))
    })?;
    let mut facts = Facts::new(server.now);
    facts.asks_kubelets = cli.via_node_proxy;
    facts.tries_removals = cli.via_dry_run;
    if cli.watch {
        let scope = (!cli.all_namespaces).then_some(namespace.as_str());
        let mut out = io::stdout();
        // Ends when the reader closes the output.
        let say = |line: &str| writeln!(out, "{line}").and_then(|()| out.flush()).is_ok();
        watch::watch(cli, &client, scope, server.now, say).await?;
        return Ok(Outcome { report: Report::default(), exit: Exit::Clean, examine: None });
    }
    let named = cli.node.clone().zip(asked.as_ref().and_then(Target::pod).cloned());
    if cli.node.is_some() && named.is_none() {
        return Err(Failure::Usage(anyhow!("--node needs a pod")));
    }
    let asked = match asked {
        Some(target) => Asked::One { target, namespace },
        None => Asked::All {
            namespace: (!cli.all_namespaces).then_some(namespace),
            labels: cli.selector.clone(),
            all_types: cli.all_types,
        },
    };
    let progress = Progress::begin(&reader);
    let report = ask(&asked, &reader, &mut facts).await;
    drop(progress);
    let head = Head::new(asked, server, &facts, (reader.made(), cli.max_requests));
    if let Some(file) = file {
        recording::write(file, &head, &facts, cli.redact).map_err(Failure::CannotRun)?;
    }
    let mut report = match report {
        Ok(report) => complete(report, &head, &facts),
        // A pod that the API server no longer has may still exist on the named node.
        Err(Failure::Usage(_)) if named.is_some() => Report::default(),
        Err(failure) => return Err(failure),
    };
    let undecided = || {
        let leaves = report.answers.iter().map(Answer::leaf);
        let mut all: Vec<(String, Key)> =
            leaves.filter_map(|case| Some((case.examine.clone()?, case.key.clone()))).collect();
        all.sort();
        all.dedup();
        all
    };
    let wanted = named.map_or_else(undecided, |one| vec![one]);
    // Without an object at the API server, the node's own text is the whole answer.
    let reads = cli.output.is_document() || (cli.reads_answers() && !report.answers.is_empty());
    let mut own = Vec::new();
    for (node, pod) in wanted.iter().filter(|_| cli.examines()) {
        let about = About::Name { name: named_as(pod), record: record(&client, pod).await };
        own.push(own_pod(cli, node, about, reads));
    }
    report.examines = !own.is_empty();
    let examine = report.examines.then_some(Examination { client, own });
    Ok(Outcome { exit: exit(&report), report, examine })
}

/// podstuck's own pod, with the options of the command line.
fn own_pod(cli: &Cli, node: &str, about: About, for_program: bool) -> OwnPod {
    let image = cli.image.clone().or_else(|| env::var("PODSTUCK_IMAGE").ok());
    OwnPod {
        name: examine::own_name(),
        namespace: cli.own_namespace.clone().unwrap_or_else(|| "kube-system".into()),
        node: node.to_owned(),
        image: image.unwrap_or_else(|| format!("{IMAGE}:{}", env!("CARGO_PKG_VERSION"))),
        privileged: cli.privileged,
        about,
        for_program,
        options: cli.diagnose.clone(),
    }
}

/// `namespace/name`, as `podstuck diagnose --pod` takes it.
fn named_as(pod: &Key) -> String {
    format!("{}/{}", pod.namespace.as_deref().unwrap_or_default(), pod.name)
}

/// The pod's whole API object, a part of which is passed to the node. With `None`, podstuck on the node reads it
/// itself.
async fn record(client: &Client, pod: &Key) -> Option<Value> {
    let path = pod.path();
    let sent = page::send(client, Method::GET, &path, "application/json", None);
    let response = timeout(Duration::from_secs(30), sent).await.ok()?.ok()?;
    response.json().ok().filter(|_| response.status == 200)
}

/// Computes the outcome from a recording.
async fn replay(file: &Path) -> Result<Outcome, Failure> {
    let (head, answers) = recording::read(file).map_err(Failure::Usage)?;
    let report = answered(&head, answers).await?;
    Ok(Outcome { exit: exit(&report), report, examine: None })
}

/// Computes the report from the answers in a recording, without requests.
pub(crate) async fn answered(head: &Head, answers: Answers) -> Result<Report, Failure> {
    let mut facts = Facts::new(head.server.now);
    facts.asks_kubelets = head.asks_kubelets;
    facts.tries_removals = head.tries_removals;
    let report = ask(&head.asked, &Reader::of_recording(answers), &mut facts).await?;
    Ok(complete(report, head, &facts))
}

async fn ask(asked: &Asked, reader: &Reader, facts: &mut Facts) -> Result<Report, Failure> {
    match asked {
        Asked::One { target, namespace } => one(target, namespace, reader, facts).await,
        Asked::All { namespace, labels, all_types } => {
            all(namespace.as_deref(), labels.as_deref(), *all_types, reader, facts).await
        }
    }
}

fn complete(mut report: Report, head: &Head, facts: &Facts) -> Report {
    report.server = head.server.version.clone();
    report.now = head.server.now;
    report.asks_kubelets = head.asks_kubelets;
    report.tries_requests = head.tries_removals;
    report.requests = head.requests;
    report.unread = facts.unread().collect();
    report
}

fn is_coloured() -> bool {
    io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none()
}

/// The text about one pod of a list whose node was examined.
pub fn examined(cli: &Cli, report: &Report, said: &Said) -> String {
    present::examined(report, said, &present::kubectl(cli), is_coloured())
}

/// The report in the chosen output format.
pub fn shown(cli: &Cli, report: &Report) -> String {
    let color = is_coloured();
    let kubectl = present::kubectl(cli);
    match cli.output {
        Output::Text => present::text(report, &kubectl, color, false),
        Output::Wide => present::text(report, &kubectl, color, true),
        Output::Json => present::json(report, &kubectl),
        Output::Yaml => present::yaml(report, &kubectl),
        Output::Name => present::names(report),
    }
}

fn exit(report: &Report) -> Exit {
    // An object that is not being deleted is no fault, except where it has a cause or waits for one that is.
    let may_be_at_fault = |case: &&Case| {
        let kinds = [Kind::NODE, Kind::DAEMON_SET, Kind::ATTACHMENT];
        case.state != State::NotDeleted || kinds.contains(&case.key.kind)
    };
    let has_cause = |answer: &&Answer| {
        let all = answer.cases().filter(may_be_at_fault).flat_map(|case| &case.findings);
        all.into_iter().any(|found| !found.cause.is_admission())
    };
    let is_stuck = |answer: &&Answer| {
        answer.case.state != State::NotDeleted || !answer.below.is_empty() || has_cause(answer)
    };
    let mut stuck = report.answers.iter().filter(is_stuck).peekable();
    if stuck.peek().is_none() && !report.is_partial() {
        Exit::Clean
    } else if stuck.any(|answer| has_cause(&answer)) {
        Exit::Found
    } else {
        Exit::Unexplained
    }
}

async fn one(
    target: &Target,
    namespace: &str,
    reader: &Reader,
    facts: &mut Facts,
) -> Result<Report, Failure> {
    let key = match target {
        Target::Object(key) => key.clone(),
        Target::Custom { plural, group, name } => {
            let _ = facts.types(group);
            reader.answer_all(facts, facts.wanted()).await;
            let types = facts.types(group).is();
            let kind =
                types.and_then(|types| types.iter().find(|it| it.plural == *plural).cloned());
            let kind = kind.with_context(|| {
                format!("the API server has no type {plural} in the group {group}")
            });
            Key::of(kind.map_err(Failure::Usage)?, namespace, name)
        }
    };
    let answers = settle(std::slice::from_ref(&key), reader, facts).await;
    if let Some(Answer { case, .. }) = answers.first() {
        if case.state == State::Gone {
            return Err(Failure::Usage(anyhow!(
                "the API server has no {key}: it is gone, or has another name or namespace"
            )));
        }
        if case.state == State::Unread {
            let why =
                facts.unread().next().map(|unread| present::not_read(&unread)).unwrap_or_default();
            return Err(Failure::CannotRun(anyhow!("cannot read {key}: {why}")));
        }
    }
    Ok(Report { answers, scope: Scope::One, ..Report::default() })
}

async fn all(
    of: Option<&str>,
    labels: Option<&str>,
    all_types: bool,
    reader: &Reader,
    facts: &mut Facts,
) -> Result<Report, Failure> {
    let mut kinds = kinds(of);
    if all_types {
        kinds.extend(other_kinds(of, &kinds, reader, facts).await);
    }
    let own =
        of.map(|namespace| Key::global(Kind::NAMESPACE, namespace)).filter(|_| labels.is_none());
    for kind in &kinds {
        let _ = facts.deleted(kind, of, labels);
    }
    if let Some(key) = &own {
        let _ = facts.object(key);
    }
    reader.answer_all(facts, facts.wanted()).await;
    let scope = Scope::All { namespace: of.map(str::to_owned), all_types };
    let mut report = Report { scope, ..Report::default() };
    let mut found: Vec<(Timestamp, Key)> = Vec::new();
    let mut is_overdue = |key: Key, meta: &Meta| {
        let Some(end) = meta.deletion_timestamp else { return };
        let is_late = facts.now.duration_since(end).as_secs()
            >= i64::try_from(PATIENCE.as_secs()).unwrap_or(i64::MAX);
        if is_late {
            found.push((meta.requested().unwrap_or(end), key));
        } else {
            report.in_time += 1;
        }
    };
    let mut was_read = false;
    // Two groups may serve the same object.
    let mut seen = BTreeSet::new();
    for kind in &kinds {
        let Known::Is(survey) = facts.deleted(kind, of, labels) else { continue };
        was_read = true;
        for meta in survey.deleted.iter().filter(|meta| seen.insert(meta.uid.clone())) {
            let namespace = meta.namespace.as_deref().unwrap_or_default();
            is_overdue(Key::of(kind.clone(), namespace, &meta.name), meta);
        }
    }
    if let Some(key) = own
        && let Known::Is(object) = facts.object(&key)
    {
        is_overdue(key, &object.metadata);
    }
    if !was_read {
        let all: BTreeSet<String> =
            facts.unread().map(|unread| present::not_read(&unread)).collect();
        let all: Vec<String> = all.into_iter().collect();
        return Err(Failure::CannotRun(anyhow!("nothing could be listed: {}", all.join("; "))));
    }
    // The objects that have been stuck longest come first.
    found.sort();
    let keys: Vec<Key> = found.into_iter().map(|(_, key)| key).collect();
    for some in keys.chunks(TOGETHER) {
        report.answers.extend(settle(some, reader, facts).await);
    }
    // Objects that were removed after the list was read are not stuck.
    report.answers.retain(|answer| answer.case.state != State::Gone);
    Ok(report)
}
