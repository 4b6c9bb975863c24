//! Attributes against verdicts.

use super::{super::sample::failed, *};

const SET: Attributes = Attributes { immutable: true, append_only: false, known: true };
const UNSET: Attributes = Attributes { immutable: false, append_only: false, known: true };

fn verdict(object: Attributes, directory: Attributes) -> Draft {
    verdict_of(Answer::Attributes {
        object,
        directory,
        same_directory: true,
        sticky: false,
        swap: false,
    })
}

fn verdict_of(answer: Answer) -> Draft {
    let op = failed(Call::Unlinkat, Errno::EPERM, "d/f", 1.0);
    let mut permission = Permission::default();
    let case = permission.observe(&op).unwrap();
    permission.conclude(&case, Ok(answer)).unwrap()
}

#[test]
fn the_flag_is_taken_off_what_carries_it() {
    let draft = verdict(SET, UNSET);
    assert_eq!(draft.id, "immutable-attribute");
    assert!(
        draft.remedies[0]
            .command
            .ends_with("/root/k/pods/u/volumes/kubernetes.io~empty-dir/data/d/f")
    );
    let draft = verdict(UNSET, SET);
    assert!(draft.remedies[0].command.ends_with("/data/d"), "{}", draft.remedies[0].command);
    let append = Attributes { append_only: true, ..UNSET };
    assert_eq!(verdict(append, UNSET).id, "append-only-attribute");
}

#[test]
fn without_a_flag_nothing_is_claimed_and_the_flags_are_ruled_out() {
    let draft = verdict(UNSET, UNSET);
    assert_eq!((draft.id, draft.ruled_out.len()), ("permission-unexplained", 2));
    assert!(draft.confidence < 0.5);
    let mute = Attributes { known: false, ..UNSET };
    assert!(verdict(mute, mute).ruled_out.is_empty(), "a file system that does not say");
}

#[test]
fn an_active_swap_file_is_told() {
    let draft = verdict_of(Answer::Attributes {
        object: UNSET,
        directory: UNSET,
        same_directory: true,
        sticky: false,
        swap: true,
    });
    assert_eq!(draft.id, "swapfile-active");
    assert!(draft.remedies[0].command.contains("swapoff"));
}

#[test]
fn a_hung_file_system_is_said_to_be_one() {
    let op = failed(Call::Unlinkat, Errno::EPERM, "d/f", 1.0);
    let mut permission = Permission::default();
    let case = permission.observe(&op).unwrap();
    let hung = LookError::Deadline(std::time::Duration::from_secs(2));
    let draft = permission.conclude(&case, Err(hung)).unwrap();
    assert!(draft.evidence.iter().any(|e| e.fact.contains("may be hung")));
}
