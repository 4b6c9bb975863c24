//! A command that a component has started and waits for: the words and remedies that are the same for all components.

use super::kernel_lock;
use crate::{
    command::{Process, kill},
    kernel_lock::is_proven,
    model::{chain::Link, waiting::Waiting},
    verdict::Draft,
    waits::HungCommand,
};

/// Adds what the command waits for, names the holder, and continues a stopped process at the end of the chain; returns the
/// last link, if it is another process than the command, and holds no lock of the kernel.
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
    let lock = followed.lock();
    if !is_proven(lock) {
        draft.doubt(kernel_lock::MAY_BE_RELEASED);
    }
    if let Some(stopped) = followed.stopped() {
        let process = Process::new(stopped.pid, Some(stopped.started), None);
        draft.remedy(
            kill("kill -CONT", process).so(", which is stopped and which the command waits for"),
            "low: if a debugger holds it, end the debugger first",
        );
    }
    last.filter(|_| lock.is_empty())
}

/// Adds the end of the command, or of a process that it waits for; of the thread that holds a lock of the kernel, if the
/// command sleeps for that: no signal ends such a sleep.
pub(crate) fn end(
    draft: &mut Draft,
    hung: &HungCommand<'_>,
    process: &Waiting,
    risk: &'static str,
) {
    let lock = hung.followed.lock();
    if !lock.is_empty() {
        kernel_lock::release(draft, lock);
        return;
    }
    let program = process.command.split(' ').next();
    let process = Process::new(process.pid, Some(process.started), program);
    draft.remedy(kill("kill -KILL", process).so(", which does not return"), risk);
}
