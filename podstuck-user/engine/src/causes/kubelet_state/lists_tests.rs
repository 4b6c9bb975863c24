//! What kubelet's own list of its pods shows about a deletion, read by read.

use std::sync::Arc;

use jiff::Timestamp;

use super::tracker::KubeletsPart;
use crate::{
    event::What,
    model::{
        cluster::{Change, KubeletsList, Listed, NotRead},
        evidence::Certainty::{Firm, Likely},
        identity::Component,
        node::{NodeSample, PodState},
        pod_record::PodRecord,
        said::{Complaint, Report, Said},
        time::Monotonic,
    },
    query::{Answer, Query, ReadKubeletsPods, Wants},
    testing::{Alone, found, holder_of, pod_record, pod_state, runtime},
    verdict::Draft,
};

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
const CAUSE: &str = "kubelet-missed-deletion";

/// The deletion was requested at 570; its grace period ended at 600.
struct Played {
    alone: Alone<KubeletsPart>,
    kubelet: u32,
}

type Read = Result<KubeletsList, NotRead>;

fn at(second: u64) -> Monotonic {
    Monotonic(second * 1_000_000_000)
}

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn list(pods: Vec<Listed>, latest: i64) -> KubeletsList {
    let latest = Change { at: time(latest), namespace: "shop".into(), name: "later".into() };
    KubeletsList { pods, latest: Some(latest), is_well: false }
}

/// The list has the pod with this deletion, and a last change at that time.
fn read(deletion: Option<i64>, latest: i64) -> Read {
    Ok(list(vec![Listed { uid: UID.into(), deletion: deletion.map(time) }], latest))
}

impl Played {
    fn new() -> Self {
        let mut alone = Alone::<KubeletsPart>::new();
        let record = PodRecord {
            deletion: Some(time(600)),
            all_terminated: false,
            containers: Some(Vec::new()),
            ..pod_record(UID)
        };
        alone.take(at(601), What::Record { record: record.into(), node: "here".into() });
        Self { alone, kubelet: 7 }
    }

    fn says(&mut self, second: u64, said: Said) {
        self.alone.take(at(second), What::Said(said.into()));
    }

    /// A scan of the node: the finding, and the question.
    fn scan(&mut self, second: u64) -> (Option<Draft>, Option<Query>) {
        let sample = NodeSample {
            at: at(second),
            pods: vec![PodState { populated: Some(true), ..pod_state(UID) }],
            kubelets: vec![self.kubelet],
            runtimes: vec![runtime(Component::Containerd)],
            ..NodeSample::default()
        };
        let mut steps = self.alone.take(at(second), What::Sample(Arc::new(sample)));
        (found(steps.verdicts).pop(), steps.queries.pop())
    }

    fn answer(&mut self, second: u64, query: Query, read: Read) {
        let answer = Box::new(Answer::KubeletsPods(read));
        self.alone.take(at(second), What::Answer { query: query.into(), answer });
    }

    /// Scans at each second, and answers the questions in turn; the last finding.
    fn reads(&mut self, begin: u64, reads: impl IntoIterator<Item = Read>) -> Option<Draft> {
        let (mut reads, mut second) = (reads.into_iter().peekable(), begin);
        while reads.peek().is_some() {
            let (_, query) = self.scan(second);
            if let Some(query) = query {
                self.answer(second, query, reads.next().unwrap());
            }
            second += 1;
            assert!(second < begin + 400, "nothing more is asked");
        }
        self.scan(second).0
    }
}

#[test]
fn a_deletion_that_two_reads_do_not_have_is_missed() {
    let mut played = Played::new();
    assert!(played.scan(605).1.is_none(), "kubelet may be about to report the end");
    let (_, query) = played.scan(610);
    let query = query.unwrap();
    let asked = ReadKubeletsPods { kubelet: 7, pods: vec![UID.into()] };
    assert_eq!(query.wants, Wants::KubeletsPods(asked));
    assert!(played.scan(611).1.is_none(), "one question at a time");
    played.answer(611, query, read(None, 590));
    let (once, query) = played.scan(612);
    assert!(once.is_none() && query.is_none(), "one read is not enough");
    let (_, query) = played.scan(613);
    played.answer(613, query.unwrap(), read(None, 590));
    let draft = played.scan(614).0.unwrap();
    draft.assert_is(CAUSE, Firm);
    assert_eq!(holder_of(&draft.held_by), "kubelet (pid 7)");
    assert!(draft.remedies[0].words().starts_with("restart kubelet"), "{draft:#?}");
    // A container that ends by itself is no step of the deletion.
    let ended = Said::new(Component::Kubelet, "log", UID, time(612), "x");
    played.says(615, Said { report: Some(Report::ContainerEnded), ..ended });
    played.scan(616).0.unwrap().assert_is(CAUSE, Firm);
    // Each minute it is asked again: kubelet may have listed its pods meanwhile.
    assert!(played.scan(672).1.is_none());
    let (_, query) = played.scan(673);
    played.answer(673, query.unwrap(), read(Some(600), 590));
    assert!(played.scan(674).0.is_none(), "it has received the deletion");
}

#[test]
fn a_kubelet_that_knows_of_the_deletion_has_not_missed_it() {
    // Its log says that its watch fails, which may have begun after.
    let fails = || {
        let said = Said::new(Component::Kubelet, "log", "", time(605), "too old resource version");
        Said { complaint: Some(Complaint::WatchFails), times: 9, ..said }
    };
    let mut played = Played::new();
    played.says(606, fails());
    played.scan(610).0.unwrap().assert_is(CAUSE, Likely);
    for known in [read(Some(600), 590), Ok(list(Vec::new(), 590))] {
        let mut played = Played::new();
        played.says(606, fails());
        assert!(played.reads(610, [known.clone()]).is_none(), "{known:?}");
    }
    // One that receives it between the two reads.
    let mut played = Played::new();
    assert!(played.reads(610, [read(None, 590), read(Some(600), 590)]).is_none());
    // A watch that fails is the reason why the list lacks the deletion, and all later changes.
    let mut played = Played::new();
    played.says(606, fails());
    played.reads(610, [read(None, 500), read(None, 500)]).unwrap().assert_is(CAUSE, Firm);
}

#[test]
fn a_kubelet_that_takes_no_change_is_not_proven_to_have_missed_one() {
    let mut played = Played::new();
    played.reads(610, [read(None, 560), read(None, 560)]).unwrap().assert_is(CAUSE, Likely);
    // Its health check fails only after five minutes without a round of its loop.
    let well = || read(None, 560).map(|list| KubeletsList { is_well: true, ..list });
    let mut played = Played::new();
    played.reads(610, [well(), well()]).unwrap().assert_is(CAUSE, Likely);
    let mut played = Played::new();
    played.reads(900, [well(), well()]).unwrap().assert_is(CAUSE, Firm);
}

#[test]
fn another_kubelet_and_an_old_read_prove_nothing() {
    let mut played = Played::new();
    assert!(played.reads(610, [read(None, 590)]).is_none());
    // It was restarted: what the one before had in its list is over.
    played.kubelet = 8;
    let (_, query) = played.scan(620);
    played.answer(620, query.unwrap(), read(None, 590));
    assert!(played.scan(621).0.is_none());
    let (_, query) = played.scan(622);
    played.answer(622, query.unwrap(), read(None, 590));
    assert!(played.scan(623).0.is_some());
    // Nothing answers any more.
    assert!(played.scan(900).0.is_none());
}

#[test]
fn a_refusal_is_not_asked_for_again_soon_and_names_the_right() {
    let mut played = Played::new();
    let heard = |second| {
        let said = Said::new(Component::Kubelet, "log", UID, time(second), "x");
        Said { report: Some(Report::Added), ..said }
    };
    played.says(606, heard(500));
    let (source, since, until) = ("log".into(), time(400), time(900));
    let heard = crate::model::said::Heard { source, since, until, names_steps: true };
    played.alone.take(at(607), What::Heard(heard.into()));
    let draft = played.reads(670, [Err(NotRead::Forbidden)]).unwrap();
    draft.assert_is(CAUSE, Likely);
    assert!(draft.not_known().concat().contains("`get` on `nodes/pods`"), "{draft:#?}");
    assert!((672..790).step_by(2).all(|second| played.scan(second).1.is_none()));
    assert!(played.scan(790).1.is_some());
    // Without an answer, it is asked again, too.
    assert!(played.scan(810).1.is_none());
    assert!(played.scan(820).1.is_some());
}

#[test]
fn a_deletion_that_kubelets_log_has_is_not_asked_about() {
    let mut played = Played::new();
    let said = Said::new(Component::Kubelet, "log", UID, time(571), "x");
    played.says(606, Said { report: Some(Report::ToGo), ..said });
    assert!(played.scan(610).1.is_none());
}
