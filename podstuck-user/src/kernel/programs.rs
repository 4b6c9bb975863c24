//! Handing programs to the verifier.

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

use super::hooks::{Form, Pair, Side};

/// Loads pairs in one form, at once: the verifier works on each by itself, on a CPU of its own.
pub(super) fn load(ebpf: &mut Ebpf, form: Form, pairs: &[&Pair]) -> Vec<Result<()>> {
    let btf = match form {
        Form::Function => match Btf::from_sys_fs().context("reading the kernel's types") {
            Ok(btf) => Some(btf),
            Err(error) => return pairs.iter().map(|_| Err(anyhow!("{error:#}"))).collect(),
        },
        Form::Tracepoint => None,
    };
    // A program that several pairs share is loaded once, by whichever comes first.
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
