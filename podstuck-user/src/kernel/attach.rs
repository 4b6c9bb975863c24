//! Which hook serves which call, and hanging the probes there. What is counted does not depend on
//! it.

use anyhow::{Context, Result, anyhow};
use aya::{Ebpf, programs::TracePoint};

use crate::model::call::Call;

/// Both halves of a call's probe, as syscall tracepoints.
struct Pair {
    call: Call,
    /// Suffix of the kernel's tracepoints: `umount2` is called `umount` there.
    tracepoint: &'static str,
    /// Suffix of the programs.
    program: &'static str,
}

const PAIRS: [Pair; 4] = [
    Pair { call: Call::Umount2, tracepoint: "umount", program: "umount2" },
    Pair { call: Call::Unlink, tracepoint: "unlink", program: "unlink" },
    Pair { call: Call::Unlinkat, tracepoint: "unlinkat", program: "unlinkat" },
    Pair { call: Call::Rmdir, tracepoint: "rmdir", program: "rmdir" },
];

/// Which probes are in.
#[derive(Clone, Debug, Default)]
pub struct Attached {
    /// Names of hooks, as in `tracepoint:syscalls:sys_exit_unlinkat`.
    pub hooks: Vec<String>,
    /// Calls that are covered, before the self-test.
    pub calls: Vec<Call>,
    /// Calls that are not, each with the reason.
    pub missing: Vec<(Call, String)>,
}

/// Loads and attaches all pairs by syscall tracepoints. A pair that fails is named, the others
/// stay; arm64 for example has no `unlink` and no `rmdir`.
pub fn tracepoints(ebpf: &mut Ebpf) -> Attached {
    let mut attached = Attached::default();
    let mut ready = Vec::new();
    for pair in &PAIRS {
        let loaded = ["exit", "enter"].iter().try_for_each(|side| load(ebpf, pair, side));
        match loaded {
            Ok(()) => ready.push(pair),
            Err(error) => attached.missing.push((pair.call, format!("{error:#}"))),
        }
    }
    // All are loaded before any is attached: the verifier takes its time, and calls made between
    // the two halves of a pair are not counted.
    for pair in ready {
        match attach_pair(ebpf, pair) {
            Ok(hooks) => {
                attached.hooks.extend(hooks);
                attached.calls.push(pair.call);
            }
            Err(error) => attached.missing.push((pair.call, format!("{error:#}"))),
        }
    }
    attached
}

fn program<'a>(ebpf: &'a mut Ebpf, pair: &Pair, side: &str) -> Result<&'a mut TracePoint> {
    let name = format!("{side}_{}", pair.program);
    let program =
        ebpf.program_mut(&name).ok_or_else(|| anyhow!("this build has no program `{name}`"))?;
    program.try_into().with_context(|| format!("program `{name}`"))
}

fn load(ebpf: &mut Ebpf, pair: &Pair, side: &str) -> Result<()> {
    let name = format!("{side}_{}", pair.program);
    program(ebpf, pair, side)?.load().map_err(|error| last_lines(&name, &error))
}

/// The exit first: a call that is under way then leaves an exit without entry, which is counted,
/// and not an entry without exit, which would look like a call that never returns.
fn attach_pair(ebpf: &mut Ebpf, pair: &Pair) -> Result<[String; 2]> {
    let mut hook = |side: &str| -> Result<String> {
        let event = format!("sys_{side}_{}", pair.tracepoint);
        let probe = program(ebpf, pair, side)?;
        probe
            .attach("syscalls", &event)
            .with_context(|| format!("attaching to syscalls:{event}"))?;
        Ok(format!("tracepoint:syscalls:{event}"))
    };
    Ok([hook("exit")?, hook("enter")?])
}

/// The verifier's log has hundreds of lines; its end says why.
fn last_lines(program: &str, error: &dyn std::error::Error) -> anyhow::Error {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let tail = lines[lines.len().saturating_sub(6)..].join(" | ");
    anyhow!("the kernel refused program `{program}`: {tail}")
}
