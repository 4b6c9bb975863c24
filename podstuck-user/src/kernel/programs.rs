//! Handing programs to the verifier.

use std::{
    collections::{BTreeMap, HashMap},
    sync::OnceLock,
    thread::ScopedJoinHandle,
};

use anyhow::{Context, Result, anyhow, bail};
use aya::{
    Btf, Ebpf,
    maps::ProgramArray,
    programs::{Program, ProgramError},
};
use nix::errno::Errno;

use super::hooks::{AFTER_RETURN, Form, Pair, Side};

/// The running kernel's types, which a program on a function refers to. They are some ten megabytes,
/// so they are read once, and only where such a program is wanted.
#[derive(Default)]
pub(super) struct Types(OnceLock<Result<Btf, String>>);

impl Types {
    fn get(&self) -> Result<&Btf> {
        let read = || Btf::from_sys_fs().map_err(|error| error.to_string());
        let types = self.0.get_or_init(read).as_ref();
        types.map_err(|error| anyhow!("reading the kernel's types: {error}"))
    }
}

/// Loads pairs in one form, at once: the verifier works on each by itself, on a CPU of its own.
pub(super) fn load(ebpf: &mut Ebpf, types: &Types, form: Form, pairs: &[&Pair]) -> Vec<Result<()>> {
    let btf = match form {
        Form::Function => match types.get() {
            Ok(btf) => Some(btf),
            Err(error) => return pairs.iter().map(|_| Err(anyhow!("{error:#}"))).collect(),
        },
        Form::Tracepoint => None,
    };
    // A program that several pairs share is loaded once, for whichever comes first.
    let mut jobs: BTreeMap<String, &Pair> = BTreeMap::new();
    for pair in pairs {
        for side in [Side::Exit, Side::Enter] {
            jobs.entry(pair.program(form, side)).or_insert(pair);
        }
        // It refers to the type of the function, which all of them have.
        if form == Form::Function && pair.is_system_call() {
            jobs.entry(AFTER_RETURN.to_owned()).or_insert(pair);
        }
    }
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
    let result = |program: &str| match loaded.get(program) {
        Some(Ok(())) => Ok(()),
        Some(Err(why)) => Err(anyhow!("{why}")),
        None => Err(anyhow!("this build has no program `{program}`")),
    };
    let after_return = if jobs.contains_key(AFTER_RETURN) {
        result(AFTER_RETURN).and_then(|()| go_on_after_return(ebpf))
    } else {
        Ok(())
    };
    pairs
        .iter()
        .map(|pair| {
            match &after_return {
                Err(error) if pair.is_system_call() => bail!("what follows a return: {error:#}"),
                _ => {}
            }
            result(&pair.program(form, Side::Exit))?;
            result(&pair.program(form, Side::Enter))
        })
        .collect()
}

/// Tells the programs at the ends of system calls' functions what to go on with.
fn go_on_after_return(ebpf: &mut Ebpf) -> Result<()> {
    let program = ebpf.program(AFTER_RETURN).context("this build has no such program")?;
    let program = program.fd()?.try_clone().context("copying its descriptor")?;
    let map = ebpf.map_mut("AFTER_RETURN").context("this build has no map `AFTER_RETURN`")?;
    let mut array: ProgramArray<_> = map.try_into()?;
    array.set(0, &program, 0).context("entering it into `AFTER_RETURN`")
}

fn load_one(program: &mut Program, btf: Option<&Btf>, pair: &Pair) -> Result<()> {
    if program.fd().is_ok() {
        return Ok(());
    }
    let loaded = match (program, btf) {
        (Program::TracePoint(program), _) => program.load(),
        (Program::FEntry(program), Some(btf)) => program.load(pair.function(), btf),
        (Program::FExit(program), Some(btf)) => program.load(pair.function(), btf),
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
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        let tail = lines[lines.len().saturating_sub(6)..].join(" | ");
        return anyhow!("this kernel refuses the program ({io_error}): {tail}");
    }
    anyhow!("loading the program: {error}")
}
