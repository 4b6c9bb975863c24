//! Attaches probes to their hooks, and detaches them.

use std::{os::fd::OwnedFd, path::Path};

use anyhow::{Context, Result, bail};
use aya::{
    Ebpf,
    programs::{
        Program, TracePoint,
        links::{FdLink, LinkError},
    },
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

/// One attached probe.
pub(super) enum Link {
    /// It can be pinned.
    Link(FdLink),
    /// A perf event. Before Linux 5.15, tracepoints and kprobes have no other.
    Event(#[expect(dead_code, reason = "its end is what counts")] Box<dyn Send>),
}

impl Link {
    fn of<T: TryInto<FdLink, Error = LinkError> + Send + 'static>(link: T) -> Result<Self> {
        if aya::features().bpf_perf_link() {
            Ok(Self::Link(link.try_into()?))
        } else {
            Ok(Self::Event(Box::new(link)))
        }
    }
}

impl Links {
    pub(super) fn add(&mut self, links: impl IntoIterator<Item = Link>) {
        self.0.extend(links);
    }

    /// Number of attached probes.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Pins all that can be pinned, by number; returns how many. After a failure, not all are attached.
    pub(super) fn pin(&mut self, directory: &Path) -> Result<u64> {
        let mut pinned = 0;
        for (number, link) in std::mem::take(&mut self.0).into_iter().enumerate() {
            self.0.push(match link {
                Link::Link(link) => {
                    pinned += 1;
                    let link = link.pin(directory.join(number.to_string()));
                    Link::Link(link.context("pinning a hook")?.into())
                }
                event @ Link::Event(_) => event,
            });
        }
        Ok(pinned)
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
            Link::of(program.take_link(link)?)?
        }
        on_function => attach_to_function(on_function, pair.function())?,
    })
}

fn attach_to_function(program: &mut Program, function: &str) -> Result<Link> {
    Ok(match program {
        Program::KProbe(program) => {
            let link = program.attach(function, 0)?;
            Link::of(program.take_link(link)?)?
        }
        // These programs were loaded for their function.
        Program::FEntry(program) => {
            let link = program.attach()?;
            Link::Link(program.take_link(link)?.into())
        }
        Program::FExit(program) => {
            let link = program.attach()?;
            Link::Link(program.take_link(link)?.into())
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
    Link::of(program.take_link(link)?)
}
