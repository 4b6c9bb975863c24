//! A command that a component has started and waits for: the words and remedies that are the same for all components.

use crate::{
    command::{Process, kill},
    model::{chain::Link, waiting::Waiting},
    verdict::Draft,
    waits::HungCommand,
};

/// Adds what the command waits for, names the holder, and continues a stopped process at the end of the chain; returns the
/// last link, if it is another process than the command.
pub(crate) fn tell<'a>(draft: &mut Draft, hung: &'a HungCommand<'_>) -> Option<&'a Link> {
    let HungCommand { command, followed, .. } = hung;
    let (own, links) = (command.who(), &followed.links);
    draft.links(links);
    let last = links.last().filter(|last| !last.who.is(&own) && links.len() > 1);
    draft.held_by(match last {
        Some(last) => own.and(&format!(", which waits for {}", last.who)),
        None => own,
    });
    draft.must = Some("return");
    if let Some(stopped) = followed.stopped() {
        let process = Process::new(stopped.pid, Some(stopped.started), None);
        draft.remedy(
            kill("kill -CONT", process).so(", which is stopped and which the command waits for"),
            "low: if a debugger holds it, end the debugger first",
        );
    }
    last
}

/// Adds the end of the command, or of a process that it waits for.
pub(crate) fn end(draft: &mut Draft, process: &Waiting, risk: &'static str) {
    let program = process.command.split(' ').next();
    let process = Process::new(process.pid, Some(process.started), program);
    draft.remedy(kill("kill -KILL", process).so(", which does not return"), risk);
}
