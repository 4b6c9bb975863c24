//! The directory that the kernel has resolved for a deletion. The kernel passes it to its security modules after it
//! has followed all links and mounts, and before it checks permissions (`do_unlinkat` and `do_rmdir` in fs/namei.c).
//! Only kernels with `CONFIG_SECURITY_PATH` have these functions.

use core::mem::offset_of;

use aya_ebpf::{
    macros::{fentry, kprobe},
    programs::{FEntryContext, ProbeContext},
};
use podstuck_common::in_flight::Resolved;

use crate::probes::{
    globals::offsets,
    in_flight,
    kernel::{field, follow},
    kernel_path::{Dentry, KernelPath},
};

/// On `int security_path_unlink(const struct path *dir, struct dentry *dentry)`. It runs for every removal of a file,
/// so it only stores the directory.
///
/// It may run more than once for a call: after a stale attempt (ESTALE), or while the call waits for others to give
/// up a delegation. The last run counts, since its outcome is the call's. It does not run for deletions that a file
/// system makes in another one below it (overlayfs).
#[fentry]
fn fentry_security_path_unlink(ctx: FEntryContext) -> i32 {
    note(&ctx);
    0
}

/// On `int security_path_rmdir(const struct path *dir, struct dentry *dentry)`.
#[fentry]
fn fentry_security_path_rmdir(ctx: FEntryContext) -> i32 {
    note(&ctx);
    0
}

/// The same with a kprobe, for kernels that only attach kprobes to functions.
#[kprobe]
fn kprobe_security_path_unlink(ctx: ProbeContext) -> u32 {
    note_untyped(&ctx);
    0
}

#[kprobe]
fn kprobe_security_path_rmdir(ctx: ProbeContext) -> u32 {
    note_untyped(&ctx);
    0
}

/// Offset of `d_inode` in a dentry.
#[inline(always)]
fn inode_offset() -> u32 {
    offsets().dentry_parent + offset_of!(Dentry, inode) as u32
}

#[inline(always)]
fn note_untyped(ctx: &ProbeContext) -> Option<()> {
    let path: *const u8 = ctx.arg(0)?;
    let KernelPath { mnt, dentry } = field(path as u64, 0)?;
    let inode: u64 = field(dentry, inode_offset())?;
    in_flight::resolved(Resolved { mnt, dentry, inode: inode as u32 });
    Some(())
}

#[inline(always)]
fn note(ctx: &FEntryContext) {
    let inode = inode_offset();
    let path: *const u8 = ctx.arg(0);
    // SAFETY: `path->{mnt,dentry->d_inode}`, from an argument.
    let directory = unsafe {
        let mnt: u64 = follow(path, offset_of!(KernelPath, mnt) as u32);
        let dentry: *const u8 = follow(path, offset_of!(KernelPath, dentry) as u32);
        let inode: u64 = follow(dentry, inode);
        Resolved { mnt, dentry: dentry as u64, inode: inode as u32 }
    };
    in_flight::resolved(directory);
}
