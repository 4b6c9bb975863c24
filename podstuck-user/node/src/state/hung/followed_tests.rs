use podstuck_common::in_flight::InFlight;

use super::*;

const TIMES: Times = Times { state: 'D', user_ticks: Some(7), start_ticks: Some(1), sleeps: 9 };

fn followed(anchor: Anchor) -> Followed {
    let me = Thread::main(std::process::id());
    let mut it = Followed::new(
        me,
        anchor,
        "x",
        podstuck_confine::clock::now(),
        Duration::from_secs(2),
        &mut TimedReader::default(),
    );
    it.last = Some(TIMES);
    it
}

fn call(number: libc::c_long, path: u64) -> Doing {
    Doing::Call { number, arguments: [path, 0, 0, 0, 0, 0] }
}

#[test]
fn an_unmount_is_over_when_its_thread_is_elsewhere() {
    let it = followed(Anchor::Exit);
    let still = |doing, times| it.still(doing, times);
    assert_eq!(still(call(libc::SYS_umount2, 1), Some(TIMES)), Position::Still);
    assert_eq!(still(Doing::Running, Some(TIMES)), Position::Still);
    let back = Times { user_ticks: Some(8), ..TIMES };
    assert_eq!(still(Doing::Running, Some(back)), Position::Over);
    assert_eq!(still(call(libc::SYS_futex, 1), Some(TIMES)), Position::Over);
    assert_eq!(still(call(libc::SYS_umount2, 1), None), Position::Over);
    let dead = Times { state: 'Z', ..TIMES };
    assert_eq!(still(Doing::Elsewhere, Some(dead)), Position::Over);
}

#[test]
fn another_thread_of_the_same_ids_is_not_it() {
    let it = followed(Anchor::Program);
    assert_eq!(it.still(Doing::Running, Some(TIMES)), Position::Still);
    let other = Times { start_ticks: Some(2), ..TIMES };
    assert_eq!(it.still(Doing::Running, Some(other)), Position::Over);
}

#[test]
fn a_thread_that_does_not_answer_is_in_the_same_wait_until_it_slept_again() {
    let it = followed(Anchor::Exit);
    assert_eq!(it.still(Doing::Unreported, Some(TIMES)), Position::Still);
    let elsewhere = Times { sleeps: 10, ..TIMES };
    let mute = Times { user_ticks: None, start_ticks: None, ..TIMES };
    assert_eq!(it.still(Doing::Unreported, Some(mute)), Position::Still);
    assert_eq!(it.still(Doing::Unreported, Some(elsewhere)), Position::Over);
}

#[test]
fn a_program_is_before_its_call_until_it_is_in_it() {
    let it = followed(Anchor::Program);
    assert_eq!(it.still(call(libc::SYS_newfstatat, 1), Some(TIMES)), Position::Still);
    assert_eq!(it.still(call(libc::SYS_wait4, 1), Some(TIMES)), Position::ForChild);
    assert_eq!(it.still(call(libc::SYS_umount2, 1), Some(TIMES)), Position::Over);
}

#[test]
fn an_entry_is_recognised_by_its_path_whatever_the_number() {
    let entry = InFlight { path: 0x1000, ..InFlight::default() };
    let it = followed(Anchor::Entry(entry));
    assert_eq!(it.still(call(52, 0x1000), Some(TIMES)), Position::Still);
    assert_eq!(it.still(call(52, 0x2000), Some(TIMES)), Position::Over);
}

#[test]
fn the_object_is_asked_for_again_and_not_for_ever() {
    let mut it = followed(Anchor::Program);
    it.object = Object::of_program(Thread::main(u32::MAX), &mut TimedReader::default());
    let later = Monotonic(it.began.0 + 3_000_000_000);
    let mut asked_at = Vec::new();
    while matches!(it.object, Object::Asked(_)) {
        it.asked = true;
        it.has_no_answer(later);
        asked_at.extend((!it.asked).then_some(it.ask_at.as_secs()));
    }
    assert_eq!(asked_at, [5, 7, 9, 11]);
    assert!(it.asked && it.object == Object::Known(None) && it.is_due(later));
}
