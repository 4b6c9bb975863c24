use std::collections::BTreeSet;

use super::*;
use crate::cause::{By, Origin};

#[test]
fn no_two_causes_have_one_name() {
    let ids = all().map(|cause| cause.id).chain(ELSEWHERE.iter().map(|known| known.id));
    let names: BTreeSet<CauseId> = ids.clone().collect();
    assert_eq!(names.len(), ids.count());
    let all: BTreeSet<CauseId> = ids::ALL.iter().copied().collect();
    let differ: Vec<_> = all.symmetric_difference(&names).collect();
    assert!(
        differ.is_empty(),
        "no cause of a family's `causes` has these ids of ids.rs: {differ:?}"
    );
}

#[test]
fn a_look_alike_is_known() {
    for cause in all() {
        for other in cause.look_alikes {
            assert!(title(other.cause).is_some(), "{} of {}", other.cause, cause.id);
            assert_ne!(other.cause, cause.id);
        }
    }
}

/// Look-alikes are symmetric. An admission that no cause is known has no distinguishing facts.
#[test]
fn two_causes_look_alike_from_both_sides() {
    let mut missing = Vec::new();
    for cause in all().filter(|cause| !cause.is_admission()) {
        for other in cause.look_alikes {
            let Some(other) = find(other.cause.as_str()) else { continue };
            if !other.is_admission() && other.look_alike(cause.id).is_none() {
                missing.push(format!("{}: `like(ids::..., \"...\")` of {}", other.id, cause.id));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "these causes lack in their `look_alikes`: {missing:#?}\nEach finding of theirs then needs `rule_out` or \
         `suffices_beside`, too"
    );
}

#[test]
fn nothing_is_proven_by_an_absence_alone() {
    for cause in all() {
        let id = cause.id;
        let first = cause.confirmed_by.first().map(|proof| proof.by);
        assert!(!matches!(first, Some(By::OrSeen(_))), "{id}: in place of what?");
        let is_seen = cause.confirmed_by.iter().any(|proof| matches!(proof.by, By::Seen([_, ..])));
        assert!(is_seen, "{id}");
        let from = cause.confirmed_by.iter().flat_map(|proof| match proof.by {
            By::Seen(from) | By::OrSeen(from) => from.to_vec(),
            By::Absent(_) => Vec::new(),
        });
        let all: Vec<Origin> = from.collect();
        assert_eq!(cause.unproven(&all), cause.hidden().next(), "{id}");
        assert!(cause.unproven(&[]).is_some(), "{id}");
    }
}

#[test]
fn what_is_known_elsewhere_is_confused_with_something() {
    for known in &ELSEWHERE {
        let refers = |cause: &Cause| cause.look_alike(known.id).is_some();
        assert!(all().any(refers), "{} is of no use here", known.id);
    }
}

#[test]
fn a_cause_says_what_there_is_to_know() {
    for cause in all() {
        let id = cause.id;
        assert!(cause.meaning.ends_with('.') && cause.meaning.len() > cause.title.len(), "{id}");
        assert!(!cause.title.ends_with('.') && !cause.confirmed_by.is_empty(), "{id}");
        assert!(!cause.ways_out.is_empty(), "{id}");
        assert!(cause.is_admission() || !cause.source.is_empty(), "{id} has no source");
        assert_eq!(cause.is_admission(), cause.title.starts_with("not a cause: "), "{id}");
        let whole = serde_json::to_string(cause).unwrap();
        assert!(!whole.contains("FILL IN"), "{id} is not filled in: {whole}");
        assert_eq!(podstuck_testing::own_words(&whole), [""; 0], "{id}");
        let facts: Vec<&str> = cause.confirmed_by.iter().map(|proof| proof.fact).collect();
        let texts = facts.iter().chain([&cause.title, &cause.meaning]);
        for text in texts.chain(cause.look_alikes.iter().map(|other| &other.differs_by)) {
            assert!(!text.contains("  ") && !text.contains('\n'), "{id}: {text}");
        }
    }
}
