//! Holders against verdicts.

use std::time::Duration;

use nix::errno::Errno;

use super::*;
use crate::model::evidence::Certainty;
use crate::{
    causes::busy_mount::tracker::Busy,
    event::What,
    model::{call::Call, holder::About, node::NodeSample, time::Monotonic},
    query::{Answer, Query, Wants},
    testing::{Alone, failed, holder, snapshot},
};

fn ask(busy: &mut Alone<Busy>, second: f64) -> Query {
    busy.ask(&failed(Call::Umount2, Errno::EBUSY, "", second)).pop().unwrap()
}

/// It fails in so many attempts, and this is who holds it.
fn after(attempts: u32, holders: Vec<Holder>) -> Option<Draft> {
    let mut busy = Alone::new();
    let query = (1..=attempts).map(|nth| ask(&mut busy, f64::from(nth))).last().unwrap();
    assert!(matches!(&query.wants, Wants::Holders(About::Mount { .. })));
    busy.answer(&query, Answer::Holders(Ok(snapshot(holders))))
}

fn conclude(holders: Vec<Holder>) -> Draft {
    after(3, holders).unwrap()
}

#[test]
fn nobody_seen_in_two_attempts_is_a_moments() {
    assert!(after(2, Vec::new()).is_none());
    assert_eq!(after(3, Vec::new()).unwrap().id(), "busy-unexplained");
    let held = after(2, vec![holder(How::Fd, Through::Itself, Some(true))]);
    assert_eq!(held.unwrap().id(), "volume-held-by-host-process");
}

#[test]
fn the_holder_decides_the_cause() {
    let table = [
        (How::Cwd, Through::Itself, "volume-held-by-host-process"),
        (How::Fd, Through::PropagatedCopy, "volume-held-by-hosttocontainer-agent"),
        (How::Swap, Through::Itself, "swapfile-active"),
        (How::NestedMount, Through::Itself, "nested-mount-under-volume"),
    ];
    for (how, through, id) in table {
        let draft = conclude(vec![holder(how, through, Some(true))]);
        assert_eq!(draft.id(), id);
        assert_eq!(draft.certainty(), Certainty::Firm, "{id}");
        assert!(!draft.remedies.is_empty(), "{id}");
        assert!(draft.ruled_out.iter().all(|other| other.cause != draft.cause.id), "{id}");
    }
}

#[test]
fn a_private_copy_and_kubelet_itself_are_no_culprits() {
    let mut kubelet = holder(How::Fd, Through::Itself, Some(true));
    kubelet.component = Some(Component::Kubelet);
    let private = holder(How::Fd, Through::OtherMount, Some(false));
    let draft = conclude(vec![kubelet, private]);
    assert_eq!(draft.id(), "busy-unexplained");
    let names_it = |fact: &str| fact.contains("has it open");
    assert!(draft.evidence.iter().any(|e| names_it(&e.fact)), "{draft:#?}");
    assert!(draft.explanation.contains("kubelet itself"), "{}", draft.explanation);
    assert_eq!(draft.certainty(), Certainty::Possible);
}

#[test]
fn a_holder_seen_once_is_remembered() {
    let mut busy = Alone::new();
    let query = ask(&mut busy, 1.0);
    let held = snapshot(vec![holder(How::Fd, Through::Itself, Some(true))]);
    busy.answer(&query, Answer::Holders(Ok(held)));
    let query = ask(&mut busy, 2.0);
    let nobody = || Answer::Holders(Ok(snapshot(Vec::new())));
    assert!(
        busy.answer(&query, nobody()).is_none(),
        "who held it lets go: the next attempt may do"
    );
    let query = ask(&mut busy, 3.0);
    let draft = busy.answer(&query, nobody()).unwrap();
    assert_eq!(draft.id(), "volume-held-by-host-process");
    assert!(draft.evidence.iter().any(|e| e.fact.contains("earlier attempt")));
    assert_eq!(draft.certainty(), Certainty::Likely);
}

#[test]
fn without_a_snapshot_nothing_is_claimed() {
    let mut busy = Alone::new();
    let query = ask(&mut busy, 1.0);
    ask(&mut busy, 2.0);
    let hung = Answer::Holders(Err(NoAnswer::Deadline(Duration::from_secs(2))));
    assert_eq!(busy.answer(&query, hung).unwrap().id(), "busy-unexplained");
    let gone = Snapshot { subject: Err("gone".into()), ..snapshot(Vec::new()) };
    let mut busy = Alone::new();
    let query = ask(&mut busy, 1.0);
    let answer = busy.answer(&query, Answer::Holders(Ok(gone)));
    assert!(answer.is_none(), "not a mount point any more");
    // An answer about an object that nobody follows.
    assert!(Alone::<Busy>::new().answer(&query, Answer::Mounts(None)).is_none());
}

#[test]
fn one_refusal_alone_is_a_moments() {
    let held = |second: u64| {
        let holders = vec![holder(How::Fd, Through::Itself, Some(true))];
        Snapshot { at: Monotonic(second * 1_000_000_000), ..snapshot(holders) }
    };
    let look = |busy: &mut Alone<Busy>, second: u64| {
        let at = Monotonic(second * 1_000_000_000);
        let sample = NodeSample { at, ..NodeSample::default() };
        busy.take(at, What::Sample(sample.into())).queries
    };
    let mut busy = Alone::<Busy>::new();
    let query = ask(&mut busy, 10.0);
    assert!(busy.answer(&query, Answer::Holders(Ok(held(10)))).is_none());
    assert!(look(&mut busy, 11).is_empty(), "an agent that looks at every file is about to go on");
    let again = look(&mut busy, 13).pop().unwrap();
    assert!(look(&mut busy, 15).is_empty(), "asked once");
    let mut gone = busy;
    let draft = gone.answer(&again, Answer::Holders(Ok(held(13)))).unwrap();
    assert_eq!(draft.id(), "volume-held-by-host-process");
    let mut busy = Alone::<Busy>::new();
    let query = ask(&mut busy, 10.0);
    busy.answer(&query, Answer::Holders(Ok(held(10))));
    let again = look(&mut busy, 13).pop().unwrap();
    let nobody = Snapshot { at: Monotonic(13_000_000_000), ..snapshot(Vec::new()) };
    assert!(busy.answer(&again, Answer::Holders(Ok(nobody))).is_none());
}
