//! A firm finding is proven: each incident is played again without one kind of event or answer, or with one
//! incomplete feed. Then no other cause becomes firm, nothing more is ruled out, and a finding that required the
//! missing input is not firm.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    neighbour::all,
    play::{Node, Step, engine},
};
use crate::{
    catalogue,
    cause::{CauseId, Origin, TriedWith},
    chain::is_of_kubelet,
    engine::{Engine, Output},
    event::{Event, What},
    ids,
    model::{
        degraded::{Degraded, Feed},
        evidence::Certainty,
        finding::Finding,
        time::Monotonic,
    },
    query::{Answer, NoAnswer},
};

/// Whether to drop an event.
type IsOne = fn(&What) -> bool;
/// Replaces an answer.
type Instead = fn(Answer) -> Answer;

/// The input that is removed.
struct Without {
    name: &'static str,
    event: IsOne,
    answer: Instead,
    /// The origins that then have no evidence.
    unseen: &'static [Origin],
    /// The feed that is incomplete.
    blind: Option<Feed>,
}

/// Of each pair, the second cause is true and its remedy releases the pod, whether or not the first one is the
/// origin.
const WITHIN: [(CauseId, CauseId); 1] = [(ids::KUBELET_ROOT_SYMLINK, ids::STACKED_MOUNTS)];

const NOTHING: Without =
    Without { name: "", event: |_| false, answer: |it| it, unseen: &[], blind: None };

fn no_answer() -> NoAnswer {
    NoAnswer::Deadline(std::time::Duration::from_secs(2))
}

fn without() -> Vec<Without> {
    let events: [(_, IsOne, &[Origin]); 8] = [
        ("calls", |what| matches!(what, What::Operation(_)), &[]),
        ("counts", |what| matches!(what, What::Counts(_)), &[]),
        (
            "what probes see",
            |what| matches!(what, What::Operation(_) | What::Counts(_) | What::Stuck(_)),
            &[Origin::Calls],
        ),
        ("threads that hang", |what| matches!(what, What::Stuck(_)), &[]),
        ("complaints", |what| matches!(what, What::Said(_) | What::Logged(_)), &[Origin::Log]),
        ("how far logs were read", |what| matches!(what, What::Heard(_)), &[]),
        ("the pod's record", |what| matches!(what, What::Record { .. }), &[Origin::Api]),
        ("scans", |what| matches!(what, What::Sample(_)), &[Origin::Scans]),
    ];
    let answers: [(_, Instead); 12] = [
        ("mount tables", |it| match it {
            Answer::Mounts(_) => Answer::Mounts(None),
            it => it,
        }),
        ("file systems", |it| match it {
            Answer::FileSystem(_) => Answer::FileSystem(None),
            it => it,
        }),
        ("looks at FUSE mounts", |it| match it {
            Answer::FuseMounts(_) => Answer::FuseMounts(Vec::new()),
            it => it,
        }),
        ("attributes", |it| match it {
            Answer::Attributes(_) => Answer::Attributes(Err(no_answer())),
            it => it,
        }),
        ("attributes in a tree", |it| match it {
            Answer::Protected(_) => Answer::Protected(Err(no_answer())),
            it => it,
        }),
        ("what is left", |it| match it {
            Answer::Remaining(_) => Answer::Remaining(Err(no_answer())),
            it => it,
        }),
        ("entries", |it| match it {
            Answer::Directory(mut it) => {
                it.entries = Err(no_answer());
                Answer::Directory(it)
            }
            it => it,
        }),
        ("users of a directory", |it| match it {
            Answer::Directory(mut it) => {
                it.users = Vec::new();
                Answer::Directory(it)
            }
            it => it,
        }),
        ("listeners", |it| match it {
            Answer::Listener(_) => Answer::Listener(Err(no_answer())),
            it => it,
        }),
        ("clients", |it| match it {
            Answer::Clients(_) => Answer::Clients(Err(no_answer())),
            it => it,
        }),
        ("fanotify groups", |it| match it {
            Answer::Fanotify(_) => Answer::Fanotify(Err(no_answer())),
            it => it,
        }),
        ("holders", |it| match it {
            Answer::Holders(_) => Answer::Holders(Err(no_answer())),
            it => it,
        }),
    ];
    let feeds = [
        Feed::Calls,
        Feed::HungCalls,
        Feed::Node,
        Feed::Space,
        Feed::Objects,
        Feed::Holders,
        Feed::Logs,
    ];
    let events =
        events.into_iter().map(|(name, event, unseen)| Without { name, event, unseen, ..NOTHING });
    let answers = answers.into_iter().map(|(name, answer)| Without { name, answer, ..NOTHING });
    let blind = feeds.into_iter().map(|feed| Without {
        name: feed.completeness(),
        blind: Some(feed),
        ..NOTHING
    });
    events.chain(answers).chain(blind).collect()
}

struct Run {
    engine: Engine,
    answer: fn(Answer) -> Answer,
    findings: Vec<Finding>,
}

impl Run {
    fn take(&mut self, node: &Node, at: Monotonic, what: What) {
        for output in self.engine.take(&Event { at, what }) {
            match output {
                Output::Finding(finding) => self.findings.push(*finding),
                Output::Query(query) => {
                    let answer = Box::new((self.answer)(node.answer(&query)));
                    self.take(node, at, What::Answer { query, answer });
                }
                Output::Hung(_) | Output::Progress(_) | Output::Gone(_) => {}
            }
        }
    }
}

fn findings_of(steps: &[Step], without: &Without) -> Vec<Finding> {
    played(steps, without).findings
}

fn played(steps: &[Step], without: &Without) -> Run {
    let mut play = Run { engine: engine(steps), answer: without.answer, findings: Vec::new() };
    if let (Some(feed), Some(first)) = (without.blind, steps.first()) {
        let parts = vec![Degraded::new("a part does not see everything", &[feed])];
        play.take(&first.node, first.at, What::Degraded(parts));
    }
    for Step { node, at, what } in steps {
        if !(without.event)(what) {
            play.take(node, *at, what.clone());
        }
    }
    play
}

fn firm(findings: &[Finding]) -> BTreeSet<CauseId> {
    let firm = findings.iter().filter(|finding| finding.certainty == Certainty::Firm);
    firm.map(|finding| finding.id).collect()
}

fn ruled_out(findings: &[Finding]) -> BTreeMap<CauseId, BTreeSet<CauseId>> {
    let mut all: BTreeMap<CauseId, BTreeSet<CauseId>> = BTreeMap::new();
    for finding in findings {
        let out = finding.likely_causes_ruled_out.iter().map(|out| out.cause);
        all.entry(finding.id).or_default().extend(out);
    }
    all
}

fn origins(finding: &Finding) -> Vec<Origin> {
    finding.evidence.iter().filter_map(|it| it.source.origin()).collect()
}

/// Causes that reach their highest certainty only in labs and in the unit tests of their families.
const ELSEWHERE: [CauseId; 6] = [
    ids::APPARMOR_SIGNAL_DENIED,
    ids::CEPHFS_EVICTED,
    ids::CGROUP_POPULATED_LEFTOVER,
    ids::KUBELET_MISSED_DELETION,
    ids::MOUNT_OVER_VOLUME,
    ids::UMOUNT_KERNEL_HANG,
];

/// The findings reach the certainty that the table of proofs allows.
#[test]
fn what_the_catalogue_says_a_cause_can_be_at_most_is_reached() {
    let mut most: BTreeMap<CauseId, Certainty> = BTreeMap::new();
    for (_, play) in all() {
        for finding in findings_of(&play.steps, &NOTHING) {
            let known = most.entry(finding.id).or_insert(finding.certainty);
            *known = finding.certainty.max(*known);
        }
    }
    let mut wrong = Vec::new();
    for cause in catalogue::all().filter(|cause| !ELSEWHERE.contains(&cause.id)) {
        // Causes that only the API server shows are tested elsewhere.
        let of_api = [TriedWith::ApiServer, TriedWith::Objects];
        if !most.contains_key(&cause.id) && cause.tried.iter().any(|it| of_api.contains(it)) {
            continue;
        }
        let (said, reached) = (Certainty::at_most(cause), most.get(&cause.id));
        if reached != Some(&said) {
            wrong.push(format!("{}: {said:?} at most, {reached:?} is reached", cause.id));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A first command without a risk is read-only, or was tested where the cause is present.
#[test]
fn a_first_command_without_a_risk_was_tried() {
    let looks = ["show ", "list ", "count ", "ask ", "find "];
    let mut first = BTreeSet::new();
    for (title, play) in all() {
        for finding in findings_of(&play.steps, &NOTHING) {
            let command = finding.remedies.iter().find(|remedy| remedy.command.is_some());
            let Some(remedy) = command.filter(|it| it.risk.starts_with("none")) else { continue };
            first.insert(finding.id);
            let does = remedy.does.as_deref().unwrap_or_default();
            let only_looks = looks.iter().any(|word| does.starts_with(word));
            let cause = catalogue::find(finding.id.as_str()).unwrap();
            assert!(only_looks || !cause.tried.is_empty(), "{title}: {remedy:?}");
        }
    }
    assert!(first.len() > 10, "{first:?}");
}

/// Each cause of an answer that may hold the pod has the chain that it explains.
#[test]
fn each_cause_of_an_answer_explains_its_own_chain() {
    let mut explained = BTreeSet::new();
    for (title, play) in all() {
        for cause in played(&play.steps, &NOTHING).engine.diagnosis().causes {
            let links = cause.chain.iter().filter_map(|link| link.explained_by);
            let by: Vec<CauseId> = links.collect();
            let is_said = !cause.chain.is_empty() && !is_of_kubelet(cause.id);
            assert_eq!(by, vec![cause.id; usize::from(is_said)], "{title}: {:#?}", cause.chain);
            explained.extend(by);
        }
    }
    assert!(explained.len() > 5, "{explained:?}");
}

#[test]
fn what_is_taken_away_makes_nothing_else_certain_and_what_needed_it_less() {
    let (mut wrong, mut tried) = (Vec::new(), BTreeSet::new());
    for (title, play) in all() {
        let whole = findings_of(&play.steps, &NOTHING);
        let (was_firm, was_out) = (firm(&whole), ruled_out(&whole));
        tried.extend(was_firm.iter().copied());
        for without in without() {
            let now = findings_of(&play.steps, &without);
            let at = format!("{title}, without {}", without.name);
            let is_within = |it: &CauseId| {
                WITHIN.iter().any(|(cause, within)| within == it && was_out.contains_key(cause))
            };
            let firm_now = firm(&now);
            for other in firm_now.difference(&was_firm).filter(|it| !is_within(it)) {
                wrong.push(format!("{at}: {other} becomes firm"));
            }
            for (cause, out) in ruled_out(&now) {
                let before = was_out.get(&cause).cloned().unwrap_or_default();
                let is_new = |it: &&CauseId| was_out.contains_key(&cause) && !before.contains(it);
                for more in out.iter().filter(is_new) {
                    wrong.push(format!("{at}: {cause} rules out {more}"));
                }
            }
            for finding in now.iter().filter(|it| it.certainty == Certainty::Firm) {
                let cause = catalogue::find(finding.id.as_str()).unwrap();
                // An absence may be cited as evidence, which proves nothing.
                let mut origins = origins(finding);
                origins.retain(|origin| !without.unseen.contains(origin));
                if let Some(fact) = cause.unproven(&origins) {
                    wrong
                        .push(format!("{at}: {} is firm without evidence that {fact}", finding.id));
                }
                if cause.absences().any(|(_, feed)| Some(feed) == without.blind) {
                    wrong.push(format!("{at}: {} is firm by an absence", finding.id));
                }
            }
        }
    }
    assert!(tried.len() > 30, "{}: {tried:?}", tried.len());
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}
