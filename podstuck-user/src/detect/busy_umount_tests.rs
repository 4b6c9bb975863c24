//! Holders against verdicts.

use std::time::Duration;

use nix::errno::Errno;

use super::*;
use crate::{
    detect::{
        busy::Busy,
        case::{Case, Facts, Needs},
        sample::{failed, holder, snapshot},
    },
    model::call::Call,
    state::holders::About,
};

fn ask(busy: &mut Busy, second: f64) -> Case {
    busy.observe(&failed(Call::Umount2, Errno::EBUSY, "", second)).unwrap()
}

fn conclude(holders: Vec<Holder>) -> Draft {
    let mut busy = Busy::default();
    let case = ask(&mut busy, 1.0);
    assert!(matches!(&case.needs, Needs::Holders(About::Mount { .. })));
    busy.held(&case, Ok(snapshot(holders))).unwrap()
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
        assert_eq!(draft.id, id);
        assert!(draft.confidence > 0.9, "{id}");
        assert!(!draft.remedies.is_empty(), "{id}");
        assert!(draft.ruled_out.iter().all(|other| !other.starts_with(id)), "{id}");
    }
}

#[test]
fn a_private_copy_and_kubelet_itself_are_no_culprits() {
    let mut kubelet = holder(How::Fd, Through::Itself, Some(true));
    kubelet.component = Some(Component::Kubelet);
    let private = holder(How::Fd, Through::OtherMount, Some(false));
    let draft = conclude(vec![kubelet, private]);
    assert_eq!(draft.id, "busy-unexplained");
    assert!(draft.confidence < 0.5);
}

#[test]
fn a_holder_seen_once_is_remembered() {
    let mut busy = Busy::default();
    let case = ask(&mut busy, 1.0);
    busy.held(&case, Ok(snapshot(vec![holder(How::Fd, Through::Itself, Some(true))])));
    let case = ask(&mut busy, 2.0);
    let draft = busy.held(&case, Ok(snapshot(Vec::new()))).unwrap();
    assert_eq!(draft.id, "volume-held-by-host-process");
    assert!(draft.evidence.iter().any(|e| e.fact.contains("earlier attempt")));
    assert!((0.5..0.9).contains(&draft.confidence));
}

#[test]
fn without_a_snapshot_nothing_is_claimed() {
    let mut busy = Busy::default();
    let case = ask(&mut busy, 1.0);
    let hung = LookError::Deadline(Duration::from_secs(2));
    assert_eq!(busy.held(&case, Err(hung)).unwrap().id, "busy-unexplained");
    let gone = Snapshot { subject: Err("gone".into()), ..snapshot(Vec::new()) };
    let mut busy = Busy::default();
    let case = ask(&mut busy, 1.0);
    assert!(busy.held(&case, Ok(gone)).is_none(), "not a mount point any more");
    let mut detectors = crate::detect::Detectors::default();
    assert!(detectors.conclude(&case, Facts::Mounts(None)).is_empty());
}
