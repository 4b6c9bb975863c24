//! Loads programs, which the verifier checks.

use std::{
    collections::{BTreeMap, HashMap},
    thread::ScopedJoinHandle,
};

use anyhow::{Context, Result, anyhow, bail};
use aya::{
    Btf, Ebpf,
    maps::ProgramArray,
    programs::{Program, ProgramError},
};
use nix::errno::Errno;

use super::{
    hooks::{DirectoryHook, Form, Pair, Rest, Side},
    obstacle::{Obstacle, is_confidentiality},
};

/// The result of loading, by name of the program.
#[derive(Default)]
pub(super) struct Loaded(HashMap<String, Result<(), String>>);

impl Loaded {
    /// Fails unless all programs of a pair are loaded.
    pub(super) fn pair(&self, form: Form, pair: Pair) -> Result<()> {
        self.program(&pair.program(form, Side::Exit))?;
        self.program(&pair.program(form, Side::Enter))?;
        if let Some(rest) = pair.rest(form) {
            self.program(rest.program).context("what follows a return")?;
        }
        Ok(())
    }

    /// Fails unless the program of this hook is loaded.
    pub(super) fn directory(&self, form: Form, hook: DirectoryHook) -> Result<()> {
        self.program(&hook.program(form))
    }

    /// Whether any program was loaded.
    pub(super) fn any(&self) -> bool {
        self.0.values().any(Result::is_ok)
    }

    fn program(&self, name: &str) -> Result<()> {
        match self.0.get(name) {
            Some(Ok(())) => Ok(()),
            Some(Err(why)) => Err(anyhow!("{why}")),
            None => Err(anyhow!("this build has no program `{name}`")),
        }
    }
}

/// Loads the programs on functions. The kernel's types, which these programs refer to, take ten megabytes and more:
/// they are read once and not kept.
pub(super) fn load_functions(
    ebpf: &mut Ebpf,
    pairs: &[Pair],
    more: &[Pair],
    alone: &[DirectoryHook],
) -> Loaded {
    let btf = match Btf::from_sys_fs() {
        Ok(btf) => btf,
        Err(error) => {
            let why = format!("reading the kernel's types: {error}");
            let names = jobs(Form::Function, pairs).into_keys();
            return Loaded(names.map(|name| (name, Err(why.clone()))).collect());
        }
    };
    let mut loaded = load(ebpf, &jobs(Form::Function, pairs), Some(&btf));
    if pairs.iter().any(|pair| loaded.pair(Form::Function, *pair).is_ok()) {
        let mut jobs = jobs(Form::Function, more);
        jobs.extend(directory_jobs(Form::Function, alone));
        loaded.0.extend(load(ebpf, &jobs, Some(&btf)).0);
    }
    loaded
}

/// Fails unless the kernel lets programs give addresses a type: it has the function in its types, and may still
/// refuse it to programs that are not compiled.
pub(super) fn cast(ebpf: &mut Ebpf) -> Result<()> {
    const PROGRAM: &str = "cast_probe";
    let program = ebpf
        .program_mut(PROGRAM)
        .with_context(|| format!("this build has no program `{PROGRAM}`"))?;
    load_one(program, None, "")
}

/// Loads the programs that refer to none of the kernel's types: those of the other forms.
pub(super) fn load_untyped(ebpf: &mut Ebpf, form: Form, pairs: &[Pair]) -> Loaded {
    load(ebpf, &jobs(form, pairs), None)
}

/// Loads the kprobes that report directories.
pub(super) fn load_directory_kprobes(ebpf: &mut Ebpf, hooks: &[DirectoryHook]) -> Loaded {
    load(ebpf, &directory_jobs(Form::Kprobe, hooks).collect(), None)
}

fn directory_jobs(
    form: Form,
    hooks: &[DirectoryHook],
) -> impl Iterator<Item = (String, &'static str)> {
    hooks.iter().map(move |hook| (hook.program(form), hook.function()))
}

/// Programs to load, each with the function that it is on, if any: the first, where several share it.
fn jobs(form: Form, pairs: &[Pair]) -> BTreeMap<String, &'static str> {
    let mut jobs = BTreeMap::new();
    for pair in pairs {
        for side in [Side::Exit, Side::Enter] {
            jobs.entry(pair.program(form, side)).or_insert(pair.function());
        }
        // If it refers to the type of the function, all functions have the same type.
        if let Some(rest) = pair.rest(form) {
            jobs.entry(rest.program.to_owned()).or_insert(pair.function());
        }
    }
    jobs
}

/// Loads programs in parallel: the verifier works on each separately, on a CPU of its own.
fn load(ebpf: &mut Ebpf, jobs: &BTreeMap<String, &'static str>, btf: Option<&Btf>) -> Loaded {
    let mut loaded: HashMap<String, Result<(), String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = ebpf
            .programs_mut()
            .filter_map(|(name, program)| Some((name.to_owned(), program, *jobs.get(name)?)))
            .map(|(name, program, function)| {
                let load = move || load_one(program, btf, function).map_err(|e| format!("{e:#}"));
                (name, scope.spawn(load))
            })
            .collect();
        let died = || Err("the thread that loads it has ended".to_owned());
        let join = |(name, thread): (_, ScopedJoinHandle<'_, _>)| {
            (name, thread.join().unwrap_or_else(|_| died()))
        };
        threads.into_iter().map(join).collect()
    });
    for rest in Rest::ALL {
        if let Some(entered @ Ok(())) = loaded.get_mut(rest.program) {
            *entered = enter(ebpf, rest).map_err(|error| format!("{error:#}"));
        }
    }
    Loaded(loaded)
}

/// Enters the program that the programs at the ends of system calls' functions continue with.
fn enter(ebpf: &mut Ebpf, Rest { program, table }: Rest) -> Result<()> {
    let program = ebpf.program(program).context("this build has no such program")?;
    let program = program.fd()?.try_clone().context("copying its descriptor")?;
    let map = ebpf.map_mut(table).with_context(|| format!("this build has no map `{table}`"))?;
    let mut array: ProgramArray<_> = map.try_into()?;
    array.set(0, &program, 0).with_context(|| format!("entering it into `{table}`"))
}

fn load_one(program: &mut Program, btf: Option<&Btf>, function: &str) -> Result<()> {
    if program.fd().is_ok() {
        return Ok(());
    }
    let loaded = match (program, btf) {
        (Program::TracePoint(program), _) => program.load(),
        (Program::KProbe(program), _) => program.load(),
        (Program::FEntry(program), Some(btf)) => program.load(function, btf),
        (Program::FExit(program), Some(btf)) => program.load(function, btf),
        (other, _) => bail!("a program of type {:?} has no place here", other.prog_type()),
    };
    loaded.map_err(|error| refusal(&error))
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
        if is_confidentiality(&log) {
            return Obstacle::Confidentiality.into();
        }
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        let tail = lines[lines.len().saturating_sub(6)..].join(" | ");
        return anyhow!("this kernel refuses the program ({io_error}): {tail}");
    }
    anyhow!("loading the program: {error}")
}
