//! Threads that sleep for a lock of the kernel, and who holds it: an iterator over all tasks (Linux 5.8), which runs only
//! when it is read. The kernel keeps the lock of a sleeping task since 6.16.

use std::io::Read;

use anyhow::{Context, Result};
use aya::{Btf, Ebpf, programs::Iter};
use podstuck_common::lock::LockWait;

/// Most threads that are read.
const THREADS: usize = 4096;
const PROGRAM: &str = "lock_waits";

/// Loads the iterator.
///
/// # Errors
/// Fails if this kernel refuses it.
pub(super) fn load(ebpf: &mut Ebpf) -> Result<()> {
    let btf = Btf::from_sys_fs().context("reading the kernel's types")?;
    Ok(program(ebpf)?.load("task", &btf)?)
}

/// All threads that sleep for a lock now. Takes some hundred nanoseconds a task of the machine.
///
/// # Errors
/// Fails if the iterator is not loaded, or cannot be read.
pub fn waits(ebpf: &mut Ebpf) -> Result<Vec<LockWait>> {
    let program = program(ebpf)?;
    let link = program.attach()?;
    let file = program.take_link(link)?.into_file()?;
    let mut text = Vec::new();
    let most = THREADS * LockWait::SIZE;
    file.take(most as u64).read_to_end(&mut text).context("reading the kernel's tasks")?;
    let (records, _) = text.as_chunks();
    Ok(records.iter().map(LockWait::parse).collect())
}

fn program(ebpf: &mut Ebpf) -> Result<&mut Iter> {
    let program = ebpf.program_mut(PROGRAM);
    let program = program.with_context(|| format!("this build has no program `{PROGRAM}`"))?;
    Ok(program.try_into()?)
}
