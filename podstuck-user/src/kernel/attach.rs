//! Hanging the probes in: on functions where that works, else on syscall tracepoints, for each call
//! by itself.

use std::{
    collections::{BTreeMap, HashMap},
    thread::ScopedJoinHandle,
};

use anyhow::{Context, Result, anyhow, bail};
use aya::{
    Btf, Ebpf,
    programs::{Program, ProgramError},
};
use nix::errno::Errno;

use super::{
    hooks::{Form, NATIVE, OF_32_BIT, Pair, Side},
    selftest, tracefs,
};
use crate::model::call::Call;

/// Which probes are in.
#[derive(Clone, Debug, Default)]
pub struct Attached {
    /// Names of hooks, as in `tracepoint:syscalls:sys_exit_unlinkat`.
    pub hooks: Vec<String>,
    /// Calls that are covered, and by which form.
    pub calls: Vec<(Call, Form)>,
    /// Calls that are not, each with the reason.
    pub missing: Vec<(Call, String)>,
    /// Calls that a better form of hook was tried for in vain, each with the reason.
    pub fallbacks: Vec<(Call, String)>,
    /// Ways to delete that no probe sees here, each with the reason.
    pub not_covered: Vec<String>,
}

impl Attached {
    /// `fentry`, `tracepoint`, or both where some calls are served by one and some by the other.
    pub fn backend(&self) -> &'static str {
        let has = |form| self.calls.iter().any(|(_, by)| *by == form);
        match (has(Form::Function), has(Form::Tracepoint)) {
            (true, true) => "fentry+tracepoint",
            (true, false) => "fentry",
            (false, _) => "tracepoint",
        }
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

/// Hangs all probes in, by the forms given, the best one first. A pair that fails is named, the
/// others stay; arm64 for example has no `unlink` and no `rmdir`.
pub fn all(ebpf: &mut Ebpf, forms: &[Form], has_32_bit: bool) -> Result<Attached> {
    let mut attached = Attached::default();
    let mut open: Vec<(&Pair, Vec<String>)> = NATIVE.iter().map(|p| (p, Vec::new())).collect();
    for form in forms {
        if open.is_empty() {
            break;
        }
        let pairs: Vec<&Pair> = open.iter().map(|(pair, _)| *pair).collect();
        let results = attach_form(ebpf, *form, &pairs)?;
        let mut next = Vec::new();
        for ((pair, mut reasons), result) in open.into_iter().zip(results) {
            match result {
                Ok(()) => {
                    attached.hooks.extend([Side::Enter, Side::Exit].map(|s| pair.hook(*form, s)));
                    attached.calls.push((pair.call, *form));
                    let because = reasons.into_iter().map(|why| (pair.call, why));
                    attached.fallbacks.extend(because);
                }
                Err(error) => {
                    reasons.push(format!("{error:#}"));
                    next.push((pair, reasons));
                }
            }
        }
        open = next;
    }
    attached.missing = open.into_iter().map(|(p, why)| (p.call, why.join("; "))).collect();
    if has_32_bit {
        attach_32_bit(ebpf, &mut attached);
    }
    Ok(attached)
}

/// Loads, attaches and tests pairs in one form; one result for each.
fn attach_form(ebpf: &mut Ebpf, form: Form, pairs: &[&Pair]) -> Result<Vec<Result<()>>> {
    let work = |ebpf: &mut Ebpf| {
        let results = load(ebpf, form, pairs);
        // All are loaded before any is attached: the verifier takes its time, and calls made
        // between the two halves of a pair are not counted.
        let ready = pairs.iter().zip(results);
        ready.map(|(pair, result)| result.and_then(|()| attach_pair(ebpf, form, pair))).collect()
    };
    let mut results: Vec<Result<()>> = match form {
        Form::Function => work(ebpf),
        Form::Tracepoint => tracefs::with(|| Ok(work(ebpf)))?,
    };
    let calls: Vec<Call> = pairs.iter().map(|pair| pair.call).collect();
    let seen = selftest::seen(ebpf, &calls)?;
    for ((pair, result), seen) in pairs.iter().zip(&mut results).zip(seen) {
        if result.is_ok() && !seen {
            // A tracepoint that is silent may stay: it shares a program, and no other form follows.
            if form == Form::Function {
                detach_pair(ebpf, pair);
            }
            *result = Err(anyhow!(
                "{} was attached and did not see the self-test's own call",
                pair.hook(form, Side::Exit)
            ));
        }
    }
    Ok(results)
}

/// Loads pairs in one form, at once: the verifier works on each by itself, on a CPU of its own.
fn load(ebpf: &mut Ebpf, form: Form, pairs: &[&Pair]) -> Vec<Result<()>> {
    let btf = match form {
        Form::Function => match Btf::from_sys_fs().context("reading the kernel's types") {
            Ok(btf) => Some(btf),
            Err(error) => return pairs.iter().map(|_| Err(anyhow!("{error:#}"))).collect(),
        },
        Form::Tracepoint => None,
    };
    // A program that several pairs share is loaded once.
    let mut jobs: BTreeMap<String, &Pair> = BTreeMap::new();
    for pair in pairs {
        jobs.extend([Side::Exit, Side::Enter].map(|side| (pair.program(form, side), *pair)));
    }
    let btf = btf.as_ref();
    let loaded: HashMap<String, Result<(), String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = ebpf
            .programs_mut()
            .filter_map(|(name, program)| Some((name.to_owned(), program, *jobs.get(name)?)))
            .map(|(name, program, pair)| {
                let load = move || load_one(program, btf, pair).map_err(|e| format!("{e:#}"));
                (name, scope.spawn(load))
            })
            .collect();
        let died = || Err("the thread that loads it died".to_owned());
        let join = |(name, thread): (_, ScopedJoinHandle<'_, _>)| {
            (name, thread.join().unwrap_or_else(|_| died()))
        };
        threads.into_iter().map(join).collect()
    });
    let result = |pair: &Pair, side| match loaded.get(&pair.program(form, side)) {
        Some(Ok(())) => Ok(()),
        Some(Err(why)) => Err(anyhow!("{why}")),
        None => Err(anyhow!("this build has no program `{}`", pair.program(form, side))),
    };
    pairs
        .iter()
        .map(|pair| result(pair, Side::Exit).and_then(|()| result(pair, Side::Enter)))
        .collect()
}

fn load_one(program: &mut Program, btf: Option<&Btf>, pair: &Pair) -> Result<()> {
    let loaded = match (program, btf) {
        (Program::TracePoint(program), _) => program.load(),
        (Program::FEntry(program), Some(btf)) => program.load(pair.function(), btf),
        (Program::FExit(program), Some(btf)) => program.load(pair.function(), btf),
        (other, _) => bail!("a program of type {:?} has no place here", other.prog_type()),
    };
    loaded.map_err(|error| refusal(&error))
}

fn program<'a>(ebpf: &'a mut Ebpf, form: Form, pair: &Pair, side: Side) -> Result<&'a mut Program> {
    let name = pair.program(form, side);
    ebpf.program_mut(&name).with_context(|| format!("this build has no program `{name}`"))
}

/// The exit first: a call that is under way then leaves an exit without entry, which is counted,
/// and not an entry without exit, which would look like a call that never returns.
fn attach_pair(ebpf: &mut Ebpf, form: Form, pair: &Pair) -> Result<()> {
    for side in [Side::Exit, Side::Enter] {
        let hook = pair.hook(form, side);
        attach_one(program(ebpf, form, pair, side)?, pair, side)
            .with_context(|| format!("attaching to {hook}"))?;
    }
    Ok(())
}

fn attach_one(program: &mut Program, pair: &Pair, side: Side) -> Result<()> {
    match program {
        Program::TracePoint(program) => {
            let event = pair.event(side).context("there is no such tracepoint")?;
            program.attach("syscalls", &event).map(drop)?;
        }
        Program::FEntry(program) => program.attach().map(drop)?,
        Program::FExit(program) => program.attach().map(drop)?,
        other => return Err(anyhow!("a program of type {:?}", other.prog_type())),
    }
    Ok(())
}

/// Takes a pair of programs on functions out again, as far as it is in.
fn detach_pair(ebpf: &mut Ebpf, pair: &Pair) {
    for side in [Side::Enter, Side::Exit] {
        let unloaded = match program(ebpf, Form::Function, pair, side) {
            Ok(Program::FEntry(program)) => program.unload(),
            Ok(Program::FExit(program)) => program.unload(),
            _ => Ok(()),
        };
        if let Err(error) = unloaded {
            tracing::warn!("taking out {}: {error:#}", pair.hook(Form::Function, side));
        }
    }
}

/// The 32-bit interface of an x86-64 kernel, which only functions show. The self-test does not try
/// it: where it is switched off, whoever uses it is killed.
fn attach_32_bit(ebpf: &mut Ebpf, attached: &mut Attached) {
    const WHAT: &str = "calls of 32-bit programs";
    if attached.calls.iter().all(|(_, form)| *form == Form::Tracepoint) {
        attached.not_covered.push(format!("{WHAT}: syscall tracepoints do not show them"));
        return;
    }
    let pairs: Vec<&Pair> = OF_32_BIT.iter().collect();
    let results = load(ebpf, Form::Function, &pairs);
    for (pair, result) in pairs.iter().zip(results) {
        match result.and_then(|()| attach_pair(ebpf, Form::Function, pair)) {
            Ok(()) => {
                let hooks = [Side::Enter, Side::Exit].map(|s| pair.hook(Form::Function, s));
                attached.hooks.extend(hooks);
            }
            Err(error) => {
                attached.not_covered.push(format!("{WHAT}, {}: {error:#}", pair.function()))
            }
        }
    }
}

/// Why a program was refused. The verifier's log has hundreds of lines; its end says why.
fn refusal(error: &ProgramError) -> anyhow::Error {
    if let ProgramError::LoadError { io_error, verifier_log } = error {
        if io_error.raw_os_error() == Some(Errno::EPERM as i32) {
            return anyhow!(
                "this kernel refuses the program (EPERM): it is locked down, or a security policy \
                 forbids programs of this kind"
            );
        }
        let log = verifier_log.to_string();
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        let tail = lines[lines.len().saturating_sub(6)..].join(" | ");
        return anyhow!("this kernel refuses the program ({io_error}): {tail}");
    }
    anyhow!("loading the program: {error}")
}
