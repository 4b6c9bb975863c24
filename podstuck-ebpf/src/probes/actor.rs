//! Who makes a call, for people.

use aya_ebpf::helpers::{bpf_get_current_cgroup_id, bpf_get_current_comm};
use podstuck_common::record::Caller;

use super::{
    globals::offsets,
    kernel::{field, task},
};

/// Whether the description is that of the current process, and not of one that had its id before.
#[inline(always)]
pub(crate) fn is_described(actor: &Caller) -> bool {
    let o = offsets();
    let leader: u64 = if o.usable == 0 { 0 } else { field(task(), o.task_leader).unwrap_or(0) };
    actor.started_ns == field(leader, o.task_started).unwrap_or(0)
}

/// Describes the current process for people: by the name of the calling thread, or of its main thread.
#[inline(always)]
pub(crate) fn describe(actor: &mut Caller, by_main_thread: bool) {
    let o = offsets();
    // SAFETY: no arguments; 0 where the kernel has no version 2 hierarchy.
    actor.cgroup = unsafe { bpf_get_current_cgroup_id() };
    actor.comm = bpf_get_current_comm().unwrap_or_default();
    let task = if o.usable == 0 { 0 } else { task() };
    let leader: u64 = field(task, o.task_leader).unwrap_or(0);
    actor.started_ns = field(leader, o.task_started).unwrap_or(0);
    if by_main_thread {
        actor.comm = field(leader, o.task_comm).unwrap_or(actor.comm);
    }
    let namespaces: u64 = field(task, o.task_nsproxy).unwrap_or(0);
    let mounts: u64 = field(namespaces, o.nsproxy_mnt_ns).unwrap_or(0);
    actor.mnt_ns = field(mounts, o.mnt_ns_inum).unwrap_or(0);
    let parent: u64 = field(task, o.task_parent).unwrap_or(0);
    actor.parent = field(parent, o.task_tgid).unwrap_or(0);
    actor.parent_comm = field(parent, o.task_comm).unwrap_or_default();
}
