//! The report as JSON and YAML.

use jiff::Timestamp;
use podstuck_engine::cluster::{Answer, Case, Found, State};
use podstuck_model::{
    SCHEMA, cause::CauseId, chain::Link, evidence::Certainty, remedy::Remedy, time::rfc3339,
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use super::{Kubectl, Report, Scope, gaps};
use crate::{
    examine::Said,
    ranking::{By, Ranked, ranked},
};

#[derive(Serialize, JsonSchema)]
struct Document<'a> {
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    #[serde(rename = "type")]
    #[schemars(extend("const" = "cluster"))]
    kind: &'static str,
    time: String,
    server: &'a str,
    /// `null` for the cluster, or where one object was asked about.
    namespace: Option<&'a str>,
    /// Whether every type that can be listed was read.
    all_types: bool,
    requests: Requests,
    items: Vec<Item>,
    /// What podstuck on the nodes says, where they were examined.
    examined: &'a [Said],
    /// Objects that are being deleted, within their time.
    in_time: u64,
    not_read: Vec<Gap>,
}

#[derive(Serialize, JsonSchema)]
struct Requests {
    made: u32,
    allowed: u32,
}

#[derive(Serialize, JsonSchema)]
struct Gap {
    what: String,
    check: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Item {
    #[serde(flatten)]
    object: Object,
    /// Who waits for whom, down to what has to be released first.
    chain: Vec<Link>,
    /// That one, where it is another object.
    leaf: Option<Object>,
    /// Where its node was examined: the causes of that object at the API server and on its node, in the order in
    /// which they must be released.
    ranking: Option<Vec<Rank>>,
}

#[derive(Serialize, JsonSchema)]
struct Rank {
    cause: CauseId,
    certainty: Certainty,
    /// Whether something else keeps the object first.
    later: bool,
    /// `api`, `node` or `both`.
    found_by: &'static str,
}

#[derive(Serialize, JsonSchema)]
struct Object {
    kind: String,
    group: String,
    namespace: Option<String>,
    name: String,
    uid: String,
    state: &'static str,
    stage: Option<&'static str>,
    requested: Option<String>,
    age_s: Option<i64>,
    node: Option<String>,
    /// The node that has to be examined, because the API server does not decide.
    examine: Option<String>,
    /// What kubelet's own list says of it.
    kubelet: Option<String>,
    causes: Vec<Found>,
}

fn document<'a>(report: &'a Report, kubectl: &Kubectl) -> Document<'a> {
    let gap = |(what, check)| Gap { what, check };
    Document {
        schema: SCHEMA,
        kind: "cluster",
        time: rfc3339(report.now),
        server: &report.server,
        namespace: match &report.scope {
            Scope::One => None,
            Scope::All { namespace, .. } => namespace.as_deref(),
        },
        all_types: matches!(report.scope, Scope::All { all_types: true, .. }),
        requests: Requests { made: report.requests.0, allowed: report.requests.1 },
        items: report.answers.iter().map(|it| item(it, report, kubectl)).collect(),
        examined: &report.examined,
        in_time: report.in_time,
        not_read: gaps(report, kubectl).into_iter().map(gap).collect(),
    }
}

fn item(answer: &Answer, report: &Report, kubectl: &Kubectl) -> Item {
    let leaf = answer.below.last().map(|case| object(case, report.now, kubectl));
    let said = report.said_about(answer.leaf());
    let ranking = said.map(|said| {
        let all = ranked(answer.leaf(), said.answer.as_ref());
        all.iter().map(rank).collect()
    });
    let chain = answer.links();
    Item { object: object(&answer.case, report.now, kubectl), chain, leaf, ranking }
}

fn rank(ranked: &Ranked) -> Rank {
    let Ranked { found, by, .. } = ranked;
    let found_by = match by {
        By::Api => "api",
        By::Node => "node",
        By::Both => "both",
    };
    Rank { cause: found.id, certainty: found.certainty, later: found.later, found_by }
}

fn object(case: &Case, now: Timestamp, kubectl: &Kubectl) -> Object {
    let mut causes = case.findings.clone();
    let remedies = causes.iter_mut().flat_map(|found| &mut found.remedies);
    remedies.for_each(|remedy: &mut Remedy| {
        for command in [&mut remedy.command, &mut remedy.verify] {
            *command = command.as_deref().map(|it| kubectl.command(it));
        }
    });
    Object {
        kind: case.key.kind.name.to_string(),
        group: case.key.kind.group.to_string(),
        namespace: case.key.namespace.clone(),
        name: case.key.name.clone(),
        uid: case.uid.clone(),
        state: match case.state {
            State::Gone => "gone",
            State::Unread => "not-read",
            State::NotDeleted => "not-deleted",
            State::InTime => "in-time",
            State::Overdue => "overdue",
        },
        stage: case.step.map(|step| step.word()),
        requested: case.requested.map(rfc3339),
        age_s: case.requested.map(|since| now.duration_since(since).as_secs().max(0)),
        node: case.node.clone(),
        examine: case.examine.clone(),
        kubelet: case.kubelet.clone(),
        causes,
    }
}

/// The schema of the document.
pub fn schema(generator: &mut SchemaGenerator) -> Schema {
    Document::json_schema(generator)
}

/// The report as one JSON document.
pub fn json(report: &Report, kubectl: &Kubectl) -> String {
    // Serialisation cannot fail: all map keys are strings.
    let text = serde_json::to_string_pretty(&document(report, kubectl)).unwrap_or_default();
    text + "\n"
}

/// The same document as YAML.
pub fn yaml(report: &Report, kubectl: &Kubectl) -> String {
    serde_saphyr::to_string(&document(report, kubectl)).unwrap_or_default()
}
