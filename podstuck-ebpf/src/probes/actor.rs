//! The caller of a system call, as shown in reports.

use aya_ebpf::helpers::{bpf_get_current_cgroup_id, bpf_get_current_comm};
use podstuck_common::record::{Caller, credential};

use super::{
    globals::offsets,
    kernel::{field, task},
    scratch::Scratch,
    slot::global_function,
};

/// Its bit in the capability sets of `struct cred` (include/uapi/linux/capability.h), in their first word.
const CAP_SYS_ADMIN: u32 = 21;

global_function! {
    /// Describes the caller. Separate because of its callers' frames: on Linux 5.10 all together must fit into 512
    /// bytes.
    pub(crate) fn describe_caller(slot) -> u32 {
        let Scratch { call, head, .. } = slot.scratch();
        describe(&mut head.actor, call.process.started_ns, call.of_io_uring());
        0
    }
}

/// Describes the current process, which started at this time, with the name of the calling thread or of its main
/// thread.
#[inline(always)]
pub(crate) fn describe(actor: &mut Caller, started_ns: u64, by_main_thread: bool) {
    let o = offsets();
    // SAFETY: no arguments; 0 where the kernel has no version 2 hierarchy.
    actor.cgroup = unsafe { bpf_get_current_cgroup_id() };
    actor.comm = bpf_get_current_comm().unwrap_or_default();
    actor.started_ns = started_ns;
    let task = if o.usable == 0 { 0 } else { task() };
    if by_main_thread {
        let leader: u64 = field(task, o.task_leader).unwrap_or(0);
        actor.comm = field(leader, o.task_comm).unwrap_or(actor.comm);
    }
    actor.credentials = credentials(task).unwrap_or(0);
    actor.reserved = 0;
    let namespaces: u64 = field(task, o.task_nsproxy).unwrap_or(0);
    let mounts: u64 = field(namespaces, o.nsproxy_mnt_ns).unwrap_or(0);
    actor.mnt_ns = field(mounts, o.mnt_ns_inum).unwrap_or(0);
    let parent: u64 = field(task, o.task_parent).unwrap_or(0);
    actor.parent = field(parent, o.task_tgid).unwrap_or(0);
    actor.parent_comm = field(parent, o.task_comm).unwrap_or_default();
}

/// Whether the current process is the node's root.
#[inline(always)]
pub(crate) fn is_root() -> bool {
    let task = if offsets().usable == 0 { 0 } else { task() };
    credentials(task) == Some(credential::ROOT)
}

/// The credentials that `/proc` shows (`real_cred`), not those that the kernel borrows for a file system or a
/// request.
#[inline(always)]
fn credentials(task: u64) -> Option<u32> {
    let o = offsets();
    let credentials: u64 = field(task, o.task_cred)?;
    // All eight ids: the effective ones alone do not show which user started a set-user-ID program.
    let mut ids = 0;
    for pair in 0..4 {
        ids |= field::<u64>(credentials, o.cred_uid.wrapping_add(pair * 8))?;
    }
    let effective: u32 = field(credentials, o.cred_effective)?;
    let namespace: u64 = field(credentials, o.cred_user_ns)?;
    let level: u32 = field(namespace, o.user_ns_level)?;
    let mut bits = credential::KNOWN;
    if ids == 0 {
        bits |= credential::IDS_0;
    }
    if effective & 1 << CAP_SYS_ADMIN != 0 {
        bits |= credential::SYS_ADMIN;
    }
    if level == 0 {
        bits |= credential::FIRST_USER_NS;
    }
    Some(bits)
}
