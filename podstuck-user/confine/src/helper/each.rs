//! Reads several places of which any may hang. One helper goes from place to place; where it hangs it is left behind,
//! and another continues with the rest. So a place that does not answer is reported by its own path and hides no
//! other.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Instant,
};

use podstuck_model::{path::safe_path, query::NoAnswer};

use super::{
    Question,
    client::{Failure, LIMIT, WHOLE, ask_in_parts, why_not_again},
};
use crate::{alive, back_off::BackOff};

/// Places that did not answer the last time, by question and reported step.
static SILENT: Mutex<BTreeMap<(&'static str, OsString), BackOff>> = Mutex::new(BTreeMap::new());
/// More than a node has roots of targets, as every process sees them.
const REMEMBERED: usize = 1024;

/// Asks about each of these places. The question reports each place, as `name` renders it, before it reads it, and
/// one part for each, in their order. `seen` is a place as a process sees it.
///
/// Places that answered before are asked first. A place where a helper still hangs is not entered, one that did not
/// answer is asked at growing intervals, and whatever lies below either, or belongs to the same server, is not
/// entered before it answers.
pub fn ask_each<P, Q: Question<Step = OsString>>(
    places: Vec<P>,
    name: impl Fn(&P) -> OsString,
    seen: impl Fn(&P) -> (u32, PathBuf),
    question: impl Fn(&[P]) -> Q,
    mut take: impl FnMut(P, Result<Q::Part, NoAnswer>),
) {
    let begun = Instant::now();
    let key = |place: &P| (Q::NAME, name(place));
    let mut silent: Vec<PathBuf> = Vec::new();
    let (mut left, mut again) = (Vec::new(), Vec::new());
    for place in places {
        let turn = turn(&key(&place), why_not_again::<Q>(&name(&place)), begun);
        match turn {
            Turn::First => left.push(place),
            Turn::Again => again.push(place),
            Turn::Not(why) => {
                silent.push(name(&place).into());
                take(place, Err(why));
            }
        }
    }
    left.append(&mut again);
    while !left.is_empty() {
        let mut ahead = Vec::new();
        for place in left {
            let by_its_server = || {
                let (pid, path) = seen(&place);
                alive::why_silent(pid, &path).map(NoAnswer::NotEntered)
            };
            let hung = || (!silent.is_empty()).then(by_its_server).flatten();
            match above(&silent, Path::new(&name(&place))).or_else(hung) {
                Some(why) => take(place, Err(why)),
                None => ahead.push(place),
            }
        }
        left = ahead;
        if left.is_empty() || begun.elapsed() >= WHOLE {
            break;
        }
        let mut parts = Vec::new();
        let asked = ask_in_parts(question(&left), |part| parts.push(part));
        let answered = parts.len().min(left.len());
        for (place, part) in left.drain(..answered).zip(parts) {
            of_silent().remove(&key(&place));
            let (pid, path) = seen(&place);
            alive::came_to(pid, &path, true);
            take(place, Ok(part));
        }
        match asked {
            Ok(_) => break,
            Err(why @ Failure::Hung { .. }) if !left.is_empty() => {
                let place = left.remove(0);
                silent.push(name(&place).into());
                remember(key(&place));
                let (pid, path) = seen(&place);
                alive::came_to(pid, &path, false);
                take(place, Err(why.into()));
            }
            Err(why) => {
                let why = NoAnswer::from(why);
                left.drain(..).for_each(|place| take(place, Err(why.clone())));
            }
        }
    }
    for place in left {
        let why = "earlier places took too long";
        take(place, Err(NoAnswer::NotEntered(why.into())));
    }
}

/// When a place is asked.
enum Turn {
    First,
    /// It did not answer the last time.
    Again,
    Not(NoAnswer),
}

fn turn(key: &(&'static str, OsString), hangs: Option<String>, now: Instant) -> Turn {
    if let Some(why) = hangs {
        return Turn::Not(NoAnswer::NotEntered(why));
    }
    match of_silent().get_mut(key).map(|back_off| back_off.is_due(now)) {
        None => Turn::First,
        Some(true) => Turn::Again,
        Some(false) => Turn::Not(NoAnswer::Deadline(LIMIT)),
    }
}

fn remember(key: (&'static str, OsString)) {
    let mut all = of_silent();
    if all.len() >= REMEMBERED {
        all.clear();
    }
    let back_off = all.entry(key).or_default();
    // The next try is after the first pause.
    back_off.is_due(Instant::now());
}

/// Why a place below a silent one is not entered.
fn above(silent: &[PathBuf], place: &Path) -> Option<NoAnswer> {
    let above = silent.iter().find(|above| place.starts_with(above))?;
    let why = format!("{}, on the way to it, does not answer", safe_path(above));
    Some(NoAnswer::NotEntered(why))
}

fn of_silent() -> std::sync::MutexGuard<'static, BTreeMap<(&'static str, OsString), BackOff>> {
    SILENT.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_silent_place_comes_last_and_at_growing_intervals() {
        let key = ("Test", OsString::from("/a"));
        let now = Instant::now();
        let in_s = |seconds| turn(&key, None, now + Duration::from_secs(seconds));
        assert!(matches!(in_s(0), Turn::First));
        remember(key.clone());
        assert!(matches!(in_s(1), Turn::Not(NoAnswer::Deadline(_))));
        assert!(matches!(in_s(3), Turn::Again) && matches!(in_s(4), Turn::Not(_)));
        // Another question may have been answered there.
        assert!(matches!(turn(&("Other", "/a".into()), None, now), Turn::First));
        let hangs = turn(&("Other", "/a".into()), Some("helper 7 hangs".into()), now);
        assert!(matches!(hangs, Turn::Not(NoAnswer::NotEntered(_))));
    }

    #[test]
    fn a_place_below_a_silent_one_is_not_entered_and_its_neighbour_is() {
        let silent = [PathBuf::from("/k")];
        let why = above(&silent, Path::new("/k/pods")).unwrap().to_string();
        assert_eq!(why, "not examined, because /k, on the way to it, does not answer");
        assert!(above(&silent, Path::new("/k2")).is_none());
    }
}
