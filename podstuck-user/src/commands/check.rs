//! The kernel checks of `doctor`, and one line of its report.

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Backend;
use crate::live::setup;
use podstuck_probe::kernel::{
    attach::{Attached, by_reason},
    directories::Directories,
    hooks::{DirectoryHook, Form},
    io_uring::{Coverage, TRACEPOINT},
    layout::Layout,
    load, memory,
    obstacle::{self, Obstacle},
};

/// One line of the report.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Check {
    pub(super) name: &'static str,
    pub(super) ok: bool,
    /// The result.
    pub(super) found: String,
    /// What is lost without it, if it is missing.
    pub(super) lost: Option<&'static str>,
}

impl Check {
    /// `lost` is reported only if the check fails.
    pub(super) fn new(
        name: &'static str,
        ok: bool,
        found: impl Into<String>,
        lost: &'static str,
    ) -> Self {
        Self { name, ok, found: found.into(), lost: (!ok).then_some(lost) }
    }
}

/// Conditions that keep probes from working.
pub(super) fn obstacles(found: &Result<(), Obstacle>) -> [Check; 2] {
    let check = |name, obstacle, well: String| {
        let why = found.as_ref().err().filter(|why| **why == obstacle);
        let text = why.map_or(well, ToString::to_string);
        Check::new(name, why.is_none(), text, "nothing can be traced")
    };
    let lockdown = obstacle::lockdown();
    let lockdown = lockdown.unwrap_or_else(|| "not known: securityfs is not mounted".into());
    [
        check("lockdown", Obstacle::Confidentiality, lockdown),
        check("process ids", Obstacle::PidNamespace, "those of the host".into()),
    ]
}

/// Loads, attaches and tests the probes, and removes them again.
pub(super) fn probes(layout: &Layout) -> Vec<Check> {
    let config = setup::config(u64::MAX, 0, 0);
    let (attached, memory) = match load::load(layout, &config, setup::forms(Backend::Auto), false) {
        Ok(probes) => (probes.attached.clone(), memory::of(&probes.ebpf)),
        Err(error) => {
            return vec![Check::new(
                "probes",
                false,
                format!("{error:#}"),
                "nothing can be traced",
            )];
        }
    };
    let Attached { calls, missing, not_covered, directories, .. } = &attached;
    let mut checks = Vec::new();
    for (form, name) in [
        (Form::Function, "fentry"),
        (Form::Kprobe, "kprobes"),
        (Form::Tracepoint, "syscall tracepoints"),
    ] {
        let by_form = calls.iter().filter(|(_, by)| *by == form);
        let names: Vec<&str> = by_form.map(|(call, _)| call.name()).collect();
        if !names.is_empty() {
            let found = format!("{} by {name}, each saw a test call", names.join(", "));
            checks.push(Check::new("probes", true, found, ""));
        }
    }
    if calls.is_empty() {
        checks.push(Check::new("probes", false, "none could be attached", "nothing can be traced"));
    }
    let lost = if attached.has(Form::Tracepoint) {
        "no data; each system call on the node takes longer while podstuck watches"
    } else {
        "outcomes of calls, where more run at once than the kernel has kretprobe instances for"
    };
    for form in Form::ALL {
        let in_vain = attached.in_vain(form).into_iter();
        checks.extend(in_vain.map(|why| Check::new(form.name(), false, why, lost)));
    }
    checks.extend(attached.io_uring.iter().map(|seen| match seen {
        Coverage::Counted => {
            Check::new("io_uring", true, "deletions counted by fentry:io_unlinkat", "")
        }
        Coverage::Noticed(why) => {
            let found = format!("deletions noticed by {TRACEPOINT}: {why}");
            Check::new("io_uring", false, found, "outcome and target of these deletions")
        }
    }));
    checks.push(match directories {
        Directories::Reported(form) => {
            let hooks = DirectoryHook::ALL.map(|hook| hook.hook(*form)).join(", ");
            Check::new("directories", true, format!("reported by {hooks}"), "")
        }
        Directories::Unknown(why) => Check::new(
            "directories",
            false,
            format!("not reported: {why}"),
            "where a path with directories in it leads: it counts as written, once podstuck has read its \
             mount namespace",
        ),
    });
    checks.extend(
        not_covered
            .iter()
            .map(|what| Check::new("not covered", false, what, "these deletions are not seen")),
    );
    checks.extend(
        by_reason(missing)
            .into_iter()
            .map(|why| Check::new("probe", false, why, "calls of this kind are not seen")),
    );
    checks.push(match memory {
        Ok(memory) => Check::new("memory of the probes", true, memory.to_string(), ""),
        Err(why) => Check::new("memory of the probes", false, format!("{why:#}"), ""),
    });
    checks
}
