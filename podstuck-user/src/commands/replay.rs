//! `podstuck replay`: repeats the output and the exports of a run, from its recording.

use std::{io::Write, thread, time::Duration};

use super::away;
use crate::{
    cli::Replay,
    event::What,
    logging::Unwaiting,
    model::{
        path::{safe, safe_path},
        time::Monotonic,
    },
};
use crate::{
    interrupt,
    live::{
        presenter::Presenter,
        reporter::{Form, Reporter},
    },
    outcome::{Exit, Failure},
};
use podstuck_show::recording::{Ending, Reader};

/// Longest sleep, so that Ctrl-C ends a replay at once.
const NAP: Duration = Duration::from_millis(100);

/// Runs the command.
///
/// # Errors
/// Fails when the file is not a recording that this version can read.
pub fn run(mut options: Replay) -> Result<Exit, Failure> {
    away::leave([&mut options.file].into_iter().chain(options.export.iter_mut()))?;
    let usage = |error: anyhow::Error| Failure::Usage(error);
    let mut recording = Reader::open(&options.file).map_err(|error| usage(error.into()))?;
    let run = recording.run().clone();
    let export = options.export.as_deref();
    let reporter = Reporter::new(options.output, export, Form::of(run.one_answer, options.brief));
    let reporter = reporter.and_then(Reporter::of_replay).map_err(usage)?;
    let stop = interrupt::patient().map_err(Failure::CannotRun)?;
    let mut shown = run.clock.started();
    let mut presenter = Presenter::new(run, reporter).of_replay();
    let mut begun = false;
    for event in &mut recording {
        if let Some(speed) = options.speed {
            sleep(event.at.since(shown).div_f64(speed), &stop);
        }
        if stop.load(std::sync::atomic::Ordering::Relaxed) {
            break;
        }
        shown = shown.max(event.at);
        // Queries are dropped: the answers are in the recording.
        presenter.take(&event);
        // As in the run, whose first line comes after its first counts.
        if !begun && matches!(event.what, What::Counts(_)) {
            presenter.start();
            begun = true;
        }
    }
    if !begun {
        presenter.start();
    }
    let exit = presenter.end(shown, options.fail_on_loss);
    presenter.leave(|| stop.load(std::sync::atomic::Ordering::Relaxed));
    tell_ending(&options, recording.ending(), shown, &presenter);
    Ok(exit)
}

fn sleep(mut left: Duration, stop: &std::sync::atomic::AtomicBool) {
    while !left.is_zero() && !stop.load(std::sync::atomic::Ordering::Relaxed) {
        let nap = left.min(NAP);
        thread::sleep(nap);
        left -= nap;
    }
}

/// Reports on standard error what is missing.
fn tell_ending(options: &Replay, ending: Option<&Ending>, last: Monotonic, presenter: &Presenter) {
    let why = match ending {
        Some(Ending::Cut) => "the recording process was killed, or the disk was full".to_owned(),
        Some(Ending::Damaged(why)) => format!("what follows is damaged ({})", safe(why.as_bytes())),
        Some(Ending::Whole) | None => return,
    };
    let time = presenter.run().clock.at(last);
    let file = safe_path(&options.file);
    let _ = writeln!(Unwaiting, "podstuck: {file} ends at {time:.0}, before the run did: {why}");
}
