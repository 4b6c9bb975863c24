//! A successful attach is no proof that a probe fires: on Linux 5.10 one on an inlined function
//! attaches and stays silent. So the tool makes each call once and looks whether it was seen.

use std::path::Path;

use anyhow::{Context, Result};
use aya::{Ebpf, maps::PerCpuArray};
use nix::{
    mount::{MntFlags, umount2},
    unistd::{UnlinkatFlags, unlink, unlinkat},
};
use podstuck_common::record::call;

use super::attach::Attached;
use crate::model::call::Call;

/// No such object can exist: `/proc/self` has no entry of this name and cannot get one. All calls
/// fail with ENOENT, and nothing is changed.
const NOTHING: &str = "/proc/self/podstuck-self-test";

/// Makes each call once and moves those that were not seen from `calls` to `missing`.
pub fn verify(ebpf: &Ebpf, attached: &mut Attached) -> Result<()> {
    make_calls();
    let seen = seen(ebpf)?;
    attached.calls.retain(|call| {
        let codes: &[u8] = match call {
            Call::Unlinkat => &[call::UNLINKAT, call::UNLINKAT_DIR],
            other => &[*other as u8],
        };
        let fires = codes.iter().all(|code| seen[usize::from(*code)] > 0);
        if !fires {
            let reason = "attached, but did not see the self-test's own call".to_owned();
            attached.missing.push((*call, reason));
        }
        fires
    });
    Ok(())
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

fn seen(ebpf: &Ebpf) -> Result<[u64; call::COUNT]> {
    let map = ebpf.map("OWN_CALLS").context("this build has no map `OWN_CALLS`")?;
    let map: PerCpuArray<_, u64> = map.try_into()?;
    let mut seen = [0; call::COUNT];
    for (code, sum) in seen.iter_mut().enumerate() {
        *sum = map.get(&(code as u32), 0).context("reading `OWN_CALLS`")?.iter().sum();
    }
    Ok(seen)
}
