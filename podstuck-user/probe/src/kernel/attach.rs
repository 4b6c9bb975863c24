//! Attaches the probes: on functions where that works, else on syscall tracepoints, for each call separately.

use std::path::Path;

use anyhow::{Result, anyhow};
use aya::Ebpf;

use super::{
    directories::{self, Directories},
    hooks::{self, DirectoryHook, Form, Pair, Side},
    io_uring,
    layout::Layout,
    links::{self, Link, Links},
    programs::{self, Loaded},
    selftest, tracefs,
};
use podstuck_model::call::Call;

/// Where the kernel describes how to create kprobes.
const KPROBES: &str = "/sys/bus/event_source/devices/kprobe";

/// Which probes are attached.
#[derive(Clone, Debug, Default)]
pub struct Attached {
    /// Names of hooks, as in `tracepoint:syscalls:sys_exit_unlinkat`.
    pub hooks: Vec<String>,
    /// Covered calls, and the form that covers each.
    pub calls: Vec<(Call, Form)>,
    /// Calls that are not covered, each with the reason.
    pub missing: Vec<(Call, String)>,
    /// Calls for which a better form of hook failed, each with the reason.
    pub fallbacks: Vec<(Call, Form, String)>,
    /// Ways to delete that no probe sees here, each with the reason.
    pub not_covered: Vec<String>,
    /// How deletions by io_uring are seen; `None` when there are none, or no probe sees them.
    pub io_uring: Option<io_uring::Coverage>,
    /// Whether the execution of unmount programs is seen.
    pub sees_exec: bool,
    /// Whether the kernel reports which directory it has resolved for a deletion.
    pub directories: Directories,
}

impl Attached {
    /// The forms in use, as in `fentry` and `kprobe+tracepoint`.
    pub fn backend(&self) -> String {
        let names: Vec<&str> =
            Form::ALL.into_iter().filter(|form| self.has(*form)).map(Form::name).collect();
        names.join("+")
    }

    /// Why this form failed: one line for each reason.
    pub fn in_vain(&self, form: Form) -> Vec<String> {
        let of_form = self.fallbacks.iter().filter(|(_, by, _)| *by == form);
        by_reason(&of_form.map(|(call, _, why)| (*call, why.clone())).collect::<Vec<_>>())
    }

    /// Whether any call is covered by this form.
    pub fn has(&self, form: Form) -> bool {
        self.calls.iter().any(|(_, by)| *by == form)
    }

    /// Whether any call is covered by another form.
    pub(super) fn has_any_but(&self, form: Form) -> bool {
        self.calls.iter().any(|(_, by)| *by != form)
    }

    pub(super) fn add(&mut self, form: Form, pair: Pair) {
        self.add_hooks(form, pair);
        self.calls.extend(pair.call().map(|call| (call, form)));
    }

    fn add_hooks(&mut self, form: Form, pair: Pair) {
        self.hooks.extend([Side::Enter, Side::Exit].map(|side| pair.hook(form, side)));
    }
}

/// One line for each reason, as in `unlink, rmdir: there is no such tracepoint`.
pub fn by_reason(calls: &[(Call, String)]) -> Vec<String> {
    let mut lines: Vec<(&str, String)> = Vec::new();
    for (call, why) in calls {
        match lines.iter_mut().find(|(reason, _)| reason == why) {
            Some((_, names)) => {
                names.push_str(", ");
                names.push_str(call.name());
            }
            None => lines.push((why, call.name().to_owned())),
        }
    }
    lines.into_iter().map(|(why, names)| format!("{names}: {why}")).collect()
}

/// Loads the programs on functions, if that is one of the forms.
pub(super) fn load_functions(ebpf: &mut Ebpf, forms: &[Form], layout: &Layout) -> Loaded {
    if forms.contains(&Form::Function) {
        let alone = directories::hooks(layout);
        programs::load_functions(ebpf, &hooks::native(), &more_functions(layout), alone)
    } else {
        Loaded::default()
    }
}

/// Attaches all probes, by the forms given, the best one first. A pair that fails is named, the others stay. Programs
/// that stop half-way cannot be tested.
pub(super) fn all(
    ebpf: &mut Ebpf,
    functions: Loaded,
    forms: &[Form],
    layout: &Layout,
    is_tested: bool,
) -> Result<(Attached, Links)> {
    let (mut attached, mut links) = (Attached::default(), Links::default());
    let mut open: Vec<(Pair, Vec<(Form, String)>)> =
        hooks::native().into_iter().map(|pair| (pair, Vec::new())).collect();
    for form in forms {
        if open.is_empty() {
            break;
        }
        let pairs: Vec<Pair> = open.iter().map(|(pair, _)| *pair).collect();
        let results = attach_form(ebpf, &functions, *form, &pairs, is_tested)?;
        let mut next = Vec::new();
        for ((pair, mut reasons), result) in open.into_iter().zip(results) {
            match result {
                Ok(both) => {
                    links.add(both);
                    attached.add(*form, pair);
                    let because =
                        reasons.into_iter().filter_map(|(by, why)| Some((pair.call()?, by, why)));
                    attached.fallbacks.extend(because);
                }
                Err(error) => {
                    reasons.push((*form, format!("{error:#}")));
                    next.push((pair, reasons));
                }
            }
        }
        open = next;
    }
    let missing = open.into_iter().filter_map(|(pair, why)| {
        let why: Vec<String> = why.into_iter().map(|(_, why)| why).collect();
        Some((pair.call()?, why.join("; ")))
    });
    attached.missing = missing.collect();
    let by_function = attached.has(Form::Function);
    let form = Form::ALL.into_iter().find(|form| attached.has(*form)).unwrap_or(Form::Tracepoint);
    let what = "trees renamed before they are deleted are shown by their new path";
    links.add(attach_more(ebpf, &functions, &mut attached, form, &hooks::renames(), what)?);
    if layout.has_32_bit && form != Form::Tracepoint {
        let what = "calls of 32-bit programs";
        links.add(attach_more(ebpf, &functions, &mut attached, form, &hooks::of_32_bit(), what)?);
    } else if layout.has_32_bit {
        let why = "calls of 32-bit programs: syscall tracepoints do not show them";
        attached.not_covered.push(why.into());
    }
    if let Some(shown) = layout.io_uring {
        links.add(io_uring::attach(ebpf, &functions, &mut attached, shown, by_function)?);
    }
    if form != Form::Tracepoint {
        match directories::attach(ebpf, &functions, form, layout) {
            Ok(attached_links) => {
                links.add(attached_links);
                attached.directories = Directories::Reported(form);
                attached.hooks.extend(DirectoryHook::ALL.map(|hook| hook.hook(form)));
            }
            Err(error) => attached.directories = Directories::Unknown(format!("{error:#}")),
        }
    }
    match tracefs::with(|| links::attach_exec(ebpf)) {
        Ok(link) => {
            links.add([link]);
            attached.sees_exec = true;
        }
        Err(error) => attached.not_covered.push(format!(
            "unmounting programs that hang before umount2 are noticed seconds later: {error:#}"
        )),
    }
    Ok((attached, links))
}

/// Attaches optional programs; `without` says what is lost where one fails.
///
/// The self-test does not try these. A 32-bit call kills its caller where the kernel has that interface turned off.
fn attach_more(
    ebpf: &mut Ebpf,
    functions: &Loaded,
    attached: &mut Attached,
    form: Form,
    pairs: &[Pair],
    without: &str,
) -> Result<Vec<Link>> {
    let mut links = Vec::new();
    for (pair, result) in pairs.iter().zip(put_in(ebpf, functions, form, pairs)?) {
        match result {
            Ok(both) => {
                links.extend(both);
                attached.add_hooks(form, *pair);
            }
            Err(error) => {
                let hook = pair.hook(form, Side::Exit);
                attached.not_covered.push(format!("{without}: {hook}: {error:#}"));
            }
        }
    }
    Ok(links)
}

/// Functions with optional programs.
fn more_functions(layout: &Layout) -> Vec<Pair> {
    let mut more = hooks::renames();
    if layout.has_32_bit {
        more.extend(hooks::of_32_bit());
    }
    if layout.io_uring.is_some_and(|shown| shown.countable) {
        more.extend(hooks::io_uring());
    }
    more
}

/// Attaches pairs in one form; one result for each. Programs on functions are loaded already.
pub(super) fn put_in(
    ebpf: &mut Ebpf,
    functions: &Loaded,
    form: Form,
    pairs: &[Pair],
) -> Result<Vec<Result<[Link; 2]>>> {
    // All are loaded before any is attached: the verifier takes time, and calls made between the two halves of a pair
    // are not counted.
    let attach = |ebpf: &mut Ebpf, loaded: &Loaded| {
        let one = |pair: &Pair| {
            loaded.pair(form, *pair).and_then(|()| links::attach_pair(ebpf, form, *pair))
        };
        pairs.iter().map(one).collect()
    };
    match form {
        Form::Function => Ok(attach(ebpf, functions)),
        Form::Kprobe if !Path::new(KPROBES).exists() => Ok(pairs
            .iter()
            .map(|_| {
                Err(anyhow!(
                    "{KPROBES} does not exist: this kernel was built without CONFIG_KPROBE_EVENTS"
                ))
            })
            .collect()),
        Form::Kprobe => {
            let loaded = programs::load_untyped(ebpf, form, pairs);
            Ok(attach(ebpf, &loaded))
        }
        Form::Tracepoint => {
            let loaded = programs::load_untyped(ebpf, form, pairs);
            tracefs::with(|| Ok(attach(ebpf, &loaded)))
        }
    }
}

/// Loads, attaches and tests pairs in one form; one result for each.
fn attach_form(
    ebpf: &mut Ebpf,
    functions: &Loaded,
    form: Form,
    pairs: &[Pair],
    is_tested: bool,
) -> Result<Vec<Result<[Link; 2]>>> {
    let mut results = put_in(ebpf, functions, form, pairs)?;
    if !is_tested {
        return Ok(results);
    }
    let calls: Vec<Call> = pairs.iter().filter_map(Pair::call).collect();
    let seen = selftest::seen(ebpf, &calls)?;
    for ((pair, result), seen) in pairs.iter().zip(&mut results).zip(seen) {
        if result.is_ok() && !seen {
            *result = Err(anyhow!(
                "{} was attached and did not see the self-test's own call",
                pair.hook(form, Side::Exit)
            ));
        }
    }
    Ok(results)
}
