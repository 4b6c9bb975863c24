//! Attributes against verdicts.

use super::*;
use crate::model::evidence::Certainty;
use crate::{
    model::object::Attributes,
    testing::{Alone, FILE, failed},
};

const SET: Attributes = Attributes { immutable: true, append_only: false, known: true };
const UNSET: Attributes = Attributes { immutable: false, append_only: false, known: true };

fn verdict(object: Attributes, directory: Attributes) -> Draft {
    verdict_of(Ok(ObjectAttributes {
        files: Some((FILE, FILE)),
        object,
        directory,
        same_directory: true,
        sticky: false,
        swap: false,
        swap_unknown: false,
    }))
}

fn verdict_of(seen: Result<ObjectAttributes, NoAnswer>) -> Draft {
    let mut refusals = Alone::<Refusals>::new();
    let query = refusals.ask(&failed(Call::Unlinkat, Errno::EPERM, "d/f", 1.0)).pop().unwrap();
    refusals.answer(&query, Answer::Attributes(seen)).unwrap()
}

#[test]
fn the_flag_is_taken_off_what_carries_it() {
    let draft = verdict(SET, UNSET);
    assert_eq!(draft.id(), "immutable-attribute");
    let words = draft.remedies[0].words();
    let directory = "/root/k/pods/u/volumes/kubernetes.io~empty-dir/data";
    assert!(words.ends_with(&format!("chattr -i ./f' sh '/proc/42{directory}/d'")), "{words}");
    let draft = verdict(UNSET, SET);
    let words = draft.remedies[0].words();
    assert!(words.ends_with(&format!("chattr -i ./d' sh '/proc/42{directory}'")), "{words}");
    let append = Attributes { append_only: true, ..UNSET };
    assert_eq!(verdict(append, UNSET).id(), "append-only-attribute");
}

#[test]
fn without_a_flag_nothing_is_claimed_and_the_flags_are_ruled_out() {
    let draft = verdict(UNSET, UNSET);
    assert_eq!((draft.id(), draft.ruled_out.len()), ("permission-unexplained", 2));
    assert_eq!(draft.certainty(), Certainty::Possible);
    let mute = Attributes { known: false, ..UNSET };
    assert!(verdict(mute, mute).ruled_out.is_empty(), "a file system that does not say");
}

#[test]
fn an_active_swap_file_is_told() {
    let draft = verdict_of(Ok(ObjectAttributes {
        files: Some((FILE, FILE)),
        object: UNSET,
        directory: UNSET,
        same_directory: true,
        sticky: false,
        swap: true,
        swap_unknown: false,
    }));
    assert_eq!(draft.id(), "swapfile-active");
    assert!(draft.remedies[0].words().contains("swapoff"));
}

#[test]
fn what_was_not_looked_at_explains_nothing() {
    const NONE: &str = "no attribute explains it";
    let plain = Ok(ObjectAttributes {
        files: Some((FILE, FILE)),
        object: UNSET,
        directory: UNSET,
        same_directory: true,
        sticky: false,
        swap: false,
        swap_unknown: false,
    });
    assert!(verdict_of(plain.clone()).explanation.contains(NONE));
    let mute = Attributes { known: false, ..UNSET };
    let mut looks = vec![
        Err(NoAnswer::Deadline(std::time::Duration::from_secs(2))),
        Err(NoAnswer::NotEntered("its server does not answer".into())),
        Err(NoAnswer::Refused("opening it: No such file or directory".into())),
    ];
    for (object, directory) in [(mute, mute), (UNSET, mute)] {
        looks.push(plain.clone().map(|seen| ObjectAttributes { object, directory, ..seen }));
    }
    for look in looks {
        let draft = verdict_of(look.clone());
        assert_eq!(draft.id(), "permission-unexplained");
        assert!(!draft.explanation.contains(NONE), "{look:?}: {}", draft.explanation);
        assert!(draft.explanation.contains("append-only attribute"), "{look:?}");
        assert!(draft.ruled_out.is_empty(), "{look:?}: {:?}", draft.ruled_out);
        if let Err(why) = look {
            assert!(draft.evidence.iter().any(|e| e.fact.contains(&why.to_string())), "{draft:?}");
        }
    }
    let no_table = plain.clone().map(|seen| ObjectAttributes { swap_unknown: true, ..seen });
    assert!(verdict_of(no_table.clone()).explanation.contains("swap file, which could not be"));
    let set = no_table.map(|seen| ObjectAttributes { object: SET, ..seen });
    assert_eq!(verdict_of(set).certainty(), Certainty::Likely, "it may be a swap file as well");
}

#[test]
fn where_thousands_are_refused_one_is_looked_at_and_told() {
    let seen = ObjectAttributes {
        files: Some((FILE, FILE)),
        object: SET,
        directory: UNSET,
        same_directory: true,
        sticky: false,
        swap: false,
        swap_unknown: false,
    };
    let mut refusals = Alone::<Refusals>::new();
    let fail = |refusals: &mut Alone<Refusals>, number: u32, second: f64| {
        let at = second + f64::from(number) / 10_000.0;
        refusals.ask(&failed(Call::Unlinkat, Errno::EPERM, &format!("f{number}"), at))
    };
    let mut asked: Vec<Query> = (0..100).flat_map(|n| fail(&mut refusals, n, 1.0)).collect();
    assert_eq!(asked.len(), 1);
    let query = asked.remove(0);
    assert!(query.path.ends_with("f0"), "{query:?}");
    let draft = refusals.answer(&query, Answer::Attributes(Ok(seen))).unwrap();
    assert_eq!((draft.id(), draft.count), ("immutable-attribute", 100));
    // The rest of the attempt changes nothing; the next attempt is looked at again.
    assert_eq!((100..200).flat_map(|n| fail(&mut refusals, n, 1.0)).count(), 0);
    assert_eq!((0..100).flat_map(|n| fail(&mut refusals, n, 2.0)).count(), 1);
    // An answer that never comes is not waited for.
    assert_eq!((0..100).flat_map(|n| fail(&mut refusals, n, 6.0)).count(), 0);
    assert_eq!((0..100).flat_map(|n| fail(&mut refusals, n, 7.5)).count(), 1);
}

#[test]
fn a_hung_file_system_is_said_to_be_one() {
    let draft = verdict_of(Err(NoAnswer::Deadline(std::time::Duration::from_secs(2))));
    assert!(draft.evidence.iter().any(|e| e.fact.contains("may be hung")));
}
