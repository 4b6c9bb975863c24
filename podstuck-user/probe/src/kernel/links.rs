//! Attaches probes to their hooks, and detaches them.

use std::os::fd::OwnedFd;

use anyhow::{Context, Result, bail};
use aya::{
    Ebpf,
    programs::{Program, TracePoint},
};
use procfs::process::{FDTarget, Process};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use super::{
    hooks::{DirectoryHook, Form, Pair, Side},
    selinux,
};

/// Keeps the probes attached.
#[derive(Default)]
pub struct Links(Vec<Link>);

pub(super) type Link = Box<dyn Send>;

impl Links {
    pub(super) fn add(&mut self, links: impl IntoIterator<Item = Link>) {
        self.0.extend(links);
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        podstuck_confine::fork_server::drop_at_once(self.0.drain(..));
    }
}

/// Duplicates the descriptors of all hooks that this process's probes are on: aya keeps its own private.
///
/// # Errors
/// Fails when `/proc` does not list them, or they cannot be duplicated (before Linux 5.6).
pub fn descriptors() -> Result<Vec<OwnedFd>> {
    // Before 5.15, a tracepoint's hook is a perf event, and no link.
    let is_hook = |target: &FDTarget| match target {
        FDTarget::AnonInode(kind) => {
            matches!(kind.trim_matches(['[', ']']), "bpf_link" | "perf_event")
        }
        _ => false,
    };
    // The list first: it would include the duplicates.
    let open: Vec<_> = Process::myself()?.fd()?.collect::<Result<_, _>>()?;
    let own = pidfd_open(getpid(), PidfdFlags::empty()).context("pidfd_open")?;
    let again = |number| pidfd_getfd(&own, number, PidfdGetfdFlags::empty());
    let hooks = open.iter().filter(|file| is_hook(&file.target));
    hooks.map(|file| again(file.fd).context("pidfd_getfd")).collect()
}

fn program(ebpf: &mut Ebpf, form: Form, pair: Pair, side: Side) -> Result<&mut Program> {
    let name = pair.program(form, side);
    ebpf.program_mut(&name).with_context(|| format!("this build has no program `{name}`"))
}

/// The exit first: a call in flight then leaves an exit without entry, which is counted, and not an entry without
/// exit, which would look like a call that never returns.
pub(super) fn attach_pair(ebpf: &mut Ebpf, form: Form, pair: Pair) -> Result<[Link; 2]> {
    let mut attach = |side| {
        attach_one(program(ebpf, form, pair, side)?, pair, side)
            .map_err(selinux::explain)
            .with_context(|| format!("attaching to {}", pair.hook(form, side)))
    };
    Ok([attach(Side::Exit)?, attach(Side::Enter)?])
}

fn attach_one(program: &mut Program, pair: Pair, side: Side) -> Result<Link> {
    Ok(match program {
        Program::TracePoint(program) => {
            let event = pair.event(side).context("there is no such tracepoint")?;
            let link = program.attach("syscalls", &event)?;
            Box::new(program.take_link(link)?)
        }
        on_function => attach_to_function(on_function, pair.function())?,
    })
}

fn attach_to_function(program: &mut Program, function: &str) -> Result<Link> {
    Ok(match program {
        Program::KProbe(program) => {
            let link = program.attach(function, 0)?;
            Box::new(program.take_link(link)?)
        }
        // These programs were loaded for their function.
        Program::FEntry(program) => {
            let link = program.attach()?;
            Box::new(program.take_link(link)?)
        }
        Program::FExit(program) => {
            let link = program.attach()?;
            Box::new(program.take_link(link)?)
        }
        other => bail!("a program of type {:?} has no place here", other.prog_type()),
    })
}

/// Attaches the program that records the directories that the kernel resolves.
pub(super) fn attach_directory(ebpf: &mut Ebpf, form: Form, hook: DirectoryHook) -> Result<Link> {
    let program =
        ebpf.program_mut(&hook.program(form)).context("this build has no such program")?;
    attach_to_function(program, hook.function())
        .with_context(|| format!("attaching to {}", hook.hook(form)))
}

/// Attaches the program that watches for the execution of unmount programs.
pub(super) fn attach_exec(ebpf: &mut Ebpf) -> Result<Link> {
    attach_alone(ebpf, "executed", "sched", "sched_process_exec")
}

/// Attaches a program on a tracepoint that has no other half.
pub(super) fn attach_alone(
    ebpf: &mut Ebpf,
    program: &str,
    category: &str,
    event: &str,
) -> Result<Link> {
    let program = ebpf.program_mut(program).context("this build has no such program")?;
    let program: &mut TracePoint = program.try_into()?;
    program.load()?;
    let link = program.attach(category, event).map_err(|error| selinux::explain(error.into()))?;
    Ok(Box::new(program.take_link(link)?))
}
