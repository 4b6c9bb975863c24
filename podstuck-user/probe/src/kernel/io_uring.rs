//! Deletions by io_uring: counted where its function can be hooked, else noticed by its tracepoint.

use anyhow::Result;
use aya::Ebpf;

use super::{
    attach::{Attached, put_in},
    hooks::{self, Form},
    layout::IoUring,
    links::{self, Link},
    programs::Loaded,
    tracefs,
};

/// How deletions by io_uring are seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Counted as any other deletion: by outcome, target and process.
    Counted,
    /// Only noticed to happen, for this reason.
    Noticed(String),
}

const EVENT: &str = "io_uring_queue_async_work";
/// The name that tracers give the tracepoint's hook.
pub const TRACEPOINT: &str = "tracepoint:io_uring:io_uring_queue_async_work";

/// Attaches what `shown` allows. `by_function` says whether functions can be hooked here.
///
/// The self-test does not try it: io_uring may be turned off, and costs memory where it is not.
pub(super) fn attach(
    ebpf: &mut Ebpf,
    functions: &Loaded,
    attached: &mut Attached,
    shown: IoUring,
    by_function: bool,
) -> Result<Vec<Link>> {
    let why = if !by_function {
        "only fentry can count them".to_owned()
    } else if !shown.countable {
        "this kernel's requests cannot be read at their end".to_owned()
    } else {
        let pairs = hooks::io_uring();
        let results = put_in(ebpf, functions, Form::Function, &pairs)?;
        match results.into_iter().collect::<Result<Vec<_>>>() {
            Ok(links) => {
                for pair in pairs {
                    attached.add(Form::Function, pair);
                }
                attached.io_uring = Some(Coverage::Counted);
                return Ok(links.into_iter().flatten().collect());
            }
            Err(error) => format!("{error:#}"),
        }
    };
    let noticed = if shown.noticeable {
        tracefs::with(|| queued(ebpf)).map_err(|error| format!("{why}; {TRACEPOINT}: {error:#}"))
    } else {
        Err(format!("{why}, and no tracepoint reports them"))
    };
    Ok(match noticed {
        Ok(link) => {
            attached.hooks.push(TRACEPOINT.to_owned());
            attached.io_uring = Some(Coverage::Noticed(why));
            vec![link]
        }
        Err(why) => {
            attached.not_covered.push(format!("deletions by io_uring: {why}"));
            Vec::new()
        }
    })
}

/// Watches the requests that io_uring hands to its workers, among which are all deletions.
fn queued(ebpf: &mut Ebpf) -> Result<Link> {
    links::attach_alone(ebpf, "io_uring_queued", "io_uring", EVENT)
}
