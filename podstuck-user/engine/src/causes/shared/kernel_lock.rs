//! The thread that holds a kernel lock for which a thread in question sleeps.

use crate::{
    command::{Process, Step, kill},
    kernel_lock::{is_proven, waits_for, words},
    model::{evidence::Source, kernel_lock::LockHolder, path::safe},
    verdict::Draft,
};

/// A lock of which only the last reader is known.
pub(crate) const MAY_BE_RELEASED: &str = "whether that thread still holds the lock: readers share it, and it names the last \
    one that has taken it";

/// Adds the holders as facts, and the last one as who must act.
pub(crate) fn tell(draft: &mut Draft, lock: &[LockHolder]) {
    let Some(last) = lock.last() else { return };
    let mut who = "the thread".to_owned();
    for holder in lock {
        draft.fact(format!("{who} waits for {}", words(holder)), Source::Probe);
        who = holder.who().to_string();
    }
    let LockHolder { thread, state, .. } = last;
    let waits = waits_for(last).map(|what| format!(", and waits for {what}")).unwrap_or_default();
    let place = format!("/proc/{}/task/{}", thread.pid, thread.tid);
    draft.fact(format!("{who} is in state {state}{waits}"), Source::proc(format!("{place}/wchan")));
    if !last.stack.is_empty() {
        let stack = last.stack.iter().map(|it| safe(it.as_bytes())).collect::<Vec<_>>().join(" < ");
        draft.fact(
            format!("the kernel stack of {who}: {stack}"),
            Source::proc(format!("{place}/stack")),
        );
    }
    draft.held_by(last.who());
    draft.must = Some("release a lock of the kernel");
    draft.waits_for = waits_for(last);
    if !is_proven(lock) {
        draft.doubt(MAY_BE_RELEASED);
    }
}

/// Adds what makes the last holder release the lock.
pub(crate) fn release(draft: &mut Draft, lock: &[LockHolder]) {
    let Some(last) = lock.last() else { return };
    let LockHolder { thread, started, comm, is_kernel, .. } = last;
    let who = last.who();
    if !is_kernel {
        draft.remedy(
            kill("kill -9", Process::new(thread.pid, Some(*started), Some(comm)))
                .so(", which holds a lock of the kernel"),
            "its work is lost: first check whether it is needed, and restart a daemon of the node by its unit instead. In \
             state D, it ends only when its own wait does",
        );
    }
    if let Some(what) = waits_for(last) {
        let act = format!("make this wait end: {who} waits for {what}, and then releases the lock");
        draft.advice(act, "none");
    }
    draft.remedy(
        Step::new(
            format!("show where in the kernel {who} waits"),
            format!("cat /proc/{}/task/{}/stack", thread.pid, thread.tid),
        ),
        "none",
    );
}
