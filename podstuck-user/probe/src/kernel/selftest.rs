//! A successful attach is no proof that a probe fires: on Linux 5.10 one on an inlined function attaches and stays
//! silent. So the tool makes each call and checks whether it was seen.

use std::{path::Path, thread, time::Duration};

use anyhow::{Context, Result, bail};
use aya::{Ebpf, maps::PerCpuArray};
use nix::{
    errno::Errno,
    mount::{MntFlags, umount2},
    unistd::{UnlinkatFlags, unlink, unlinkat},
};
use podstuck_common::record::call;

use super::hooks::{DirectoryHook, Form};
use podstuck_model::call::Call;

/// No such object can exist: `/proc/self` has no entry of this name and cannot get one. All calls
/// fail with ENOENT, and nothing is changed.
const NOTHING: &str = "/proc/self/podstuck-self-test";

/// Pause before each further attempt.
///
/// One silent attempt is no proof that a probe never fires: a task that was preempted within a program of a
/// tracepoint keeps all other programs from running on its processor until it runs again (`bpf_prog_active` in the
/// kernel's `trace_call_bpf`). A probe that fires once works.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(1),
    Duration::from_millis(4),
    Duration::from_millis(16),
    Duration::from_millis(64),
];

/// Makes each call, repeatedly while one of them is not seen; returns which of them were.
pub fn seen(ebpf: &Ebpf, calls: &[Call]) -> Result<Vec<bool>> {
    let before = read(ebpf)?;
    attempts(|| {
        make_calls();
        let after = read(ebpf)?;
        let fires = |code: &u8| after[usize::from(*code)] > before[usize::from(*code)];
        let seen: Vec<bool> = calls
            .iter()
            .map(|call| match call {
                Call::Unlinkat => [call::UNLINKAT, call::UNLINKAT_DIR].iter().all(fires),
                other => fires(&(*other as u8)),
            })
            .collect();
        Ok((seen.iter().all(|seen| *seen), seen))
    })
}

/// The result of the last attempt: the first that sees all, or the last one.
fn attempts<T>(mut attempt: impl FnMut() -> Result<(bool, T)>) -> Result<T> {
    for pause in PAUSES {
        if let (true, result) = attempt()? {
            return Ok(result);
        }
        thread::sleep(pause);
    }
    Ok(attempt()?.1)
}

fn make_calls() {
    let nothing = Path::new(NOTHING);
    let cwd = nix::fcntl::AT_FDCWD;
    // The results do not matter, only that the calls are made.
    let _ = umount2(nothing, MntFlags::empty());
    let _ = unlink(nothing);
    let _ = unlinkat(cwd, nothing, UnlinkatFlags::NoRemoveDir);
    let _ = unlinkat(cwd, nothing, UnlinkatFlags::RemoveDir);
    // `std::fs::remove_dir` is `rmdir(2)`, where the architecture has one.
    let _ = std::fs::remove_dir(nothing);
}

/// Removes a file and a directory of `/proc`, which supports no removal: both fail with EPERM, and nothing is
/// changed. But the kernel resolves their directory before.
///
/// # Errors
/// Fails with the hook that did not report the directory.
pub fn directories(ebpf: &Ebpf, form: Form) -> Result<()> {
    let calls = [
        (DirectoryHook::Unlink, "/proc/self/status", UnlinkatFlags::NoRemoveDir, call::UNLINKAT),
        (DirectoryHook::Rmdir, "/proc/self/task", UnlinkatFlags::RemoveDir, call::UNLINKAT_DIR),
    ];
    for (hook, path, flags, code) in calls {
        let reported = |seen: &[u64; SEEN]| seen[call::COUNT + usize::from(code)];
        let before = reported(&read(ebpf)?);
        let is_seen = attempts(|| {
            let result = unlinkat(nix::fcntl::AT_FDCWD, path, flags);
            // Where `/proc` is mounted read-only, no call reaches the hook.
            let is_seen = result == Err(Errno::EROFS) || reported(&read(ebpf)?) > before;
            Ok((is_seen, is_seen))
        })?;
        if !is_seen {
            bail!("{} was attached and did not see the self-test's own call", hook.hook(form));
        }
    }
    Ok(())
}

/// One counter for each call, and one more for those whose directory was reported.
const SEEN: usize = 2 * call::COUNT;

fn read(ebpf: &Ebpf) -> Result<[u64; SEEN]> {
    let map = ebpf.map("OWN_CALLS").context("this build has no map `OWN_CALLS`")?;
    let map: PerCpuArray<_, u64> = map.try_into()?;
    let mut seen = [0; SEEN];
    for (code, sum) in seen.iter_mut().enumerate() {
        *sum = map.get(&(code as u32), 0).context("reading `OWN_CALLS`")?.iter().sum();
    }
    Ok(seen)
}
